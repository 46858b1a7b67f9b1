"""The five requests about share state, as a broker sends them to a share coordinator."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.wire.schema import delete_share_group_state as deleting
from ottla.wire.schema import initialize_share_group_state as initializing
from ottla.wire.schema import read_share_group_state as reading
from ottla.wire.schema import read_share_group_state_summary as summing
from ottla.wire.schema import write_share_group_state as writing
from ottla.wire.schema.find_coordinator import FindCoordinatorRequest
from tests.support.raw_client import RawClient, records_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.wire.records import Record

STATE_TOPIC: Final = "__share_group_state"
SHARE_KEY: Final = 2
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4
SNAPSHOT, UPDATE = 0, 1

NOT_COORDINATOR: Final = 16
INVALID_REQUEST: Final = 42
FENCED_LEADER_EPOCH: Final = 74
FENCED_STATE_EPOCH: Final = 124
UNKNOWN_TOPIC_OR_PARTITION: Final = 3
COORDINATOR_NOT_AVAILABLE: Final = 15


class Batch(NamedTuple):
    """A range of offsets with its delivery state and delivery count."""

    first: int
    last: int
    state: int
    delivery_count: int


class ShareState:
    """The state of one group in one topic, asked for at one broker."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self.client = RawClient(bootstrap)
        self.group = group
        self.topic_id: bytes = self.client.topic(topic).topic_id

    def close(self) -> None:
        self.client.close()

    def key(self, partition: int = 0) -> str:
        """The text by which a share-partition is placed."""
        return f"{self.group}:{urlsafe_b64encode(self.topic_id).decode().rstrip('=')}:{partition}"

    def coordinator(self, partition: int = 0) -> Any:
        """The answer of FindCoordinator for the share-partition."""
        request = FindCoordinatorRequest("", SHARE_KEY, [self.key(partition)])
        return self.client.ask("find_coordinator", 6, request).coordinators[0]

    def initialize(self, state_epoch: int = 1, start: int = 0, *, partition: int = 0) -> int:
        """The error code."""
        data = initializing.PartitionData(partition, state_epoch, start)
        topic = initializing.InitializeStateData(self.topic_id, [data])
        request = initializing.InitializeShareGroupStateRequest(self.group, [topic])
        return self._code(self.client.ask("initialize_share_group_state", 0, request))

    def read(self, leader_epoch: int = 0, *, partition: int = 0) -> reading.PartitionResult:
        topic = reading.ReadStateData(
            self.topic_id, [reading.PartitionData(partition, leader_epoch)]
        )
        request = reading.ReadShareGroupStateRequest(self.group, [topic])
        answer = self.client.ask("read_share_group_state", 0, request)
        found: reading.PartitionResult = answer.results[0].partitions[0]
        return found

    def batches(self) -> list[Batch]:
        """The stored batches."""
        return [Batch(*one) for one in self.read().state_batches]

    def write(
        self,
        *batches: Batch,
        state_epoch: int = 1,
        leader_epoch: int = 0,
        start: int = -1,
        complete: int = 0,
        partition: int = 0,
    ) -> int:
        """The error code."""
        sent = [writing.StateBatch(*one) for one in batches]
        data = writing.PartitionData(partition, state_epoch, leader_epoch, start, complete, sent)
        topic = writing.WriteStateData(self.topic_id, [data])
        request = writing.WriteShareGroupStateRequest(self.group, [topic])
        return self._code(self.client.ask("write_share_group_state", 1, request))

    def delete(self, *, partition: int = 0) -> int:
        """The error code."""
        topic = deleting.DeleteStateData(self.topic_id, [deleting.PartitionData(partition)])
        request = deleting.DeleteShareGroupStateRequest(self.group, [topic])
        return self._code(self.client.ask("delete_share_group_state", 0, request))

    def summary(self, *, partition: int = 0) -> summing.PartitionResult:
        topic = summing.ReadStateSummaryData(self.topic_id, [summing.PartitionData(partition, -1)])
        request = summing.ReadShareGroupStateSummaryRequest(self.group, [topic])
        answer = self.client.ask("read_share_group_state_summary", 1, request)
        found: summing.PartitionResult = answer.results[0].partitions[0]
        return found

    def records(self) -> list[Record]:
        """All of partition 0, from the partition of the state topic that its key chooses."""
        number = state_partition(self.key())
        found = records_of(self.client.fetch_one(STATE_TOPIC, 0, partition=number))
        name = self.group.encode()
        return [one for one in found if (one.key or b"")[4 : 4 + len(name)] == name]

    @staticmethod
    def _code(answer: Any) -> int:
        code: int = answer.results[0].partitions[0].error_code
        return code


def kinds(records: Sequence[Record]) -> list[tuple[int, int | None]]:
    """Type and snapshot epoch of each record; None for one without a value."""
    return [
        (
            int.from_bytes((one.key or b"")[:2], "big"),
            None if one.value is None else int.from_bytes(one.value[2:6], "big", signed=True),
        )
        for one in records
    ]


def state_partition(key: str) -> int:
    """Java's hash of the text, as Kafka places it, among 50 partitions."""
    hashed = 0
    for character in key:
        hashed = (31 * hashed + ord(character)) & 0xFFFF_FFFF
    signed = hashed - (1 << 32) if hashed >> 31 else hashed
    return abs(signed) % 50
