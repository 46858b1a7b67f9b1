"""ShareFetch (78) and ShareAcknowledge (79): queues.

- Both use one session (`ottla.sharing.sessions`). Membership in the group is not checked.
- Acknowledgements come with a fetch or alone. Those of a partition are applied all or none, and
  answered when they are durable; other partitions are not affected.
- A fetch delivers from the partitions of the session in turn, up to max_records in all, and waits
  up to max_wait_ms for the first records. Delivered records are locked for the member, so it does
  not wait for more.
- Records are whole batches; the acquired ranges tell which records the member got. A partition
  without records has an empty field, never null, or librdkafka drops the whole response. A fetch
  that only acquires gets the ranges alone.
- Nothing is acquired for a client whose quota is used up; it is throttled after the response.
- The response lists partitions with records or errors, new ones, and all acknowledged ones.
- Every request needs read on the group and on each topic of the request and of the session.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ottla.broker.access.everything import EVERYTHING
from ottla.broker.errors import ApiError
from ottla.broker.handlers.leaders import NOT_LED, UNKNOWN, Leader, addresses, current_leader
from ottla.broker.hosting.waiting import woken
from ottla.log.errors import LogError
from ottla.log.mapped import MIN_VIEW_BYTES
from ottla.metadata.security.acls import Operation, Resource
from ottla.sharing.requests import (
    acks_by_partition,
    acquire_mode,
    check_member_id,
    check_renewal,
    checked_acks,
    forgotten_partitions,
)
from ottla.sharing.values import FetchTurn, ShareError
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema import share_acknowledge as acknowledge
from ottla.wire.schema.share_fetch import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.broker.cluster import Cluster
    from ottla.broker.hosting.partitions import Partitions
    from ottla.broker.hosting.waiting import Line
    from ottla.broker.running.services import Lazy
    from ottla.broker.running.settings import Settings
    from ottla.broker.serving.answer_memory import AnswerMemory
    from ottla.broker.serving.context import RequestContext
    from ottla.broker.shares.partitions import LedSharePartition, LedSharePartitions
    from ottla.broker.shares.sessions import MemberSessions
    from ottla.broker.shares.settings import ShareGroupConfigs
    from ottla.clock import Clock
    from ottla.log.partition import PartitionLog
    from ottla.sharing.requests import AckBatch
    from ottla.sharing.sessions import Key, SessionTurn
    from ottla.sharing.values import Ack, AcquireMode

READ = Operation.READ
NO_LEADER = LeaderIdAndEpoch(-1, -1)


Begun: TypeAlias = "ErrorCode | asyncio.Future[ErrorCode]"
"""The result of an acknowledgement, or the write that decides it."""


class Room(NamedTuple):
    """Shared state of one request."""

    context: RequestContext
    cluster: Cluster
    partitions: Partitions
    shares: LedSharePartitions
    views: bool = False
    """Whether records may be views of mapped files."""


class Got(NamedTuple):
    """Records found in one partition."""

    data: PartitionData
    size: int = 0
    records: int = 0
    log: PartitionLog | None = None
    """If there may be views of its files."""


async def share_fetch(
    context: RequestContext,
    request: ShareFetchRequest,
    cluster: Cluster,
    partitions: Partitions,
    shares: Lazy[LedSharePartitions],
    share_sessions: Lazy[MemberSessions],
    share_configs: Lazy[ShareGroupConfigs],
    settings: Settings,
    answers: AnswerMemory,
    clock: Clock,
) -> ShareFetchResponse:
    group = request.group_id or ""
    if not context.may(READ, Resource.GROUP, group):
        error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return ShareFetchResponse(error_code=error_code, error_message=error_code.name)
    views = settings.fetch_mapped and context.peer.takes_views
    room = Room(context, cluster, partitions, shares(), views)
    named = acks_by_partition(request.topics)
    try:
        member = check_member_id(request.member_id)
        check_renewal(request)
        mode = acquire_mode(request.share_acquire_mode)
        turn = share_sessions().machine.begin_fetch(
            group,
            member,
            request.share_session_epoch,
            context.peer.connection_id,
            added=named,
            forgotten=forgotten_partitions(request.forgotten_topics_data),
            has_acks=any(named.values()),
            owner=context.peer.principal,
        )
    except ShareError as error:
        if error.code == ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            # Clients open a session again at once; that must not become a busy loop.
            await asyncio.sleep(request.max_wait_ms / 1000)
        return ShareFetchResponse(error_code=error.code, error_message=str(error))
    begun = _acknowledge(room, turn, named, is_renew_ack=request.is_renew_ack)
    got: dict[Key, Got] = {}
    wants = not turn.is_final and not request.is_renew_ack
    left = context.fetch_room(clock.monotonic()) if wants else None
    if wants and request.max_records and request.max_bytes and left != 0:
        most = min(request.max_bytes, settings.fetch_max_bytes, left or request.max_bytes)

        def max_bytes() -> int:
            return max(1, min(most, answers.room))

        await answers.turn()
        got = await _fetch(room, request, turn, mode, max_bytes)
    acknowledged = await _settled(room, turn, begun)
    if not turn.is_final and not turn.is_current:
        return ShareFetchResponse(
            error_code=ErrorCode.INVALID_SHARE_SESSION_EPOCH,
            error_message="a newer request of the session was handled first",
        )
    lock_ms = share_configs().of(group).settings.lock_duration_ms
    answers.promise(sum(found.size for found in got.values()))
    context.peer.lent.update(found.log for found in got.values() if found.log is not None)
    return _response(room, turn, got, acknowledged, lock_ms)


async def share_acknowledge(
    context: RequestContext,
    request: acknowledge.ShareAcknowledgeRequest,
    cluster: Cluster,
    partitions: Partitions,
    shares: Lazy[LedSharePartitions],
    share_sessions: Lazy[MemberSessions],
    share_configs: Lazy[ShareGroupConfigs],
) -> acknowledge.ShareAcknowledgeResponse:
    group = request.group_id or ""
    if not context.may(READ, Resource.GROUP, group):
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return acknowledge.ShareAcknowledgeResponse(error_code=code, error_message=code.name)
    room = Room(context, cluster, partitions, shares())
    try:
        member = check_member_id(request.member_id)
        turn = share_sessions().machine.begin_acknowledge(
            group, member, request.share_session_epoch, owner=context.peer.principal
        )
    except ShareError as error:
        return acknowledge.ShareAcknowledgeResponse(error_code=error.code, error_message=str(error))
    named = acks_by_partition(request.topics)
    begun = _acknowledge(
        room,
        turn,
        named,
        is_renew_ack=request.is_renew_ack,
        is_uncounted=request.is_uncounted,
    )
    acknowledged = await _settled(room, turn, begun)
    topics: dict[bytes, list[acknowledge.PartitionData]] = {}
    leaders: set[int] = set()
    for (topic_id, index), error_code in acknowledged.items():
        leader = acknowledge.LeaderIdAndEpoch(*_leader(room, (topic_id, index), error_code))
        leaders.add(leader.leader_id)
        row = acknowledge.PartitionData(index, error_code, None, leader)
        topics.setdefault(topic_id, []).append(row)
    return acknowledge.ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=share_configs().of(group).settings.lock_duration_ms,
        responses=[
            acknowledge.ShareAcknowledgeTopicResponse(topic_id, rows)
            for topic_id, rows in topics.items()
        ],
        node_endpoints=[
            acknowledge.NodeEndpoint(*one)
            for one in addresses(room.cluster, room.context.peer.listener, leaders)
        ],
    )


# -- acknowledging --------------------------------------------------------------------------------


def _acknowledge(
    room: Room,
    turn: SessionTurn,
    named: dict[Key, list[AckBatch]],
    *,
    is_renew_ack: bool,
    is_uncounted: bool = False,
) -> dict[Key, Begun]:
    """The result for each acknowledged partition, or the future that decides it."""
    begun: dict[Key, Begun] = {}
    for key, batches in named.items():
        if not batches:
            continue
        try:
            acks = checked_acks(
                batches,
                version=room.context.version,
                is_renew_ack=is_renew_ack,
                is_uncounted=is_uncounted,
            )
            begun[key] = _acknowledge_one(room, turn, key, acks)
        except ShareError as error:
            begun[key] = error.code
    return begun


def _acknowledge_one(room: Room, turn: SessionTurn, key: Key, acks: list[Ack]) -> Begun:
    try:
        _check_right(room, key)
        led = room.shares.loaded(turn.session.group, *key)
    except (ApiError, LogError) as error:
        return ErrorCode(error.code)
    return led.acknowledge(turn.session.member, acks)


async def _settled(room: Room, turn: SessionTurn, begun: dict[Key, Begun]) -> dict[Key, ErrorCode]:
    """The results, when they are durable.

    After the last request of a session its other records are released, even if the client
    disconnects meanwhile: its session has ended.
    """
    if turn.is_final:
        return await asyncio.shield(_released(room, turn, begun))
    return await _results(begun)


async def _released(room: Room, turn: SessionTurn, begun: dict[Key, Begun]) -> dict[Key, ErrorCode]:
    results = await _results(begun)
    for topic_id, index in turn.session.partitions:
        room.shares.release(turn.session.group, turn.session.member, topic_id, index)
    return results


async def _results(begun: dict[Key, Begun]) -> dict[Key, ErrorCode]:
    # A disconnected client does not cancel its writes: the machine needs their outcome.
    return {
        key: found if isinstance(found, ErrorCode) else await asyncio.shield(found)
        for key, found in begun.items()
    }


# -- fetching -------------------------------------------------------------------------------------


async def _fetch(
    room: Room,
    request: ShareFetchRequest,
    turn: SessionTurn,
    mode: AcquireMode,
    max_bytes: Callable[[], int],
) -> dict[Key, Got]:
    """Look for records, and again after each change, until there are some or the time is over."""
    loop = asyncio.get_running_loop()
    readable = [key for key in turn.session.partitions if _may_read(room, key)]
    opening = room.partitions.opening_by_id(readable)
    if opening is not None:
        await opening
    deadline = loop.time() + request.max_wait_ms / 1000
    while True:
        got = _look(room, request, turn, mode, max_bytes)
        size = sum(found.size for found in got.values())
        failed = any(found.data.error_code for found in got.values())
        # Delivered records are locked: send them now, however few.
        if size or failed or loop.time() >= deadline or not turn.session.partitions:
            if size:
                room.shares.pass_on(turn.session.group, turn.session.partitions)
            return got
        try:
            await _moved(room, turn, deadline)
        except asyncio.CancelledError:
            room.shares.pass_on(turn.session.group, turn.session.partitions)
            raise
        if not turn.is_current:
            room.shares.pass_on(turn.session.group, turn.session.partitions)
            return {}


async def _moved(room: Room, turn: SessionTurn, deadline: float) -> None:
    """Wait until one of the partitions may have something, or until the deadline."""
    lines: list[Line] = []
    for key in turn.session.partitions:
        with suppress(ApiError, LogError):
            _check_right(room, key)
            lines.append(room.shares.find(turn.session.group, *key).listen())
    await woken(lines, deadline)


def _look(
    room: Room,
    request: ShareFetchRequest,
    turn: SessionTurn,
    mode: AcquireMode,
    max_bytes: Callable[[], int],
) -> dict[Key, Got]:
    """Deliver the records that are available now."""
    got: dict[Key, Got] = {}
    records_left = request.max_records
    bytes_left = bytes_allowed = max_bytes()
    for key in turn.order:
        try:
            _check_right(room, key)
            led = room.shares.find(turn.session.group, *key)
            found = _deliver(
                led,
                FetchTurn(turn.session.member, records_left, request.batch_size, mode),
                bytes_left,
                views=room.views,
                min_one=bytes_left == bytes_allowed,
            )
            if request.is_acquire_only:
                found = found._replace(data=found.data._replace(records=b""))
        except (ApiError, LogError) as error:
            found = Got(_failed(room, key, ErrorCode(error.code)))
        got[key] = found
        records_left -= found.records
        bytes_left -= found.size
        if records_left <= 0 or bytes_left <= 0:
            break
    turn.session.gave_records(key for key, found in got.items() if found.size)
    return got


def _check_right(room: Room, key: Key) -> None:
    """Called for each partition of the session on every request."""
    if room.context.peer.access is not EVERYTHING:
        room.context.require(READ, Resource.TOPIC, room.partitions.name_of(key[0]))


def _may_read(room: Room, key: Key) -> bool:
    try:
        _check_right(room, key)
    except ApiError:
        return False
    return True


def _deliver(
    led: LedSharePartition, turn: FetchTurn, max_bytes: int, *, views: bool, min_one: bool
) -> Got:
    index = led.key.partition
    if led.machine is None:
        led.check_loading()
        return Got(PartitionData(index, current_leader=NO_LEADER))
    delivered = led.acquire(turn, max_bytes, views=views, min_one=min_one)
    return Got(
        PartitionData(
            index,
            current_leader=NO_LEADER,
            records=delivered.records,
            acquired_records=delivered.ranges,
        ),
        delivered.size,
        delivered.offsets,
        led.hosted.log if views and delivered.size >= MIN_VIEW_BYTES else None,
    )


# -- answering ------------------------------------------------------------------------------------


def _response(
    room: Room,
    turn: SessionTurn,
    got: dict[Key, Got],
    acknowledged: dict[Key, ErrorCode],
    lock_ms: int,
) -> ShareFetchResponse:
    topics: dict[bytes, list[PartitionData]] = {}
    leaders: set[int] = set()
    for key in dict.fromkeys([*turn.session.partitions, *acknowledged]):
        found = got.get(key)
        data = PartitionData(key[1], current_leader=NO_LEADER) if found is None else found.data
        listed = turn.session.must_list(
            key,
            has_news=bool(found and found.size) or key in acknowledged,
            has_error=data.error_code != 0,
        )
        if not listed:
            continue
        ack_error = acknowledged.get(key, ErrorCode.NONE)
        if ack_error in NOT_LED:
            data = data._replace(current_leader=LeaderIdAndEpoch(*_leader(room, key, ack_error)))
        leaders.add(data.current_leader.leader_id)
        topics.setdefault(key[0], []).append(data._replace(acknowledge_error_code=ack_error))
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=lock_ms,
        responses=[
            ShareFetchableTopicResponse(topic_id, rows) for topic_id, rows in topics.items()
        ],
        node_endpoints=[
            NodeEndpoint(*one)
            for one in addresses(room.cluster, room.context.peer.listener, leaders)
        ],
    )


def _failed(room: Room, key: Key, code: ErrorCode) -> PartitionData:
    leader = LeaderIdAndEpoch(*_leader(room, key, code))
    return PartitionData(key[1], code, current_leader=leader)


def _leader(room: Room, key: Key, code: int) -> Leader:
    """The leader of the partition if it is another node."""
    return current_leader(room.cluster, *key) if code in NOT_LED else UNKNOWN
