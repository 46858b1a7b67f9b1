"""Fetch (1): read batches, wait for more.

- A response has whole batches as stored in the log, beginning with the one that contains the
  requested offset. The first batch of a response is returned whole even if it is larger than the
  limits.
- An offset past the end or below the log start is error 1; between high watermark and end there is
  nothing to read yet. Readers with isolation 1 stop at the last stable offset and get the list of
  aborted transactions.
- Records that a tiered log has only in the remote tier are read there. Such a response waits for
  the store, up to remote.fetch.max.wait.ms; if the read takes longer, it is empty without an error.
- Records that are in no cache are read from the disk by a worker; the answer waits for that, and
  the event loop serves others. What else turns out to be on disk alone comes with the next answer.
- Records from files are sent as views of mapped memory where the connection gives them to the
  kernel as they are (`ottla.log.mapped`).
- The response waits until min_bytes are available, there is an error, or max_wait_ms is over. While
  it waits it checks only partitions that have changed.
- An answer holds no more than there is memory for answers, and no more than one turn of the event
  loop can read (`answer_memory`), but one batch. More than `MAX_MIN_BYTES` is not waited for.
- A client with a quota gets no more than it leaves. If that is too little, the answer is empty, and
  the client waits (`broker.access.throttling`).
- From v16 on the answer for a partition that another node leads, or leads since a newer epoch than
  the client knows, names the leader (`ottla.broker.handlers.leaders`).
- Topics are named up to v12 and identified by id from v13. Sessions: see `fetch_sessions`.
- Needs read on each topic, those of the session included, on every request; one that calls itself a
  replica needs cluster action instead. A session belongs to the principal that opened it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.access.everything import EVERYTHING
from ottla.broker.errors import ApiError
from ottla.broker.handlers.leaders import NOT_LED, addresses, current_leader
from ottla.broker.hosting.hosted import NotOpen
from ottla.broker.hosting.waiting import woken
from ottla.broker.serving.answer_memory import MAX_READ_BYTES
from ottla.broker.serving.context import refusal
from ottla.broker.serving.fetch_sessions import NO_SESSION, Session
from ottla.log.errors import LogError, NotAtHand, OffsetMovedToTieredStorage
from ottla.log.mapped import MIN_VIEW_BYTES
from ottla.metadata.security.acls import Operation, Resource
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from ottla.broker.cluster import Cluster
    from ottla.broker.hosting.hosted import HostedPartition
    from ottla.broker.hosting.partitions import Partitions
    from ottla.broker.running.services import Lazy
    from ottla.broker.running.settings import Settings
    from ottla.broker.serving.answer_memory import AnswerMemory
    from ottla.broker.serving.context import RequestContext
    from ottla.broker.serving.fetch_sessions import FetchPlan, FetchSessions, Key, Wanted
    from ottla.broker.tiering.reads import RemoteRead
    from ottla.broker.tiering.tiering import Tiering
    from ottla.broker.workers import Workers
    from ottla.clock import Clock
    from ottla.log.checkpoints import TopicPartition
    from ottla.log.index import AbortedTransaction as LogAborted
    from ottla.log.reading import ReadResult

READ, TOPIC = Operation.READ, Resource.TOPIC
FIRST_VERSION_WITH_IDS = 13
FIRST_VERSION_WITH_LEADERS = 16
READ_COMMITTED = 1
# With more, a response that is full except for a batch that does not fit would wait for nothing.
MAX_MIN_BYTES: Final = MAX_READ_BYTES // 2
# Of a log that is read from the disk, brought into the page cache with each read: four answers of a
# client with its defaults.
READ_AHEAD_BYTES: Final = 4 * 1024 * 1024
NO_DISK: Final[Mapping[Key, Disk | LogError]] = MappingProxyType({})


class Logs(NamedTuple):
    """Where records are read from, how many bytes an answer may hold, and for whom it is."""

    cluster: Cluster
    partitions: Partitions
    tiering: Lazy[Tiering]
    answers: AnswerMemory
    workers: Workers
    max_bytes: int
    context: RequestContext
    views: bool  # files are mapped for the kernel, see `ottla.log.mapped`


class Cold(NamedTuple):
    """Records that have to be read from the disk."""

    key: Key
    partition: HostedPartition
    offset: int
    max_bytes: int
    at_least_one: bool
    committed: bool


class Disk(NamedTuple):
    """What a worker has read of one log."""

    partition: HostedPartition
    read: ReadResult
    aborted: list[LogAborted]


class Found(NamedTuple):
    """Batches found in one log; with a remote read, `size` is reserved for it."""

    data: PartitionData
    size: int
    partition: HostedPartition | None = None
    caught_up: bool = False  # there is nothing more for this reader
    read: RemoteRead | None = None


class Answer(NamedTuple):
    """Batches found in all logs."""

    data: dict[Key, PartitionData]
    size: int
    complete: bool  # an error that should not wait
    behind: list[Key]  # of those looked at, the ones with more to read or an error
    remote: list[tuple[Wanted, RemoteRead]]
    closed: list[TopicPartition]  # partitions whose logs have to be opened first
    cold: list[Cold]


def fetch(
    context: RequestContext,
    request: FetchRequest,
    cluster: Cluster,
    partitions: Partitions,
    tiering: Lazy[Tiering],
    fetch_sessions: FetchSessions,
    settings: Settings,
    clock: Clock,
    answers: AnswerMemory,
    workers: Workers,
) -> FetchResponse | Awaitable[FetchResponse]:
    room = None if context.quota is None else context.fetch_room(clock.monotonic())
    if room == 0 and request.session_epoch <= 0:
        return FetchResponse()  # KIP-219: a whole fetch that is throttled opens no session
    by_id = context.version >= FIRST_VERSION_WITH_IDS
    view = (cluster.image.version, request.isolation_level)
    try:
        plan = fetch_sessions.begin(
            request,
            by_id=by_id,
            view=view,
            now_ms=clock.monotonic_ms(),
            owner=context.peer.principal,
        )
    except ApiError as error:
        return FetchResponse(error_code=error.code)
    max_bytes = min(request.max_bytes, settings.fetch_max_bytes)
    if room is not None:
        if room == 0:
            return FetchResponse(session_id=request.session_id)
        max_bytes = min(max_bytes, room)
        request = request._replace(min_bytes=min(request.min_bytes, room))
    views = settings.fetch_mapped and context.peer.takes_views
    logs = Logs(cluster, partitions, tiering, answers, workers, max_bytes, context, views)
    answer = _look(logs, request, plan, _first(plan), {})
    opening = partitions.opening(answer.closed) if answer.closed else None
    if opening is not None or answer.cold:
        return _when_ready(logs, request, plan, answer, opening)
    return _answer(logs, request, plan, answer)


async def _when_ready(
    logs: Logs,
    request: FetchRequest,
    plan: FetchPlan,
    first: Answer,
    opening: Awaitable[None] | None,
) -> FetchResponse:
    if opening is not None:
        await opening
        await logs.answers.turn()
        first = _look(logs, request, plan, _first(plan), _known(plan, first))
    looked = first
    if first.cold:
        looked = await _from_disk(logs, request, plan, _first(plan), first)
    answer = _answer(logs, request, plan, looked)
    if not isinstance(answer, FetchResponse):
        return await answer
    logs.answers.promise(looked.size)
    return answer


async def _from_disk(
    logs: Logs, request: FetchRequest, plan: FetchPlan, wanted: Sequence[Wanted], first: Answer
) -> Answer:
    """Let workers read what is on disk alone, and look again with that."""
    async with logs.workers.reading:
        found = await asyncio.gather(
            *(logs.workers.read(partial(_read_cold, one)) for one in first.cold)
        )
        await logs.answers.turn()
        disk = {cold.key: one for cold, one in zip(first.cold, found, strict=True)}
        return _look(logs, request, plan, wanted, _known(plan, first), disk)


def _read_cold(cold: Cold) -> Disk | LogError:
    """In a worker."""
    log = cold.partition.log
    try:
        found = log.read_files(
            cold.offset,
            cold.max_bytes,
            upper_bound_offset=log.last_stable_offset if cold.committed else log.high_watermark,
            min_one_message=cold.at_least_one,
            ahead=READ_AHEAD_BYTES,
        )
        aborted = log.aborted_in(cold.offset, found.chunks) if cold.committed else []
    except LogError as error:
        return error
    return Disk(cold.partition, found, aborted)


def _known(plan: FetchPlan, answer: Answer) -> dict[Key, PartitionData]:
    """The state for the next look; a full answer also removes partitions without news."""
    return {} if plan.incremental else answer.data


def _first(plan: FetchPlan) -> Sequence[Wanted]:
    """The partitions that a request reads before it waits."""
    return plan.wanted if plan.session is None else plan.session.begin_look()


def _answer(
    logs: Logs, request: FetchRequest, plan: FetchPlan, answer: Answer
) -> FetchResponse | Awaitable[FetchResponse]:
    if answer.remote:
        return _wait_for_store(logs, plan, answer)
    if (
        answer.complete
        or answer.size >= min(request.min_bytes, MAX_MIN_BYTES)
        or request.max_wait_ms <= 0
        or plan.is_empty
    ):
        return _response(logs, plan, answer)
    if plan.session is not None:
        return _wait(logs, request, plan, plan.session, answer)
    # From here on it needs to know which partitions have changed, as a session does.
    session = Session(NO_SESSION, plan.wanted, by_id=isinstance(plan.wanted[0].topic, bytes))
    plan = plan._replace(session=session)
    session.due = dict.fromkeys(answer.behind)
    for want in plan.wanted:
        _watch(logs, session, want)
    return _wait_once(logs, request, plan, session, answer)


async def _wait_once(
    logs: Logs, request: FetchRequest, plan: FetchPlan, session: Session, answer: Answer
) -> FetchResponse:
    try:
        return await _wait(logs, request, plan, session, answer)
    finally:
        session.close()


async def _wait(
    logs: Logs, request: FetchRequest, plan: FetchPlan, session: Session, answer: Answer
) -> FetchResponse:
    """Read partitions with news again until there is enough or time is over."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + request.max_wait_ms / 1000
    while True:
        # Others are served between the look that came before and the first line here.
        if not session.fresh:
            await woken((session.waiters,), deadline)
        await logs.answers.turn()
        wanted = session.begin_look()
        answer = _look(logs, request, plan, wanted, _known(plan, answer))
        if answer.cold:
            answer = await _from_disk(logs, request, plan, wanted, answer)
        if answer.remote:
            return await _wait_for_store(logs, plan, answer)
        if (
            answer.complete
            or answer.size >= min(request.min_bytes, MAX_MIN_BYTES)
            or loop.time() >= deadline
        ):
            logs.answers.promise(answer.size)
            return _response(logs, plan, answer)


async def _wait_for_store(logs: Logs, plan: FetchPlan, answer: Answer) -> FetchResponse:
    """Add what remote reads bring in time."""
    await logs.tiering().reads.wait([read for _, read in answer.remote])
    for want, read in answer.remote:
        if read.error is not None:
            answer.data[want.key] = _refused(logs, want, ApiError(read.error))
        elif read.records is not None:
            answer.data[want.key] = answer.data[want.key]._replace(
                records=[read.records.records],
                aborted_transactions=[
                    AbortedTransaction(entry.producer_id, entry.first_offset)
                    for entry in read.records.aborted
                ]
                if read.key.committed
                else None,
            )
    return _response(logs, plan, answer)


def _look(
    logs: Logs,
    request: FetchRequest,
    plan: FetchPlan,
    wanted: Sequence[Wanted],
    data: dict[Key, PartitionData],
    disk: Mapping[Key, Disk | LogError] = NO_DISK,
) -> Answer:
    """Read `wanted`, and put the batches into `data`.

    Partitions that are not checked have nothing to read, so sizes count from zero. `disk` is what
    workers have read.
    """
    left = min(logs.max_bytes, logs.answers.room)
    size = used = 0
    complete = False
    behind: list[Key] = []
    remote = []
    closed: list[TopicPartition] = []
    cold: list[Cold] = []
    session = plan.session
    for want in wanted:
        try:
            room = min(left, want.max_bytes)
            found = _look_at(logs, request, want, room, disk.get(want.key), first=used == 0)
        except NotAtHand:
            partition = _find(logs, want)
            committed = request.isolation_level == READ_COMMITTED
            at = want.fetch_offset
            cold.append(Cold(want.key, partition, at, room, used == 0, committed))
            found = Found(_empty(partition, want, committed=committed), room, partition)
        except (ApiError, LogError) as error:
            found = Found(_refused(logs, want, error), 0)
            complete = True
            if isinstance(error, NotOpen):
                closed.append(error.name)
        data[want.key] = found.data
        used += found.size
        left = max(0, left - found.size)
        if found.read is None:
            size += found.size
        else:
            remote.append((want, found.read))
        if not found.caught_up:
            behind.append(want.key)
        if session is not None:
            if found.partition is not None:
                session.watch(want.key, found.partition)
            session.looked(
                want.key, found.data, caught_up=found.caught_up, tells_all=not plan.incremental
            )
    return Answer(data, size, complete, behind, remote, closed, cold)


def _look_at(
    logs: Logs,
    request: FetchRequest,
    want: Wanted,
    max_bytes: int,
    disk: Disk | LogError | None,
    *,
    first: bool,
) -> Found:
    if logs.context.peer.access is not EVERYTHING:
        _check_right(logs, request, want)
    partition = _find(logs, want)
    partition.check_epoch(want.leader_epoch)
    committed = request.isolation_level == READ_COMMITTED
    try:
        if disk is None or (isinstance(disk, Disk) and disk.partition is not partition):
            return _read(logs, partition, want, max_bytes, committed=committed, first=first)
        return _take(logs.workers, partition, want, disk, committed=committed)
    except OffsetMovedToTieredStorage:
        if _is_follower(request):
            raise
    read = None
    if max_bytes > 0 or first:
        reads = logs.tiering().reads
        read = reads.begin(
            partition, want.fetch_offset, max_bytes, at_least_one=first, committed=committed
        )
    size = 0 if read is None else max_bytes
    return Found(_empty(partition, want, committed=committed), size, partition, read=read)


def _is_follower(request: FetchRequest) -> bool:
    return max(request.replica_id, request.replica_state.replica_id) >= 0


def _empty(partition: HostedPartition, want: Wanted, *, committed: bool) -> PartitionData:
    log = partition.log
    return PartitionData(
        want.partition,
        ErrorCode.NONE,
        log.high_watermark,
        log.last_stable_offset,
        log.log_start_offset,
        aborted_transactions=[] if committed else None,
        records=b"",
    )


def _read(
    logs: Logs,
    partition: HostedPartition,
    want: Wanted,
    max_bytes: int,
    *,
    committed: bool,
    first: bool,
) -> Found:
    log = partition.log
    offset = want.fetch_offset
    may_have_aborted = committed and log.may_have_aborted(offset)
    views = logs.views and not may_have_aborted  # the list of those is made by looking at batches
    chunks, size = log.read(
        offset,
        max_bytes,
        upper_bound_offset=log.last_stable_offset if committed else log.high_watermark,
        min_one_message=first,
        wait=False,
        views=views,
    )
    aborted = log.aborted_in(offset, chunks, wait=False) if may_have_aborted else ()
    if not views:
        logs.workers.has_read(size)
    elif size >= MIN_VIEW_BYTES:
        logs.context.peer.lent.add(log)
    return _found(partition, want, chunks, size, aborted, committed=committed)


def _take(
    workers: Workers,
    partition: HostedPartition,
    want: Wanted,
    disk: Disk | LogError,
    *,
    committed: bool,
) -> Found:
    """What a worker has read, if the log still has it."""
    if isinstance(disk, LogError):
        raise disk
    partition.log.require_readable(want.fetch_offset, partition.log.high_watermark)
    chunks, size = disk.read
    workers.has_read(size)
    return _found(partition, want, chunks, size, disk.aborted, committed=committed)


def _found(
    partition: HostedPartition,
    want: Wanted,
    chunks: Sequence[bytes | memoryview],
    size: int,
    aborted: Sequence[LogAborted],
    *,
    committed: bool,
) -> Found:
    log = partition.log
    high, stable = log.high_watermark, log.last_stable_offset
    data = PartitionData(
        want.partition,
        ErrorCode.NONE,
        high,
        stable,
        log.log_start_offset,
        aborted_transactions=[
            AbortedTransaction(entry.producer_id, entry.first_offset) for entry in aborted
        ]
        if committed
        else None,
        records=chunks,
    )
    return Found(data, size, partition, want.fetch_offset >= (stable if committed else high))


def _check_right(logs: Logs, request: FetchRequest, want: Wanted) -> None:
    """By id an unknown topic is unknown; by name it may not be read, whether it exists or not."""
    name = want.topic
    if isinstance(name, bytes):
        name = logs.partitions.name_of(name)
    if not _is_follower(request):
        logs.context.require(READ, TOPIC, name)
    elif not logs.context.may_cluster(Operation.CLUSTER_ACTION):
        raise refusal(READ, TOPIC, name)


def _find(logs: Logs, want: Wanted) -> HostedPartition:
    if isinstance(want.topic, bytes):
        return logs.partitions.find_by_id(want.topic, want.partition)
    return logs.partitions.find(want.topic, want.partition)


def _watch(logs: Logs, session: Session, want: Wanted) -> None:
    with suppress(ApiError, LogError):
        session.watch(want.key, _find(logs, want))


def _refused(logs: Logs, want: Wanted, error: ApiError | LogError) -> PartitionData:
    log_start = -1
    if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
        log_start = _find(logs, want).log.log_start_offset
    data = PartitionData(
        want.partition,
        error.code,
        -1,
        -1,
        log_start,
        aborted_transactions=None,
        records=b"",
    )
    if error.code in NOT_LED and logs.context.version >= FIRST_VERSION_WITH_LEADERS:
        leader = current_leader(logs.cluster, want.topic, want.partition)
        data = data._replace(current_leader=LeaderIdAndEpoch(*leader))
    return data


def _response(logs: Logs, plan: FetchPlan, answer: Answer) -> FetchResponse:
    session = plan.session
    topics: dict[str | bytes, list[PartitionData]] = {}
    for key, data in answer.data.items():
        if session is not None and not session.changed(key, data) and plan.incremental:
            continue
        topics.setdefault(key[0], []).append(data)
    return FetchResponse(
        session_id=plan.session_id,
        responses=[
            FetchableTopicResponse(topic_id=topic, partitions=partitions)
            if isinstance(topic, bytes)
            else FetchableTopicResponse(topic, partitions=partitions)
            for topic, partitions in topics.items()
        ],
        node_endpoints=_endpoints(logs, answer) if answer.complete else (),
    )


def _endpoints(logs: Logs, answer: Answer) -> list[NodeEndpoint]:
    """Of the nodes to which an answer with errors sends the client."""
    leaders = {data.current_leader.leader_id for data in answer.data.values()}
    listener = logs.context.peer.listener
    return [NodeEndpoint(*one) for one in addresses(logs.cluster, listener, leaders)]
