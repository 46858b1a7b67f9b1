"""A small blocking client for tests of the wire: one socket, frames in and out, nothing retried.

`ask` sends a request and reads its answer; `send`, `send_frame` and `receive` do the halves, for
pipelines and for frames no client would send. `closed` waits for the broker to hang up.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import TYPE_CHECKING, Any, Final, Self

from ottla.wire.batch import iter_batches
from ottla.wire.builder import BatchBuilder
from ottla.wire.messages import read_response, request_parts
from ottla.wire.records import iter_records
from ottla.wire.schema import API_NAMES
from ottla.wire.schema.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.schema.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from ottla.wire.batch import RecordBatch
    from ottla.wire.records import Record
    from ottla.wire.schema.fetch import FetchResponse, PartitionData
    from ottla.wire.schema.list_offsets import ListOffsetsPartitionResponse
    from ottla.wire.schema.metadata import MetadataResponseTopic
    from ottla.wire.schema.produce import PartitionProduceResponse
    from ottla.wire.schema.share_fetch import PartitionData as SharedData

API_KEYS: Final = {name: key for key, name in API_NAMES.items()}
TIMEOUT_SECONDS: Final = 20.0
LATEST, EARLIEST = -1, -2


class RawClient:
    """One connection to a broker at host:port."""

    def __init__(
        self, bootstrap: str, *, client_id: str | None = "raw", source: str | None = None
    ) -> None:
        """`source` is the address that it comes from."""
        host, _, port = bootstrap.rpartition(":")
        origin = None if source is None else (source, 0)
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_SECONDS, origin)
        self._client_id = client_id
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def keep_waiting(self) -> None:
        """Let the kernel take little of an answer before it is read."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 19)

    def wait_longer(self, seconds: float) -> None:
        """For a broker that is known to be slow to answer."""
        self._socket.settimeout(seconds)

    # -- frames -----------------------------------------------------------------------------------

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def send_frame(self, payload: bytes) -> None:
        self.send_bytes(struct.pack(">i", len(payload)) + payload)

    def send(self, api: str, version: int, body: Any) -> int:
        """Send a request; its correlation id."""
        self.send_bytes(self.frame(api, version, body))
        return self._correlation_id

    def frame(self, api: str, version: int, body: Any) -> bytes:
        """The bytes of a request, to be sent as the test likes."""
        self._correlation_id += 1
        parts = request_parts(API_KEYS[api], version, self._correlation_id, self._client_id, body)
        return b"".join(parts)

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def receive(self, api: str, version: int) -> tuple[int, Any]:
        """Correlation id and body of the next answer."""
        return read_response(API_KEYS[api], version, memoryview(self.receive_frame()))

    def ask(self, api: str, version: int, body: Any) -> Any:
        """The answer to one request."""
        sent = self.send(api, version, body)
        correlation_id, answer = self.receive(api, version)
        assert correlation_id == sent
        return answer

    def closed(self) -> bool:
        """Whether the broker hangs up without sending anything more."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            more = self._socket.recv(size - len(found))
            if not more:
                raise ConnectionError(f"closed after {len(found)} of {size} bytes")
            found += more
        return bytes(found)

    # -- requests that many tests need ------------------------------------------------------------

    def topic(self, name: str, *, create: bool = False) -> MetadataResponseTopic:
        request = MetadataRequest([MetadataRequestTopic(name=name)], create)
        topic: MetadataResponseTopic = self.ask("metadata", 12, request).topics[0]
        return topic

    def produce(
        self,
        topic: str,
        records: bytes | bytearray | None,
        *,
        partition: int = 0,
        acks: int = -1,
        version: int = 11,
    ) -> PartitionProduceResponse:
        request = produce_request(topic, {partition: records}, acks=acks)
        answer = self.ask("produce", version, request)
        response: PartitionProduceResponse = answer.responses[0].partition_responses[0]
        return response

    def fetch(self, request: FetchRequest, *, version: int = 12) -> FetchResponse:
        answer: FetchResponse = self.ask("fetch", version, request)
        return answer

    def fetch_one(
        self, topic: str, offset: int, *, partition: int = 0, version: int = 12, **settings: int
    ) -> PartitionData:
        """One partition, whatever there is now."""
        request = fetch_request({(topic, partition): offset}, **settings)
        data: PartitionData = self.fetch(request, version=version).responses[0].partitions[0]
        return data

    def offset(
        self,
        topic: str,
        timestamp: int,
        *,
        partition: int = 0,
        version: int = 11,
        isolation_level: int = 0,
        leader_epoch: int = -1,
    ) -> ListOffsetsPartitionResponse:
        asked = ListOffsetsPartition(partition, leader_epoch, timestamp)
        request = ListOffsetsRequest(-1, isolation_level, [ListOffsetsTopic(topic, [asked])])
        answer = self.ask("list_offsets", version, request)
        found: ListOffsetsPartitionResponse = answer.topics[0].partitions[0]
        return found


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def batch(
    *values: bytes | None,
    key: bytes | None = b"k",
    timestamp: int | None = None,
    **settings: Any,
) -> bytearray:
    """One batch as a producer sends it; settings are those of `BatchBuilder`."""
    builder = BatchBuilder(**settings)
    for value in values:
        builder.append(value, key=key, timestamp=now_ms() if timestamp is None else timestamp)
    return builder.build()


def produce_request(
    topic: str, partitions: Mapping[int, bytes | bytearray | None], *, acks: int = -1
) -> ProduceRequest:
    data = [
        PartitionProduceData(index, None if records is None else bytes(records))
        for index, records in partitions.items()
    ]
    return ProduceRequest(None, acks, 10_000, [TopicProduceData(topic, partition_data=data)])


def fetch_request(
    offsets: dict[tuple[str, int], int],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50_000_000,
    partition_max_bytes: int = 1_048_576,
    isolation_level: int = 0,
    leader_epoch: int = -1,
    session_id: int = 0,
    session_epoch: int = -1,
) -> FetchRequest:
    topics: dict[str, list[FetchPartition]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, []).append(
            FetchPartition(partition, leader_epoch, offset, partition_max_bytes=partition_max_bytes)
        )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[FetchTopic(name, partitions=wanted) for name, wanted in topics.items()],
    )


def batches_of(data: PartitionData | SharedData) -> list[RecordBatch]:
    """The batches of a fetched partition, each with a valid CRC."""
    records = data.records
    if not records:
        return []
    assert isinstance(records, (bytes, memoryview))
    found = list(iter_batches(memoryview(records)))
    for each in found:
        each.verify_crc()
    return found


def records_of(data: PartitionData | SharedData) -> list[Record]:
    return [record for each in batches_of(data) for record in iter_records(each)]


def values_of(data: PartitionData | SharedData) -> Sequence[bytes | None]:
    return [record.value for record in records_of(data)]
