"""One share session, with the broker that leads some of the partitions: pure.

Rules:

- Epoch 0 opens the session, then each request of either kind has the next one; after 2**31 - 1
  comes 1; -1 closes. One request at a time: the next is made when the last has been answered.
- A fetch has the partitions to add to the session and to remove from it, and acknowledgements. A
  request that opens a session has no acknowledgements: those of the previous session ended with it.
- Any failure of a request ends the session. After an error it is unknown whether the broker applied
  the request's changes, and opening a new session costs one request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.client.errors import KafkaError, failure
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema import share_acknowledge as acknowledge
from ottla.wire.schema.share_fetch import (
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from ottla.client.share.delivery import Key
    from ottla.wire.schema.share_fetch import AcknowledgementBatch, ShareFetchResponse

    Acks = Mapping[Key, Sequence[AcknowledgementBatch]]

OPENING: Final = 0
CLOSING: Final = -1
MAX_EPOCH: Final = 0x7FFF_FFFF

# The broker knows no such session, or another state of it, or has no room for one.
SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)


class Limits(NamedTuple):
    """How much a fetch may bring, and how long it may wait; `strict` counts records exactly."""

    max_records: int
    max_bytes: int
    min_bytes: int = 1
    strict: bool = False


class ShareSession:
    """Makes the requests of a session and counts its epochs."""

    def __init__(self, group: str, member_id: str) -> None:
        self.epoch = OPENING
        self.partitions: frozenset[Key] = frozenset()
        self._group = group
        self._member_id = member_id
        self._after: frozenset[Key] = frozenset()

    @property
    def is_open(self) -> bool:
        """Whether acknowledgements can be sent."""
        return self.epoch != OPENING

    def fetch(
        self, wanted: Collection[Key], acks: Acks, limits: Limits, max_wait_ms: int
    ) -> ShareFetchRequest:
        """A request that leaves the session with exactly the wanted partitions."""
        assert self.is_open or not acks, "a session is not opened with acknowledgements"
        self._after = frozenset(wanted)
        named = {
            key: acks.get(key, ()) for key in sorted({*(self._after - self.partitions), *acks})
        }
        # A partition that is named joins the session; one that is only acknowledged must not stay.
        forgotten = (self.partitions | named.keys()) - self._after
        return ShareFetchRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=self.epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=limits.min_bytes,
            max_bytes=limits.max_bytes,
            max_records=limits.max_records,
            batch_size=limits.max_records,
            share_acquire_mode=int(limits.strict),
            topics=[
                FetchTopic(
                    topic_id, [FetchPartition(index, named[topic_id, index]) for index in of]
                )
                for topic_id, of in _by_topic(named)
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic_id, indexes) for topic_id, indexes in _by_topic(forgotten)
            ],
        )

    def acknowledge(
        self, acks: Acks, *, renews: bool = False, closes: bool = False
    ) -> acknowledge.ShareAcknowledgeRequest:
        """A request that only acknowledges; one that closes gives back everything else."""
        assert self.is_open, "a session is not opened by an acknowledgement"
        self._after = self.partitions
        return acknowledge.ShareAcknowledgeRequest(
            self._group,
            self._member_id,
            CLOSING if closes else self.epoch,
            renews,
            [
                acknowledge.AcknowledgeTopic(
                    topic_id,
                    [
                        acknowledge.AcknowledgePartition(
                            index,
                            [
                                acknowledge.AcknowledgementBatch(*batch)
                                for batch in acks[topic_id, index]
                            ],
                        )
                        for index in indexes
                    ],
                )
                for topic_id, indexes in _by_topic(acks)
            ],
        )

    def answered(self) -> None:
        """The last request had a good answer."""
        self.partitions = self._after
        self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1

    def ended(self) -> None:
        """The last request failed, closed the session, or there is no connection any more."""
        self.epoch = OPENING
        self.partitions = frozenset()


def ack_codes(
    answer: ShareFetchResponse | acknowledge.ShareAcknowledgeResponse,
) -> dict[Key, int]:
    """The result for each partition in an answer that has no error as a whole."""
    return {
        (topic.topic_id, one.partition_index): (
            one.error_code
            if isinstance(one, acknowledge.PartitionData)
            else one.acknowledge_error_code
        )
        for topic in answer.responses
        for one in topic.partitions
    }


def ack_error(codes: Mapping[Key, int], key: Key) -> KafkaError | None:
    """The result of a partition's acknowledgements; a missing one counts as a failure."""
    code = codes.get(key, ErrorCode.INVALID_RECORD_STATE)
    return failure(code, f"acknowledge records of partition {key[1]}")


def _by_topic(keys: Iterable[Key]) -> list[tuple[bytes, list[int]]]:
    found: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(keys):
        found.setdefault(topic_id, []).append(index)
    return list(found.items())
