"""What ShareFetch and ShareAcknowledge requests must look like before anything is done for them.

Rules:

- A member id is made by the client: text of 1 to 36 characters.
- A request that renews locks (KIP-1222) fetches nothing, and says so: all its limits are 0.
- A partition may be named several times; it counts once, with all acknowledgements.
- Acknowledgement batches of a partition ascend. Each has one type, or one for every offset. A type
  that renews needs a request that says it renews.

A fault in a partition's batches is that partition's alone.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final, Protocol

from ottla.sharing.values import Ack, AcknowledgeType, AcquireMode, ShareError
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ottla.sharing.sessions import Key
    from ottla.wire.schema.share_acknowledge import AcknowledgeTopic
    from ottla.wire.schema.share_fetch import FetchTopic, ForgottenTopic, ShareFetchRequest

MAX_MEMBER_ID: Final = 36
"""A UUID in its longest usual form, as in Kafka."""

FENCING: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
    }
)
"""Errors of the persister after which a share partition must be loaded again.

A write to deleted state gets INVALID_REQUEST."""


class AckBatch(Protocol):
    """An acknowledgement batch of either API."""

    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def acknowledge_types(self) -> Sequence[int]: ...


def check_member_id(member_id: str | None) -> str:
    if not member_id or len(member_id) > MAX_MEMBER_ID:
        raise ShareError(
            ErrorCode.INVALID_REQUEST,
            f"expected a member id of 1 to {MAX_MEMBER_ID} characters, got {member_id!r:.50}",
        )
    return member_id


def check_renewal(request: ShareFetchRequest) -> None:
    if request.is_renew_ack and (
        request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms
    ):
        raise ShareError(
            ErrorCode.INVALID_REQUEST, "a fetch that renews locks must have all its limits at 0"
        )


def acquire_mode(code: int) -> AcquireMode:
    try:
        return AcquireMode(code)
    except ValueError:
        raise ShareError(
            ErrorCode.INVALID_REQUEST, f"expected acquire mode 0 or 1, got {code}"
        ) from None


def acks_by_partition(
    topics: Iterable[FetchTopic | AcknowledgeTopic],
) -> dict[Key, list[AckBatch]]:
    """Every partition a request names, each once, with its acknowledgement batches."""
    named: dict[Key, list[AckBatch]] = {}
    for topic in topics:
        for partition in topic.partitions:
            batches = named.setdefault((topic.topic_id, partition.partition_index), [])
            batches += partition.acknowledgement_batches
    return named


def forgotten_partitions(topics: Iterable[ForgottenTopic]) -> list[Key]:
    return [(topic.topic_id, partition) for topic in topics for partition in topic.partitions]


def checked_acks(
    batches: Iterable[AckBatch], *, version: int, is_renew_ack: bool, is_uncounted: bool = False
) -> list[Ack]:
    """The acknowledgements of one partition, or the `ShareError` that answers them.

    `is_uncounted` applies to all released records.
    """
    acks: list[Ack] = []
    highest = AcknowledgeType.RENEW if version >= 2 else AcknowledgeType.REJECT
    previous = 0
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        where = f"offsets {first}..{last}"
        if last < first or first < previous:
            raise ShareError(ErrorCode.INVALID_REQUEST, f"{where}: not in order")
        if len(types) not in {1, last - first + 1}:
            raise ShareError(
                ErrorCode.INVALID_REQUEST,
                f"{where}: expected 1 type or {last - first + 1}, got {len(types)}",
            )
        if min(types) < 0 or max(types) > highest:
            raise ShareError(
                ErrorCode.INVALID_REQUEST, f"{where}: expected types from 0 to {highest:d}"
            )
        if AcknowledgeType.RENEW in types and not is_renew_ack:
            raise ShareError(
                ErrorCode.INVALID_REQUEST, f"{where}: renewed by a request that does not renew"
            )
        acks += _runs(first, last, types)
        previous = last
    if is_uncounted:
        acks = [ack._replace(is_uncounted=ack.type is AcknowledgeType.RELEASE) for ack in acks]
    return acks


def client_error(persister: ErrorCode) -> ErrorCode:
    """The error code for a client when the persister fails."""
    match persister:
        case (
            ErrorCode.NOT_COORDINATOR
            | ErrorCode.COORDINATOR_NOT_AVAILABLE
            | ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        ):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case (
            ErrorCode.NOT_LEADER_OR_FOLLOWER
            | ErrorCode.FENCED_LEADER_EPOCH
            | ErrorCode.FENCED_STATE_EPOCH
        ):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        case ErrorCode.GROUP_ID_NOT_FOUND | ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return persister
        case _:
            return ErrorCode.UNKNOWN_SERVER_ERROR


def _runs(first: int, last: int, types: Sequence[int]) -> Iterable[Ack]:
    """One acknowledgement per run of offsets of one type."""
    if len(types) == 1:
        yield Ack(first, last, AcknowledgeType(types[0]))
        return
    for kind, group in groupby(types):
        end = first + sum(1 for _ in group)
        yield Ack(first, end - 1, AcknowledgeType(kind))
        first = end
