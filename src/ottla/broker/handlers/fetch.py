"""Fetch (1): read batches, wait for more.

- Whole batches as they lie in the log: the one that holds the asked offset comes first, and the
  first batch of an answer comes whole even when it is larger than the limits.
- An offset past the end or below the log start is error 1; between high watermark and end there is
  nothing to read yet. Readers with isolation 1 stop at the last stable offset and are told which
  transactions were aborted.
- What a tiered log has in the remote tier alone is read there. Such an answer waits for the store,
  as long as remote.fetch.max.wait.ms; a read that takes longer gives nothing yet, and no error.
- The answer waits until min_bytes are there, an error has to be told, or max_wait_ms is over.
- An answer holds no more than there is memory for answers (`answer_memory`), but one batch.
- Topics are named up to v12 and identified by id from v13. Sessions: see `fetch_sessions`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.errors import ApiError
from ottla.broker.hosting.partitions import NotOpen
from ottla.broker.hosting.waiting import woken
from ottla.log.errors import LogError, OffsetMovedToTieredStorage
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ottla.broker.hosting.partitions import HostedPartition, Partitions
    from ottla.broker.running.services import Lazy
    from ottla.broker.running.settings import Settings
    from ottla.broker.serving.answer_memory import AnswerMemory
    from ottla.broker.serving.context import RequestContext
    from ottla.broker.serving.fetch_sessions import FetchPlan, FetchSessions, Wanted
    from ottla.broker.tiering.reads import RemoteRead
    from ottla.broker.tiering.tiering import Tiering
    from ottla.clock import Clock
    from ottla.log.checkpoints import TopicPartition

FIRST_VERSION_WITH_IDS = 13
READ_COMMITTED = 1


class Logs(NamedTuple):
    """Where records are read from, and how many bytes an answer may hold."""

    partitions: Partitions
    tiering: Lazy[Tiering]
    answers: AnswerMemory
    max_bytes: int


class Found(NamedTuple):
    """What one look at a log gave; with a remote read, `size` is what is reserved for it."""

    data: PartitionData
    size: int
    read: RemoteRead | None = None


class Watched(NamedTuple):
    """A partition, and those who waited for it when it was looked at."""

    partition: HostedPartition
    waiters: set[Callable[[], None]]

    @property
    def is_over(self) -> bool:
        """Whether they have been woken since: others would wait for what comes after that."""
        return self.partition.waiters is not self.waiters


class Answer(NamedTuple):
    """What one look at the logs gave."""

    data: list[PartitionData]
    size: int
    complete: bool  # an error or a moved log start that should not wait
    remote: list[tuple[int, RemoteRead]]  # and where in `data` what they bring belongs
    closed: list[TopicPartition]  # partitions whose logs have to be opened first


def fetch(
    context: RequestContext,
    request: FetchRequest,
    partitions: Partitions,
    tiering: Lazy[Tiering],
    fetch_sessions: FetchSessions,
    settings: Settings,
    clock: Clock,
    answers: AnswerMemory,
) -> FetchResponse | Awaitable[FetchResponse]:
    by_id = context.version >= FIRST_VERSION_WITH_IDS
    try:
        plan = fetch_sessions.begin(request, by_id=by_id, now_ms=clock.monotonic_ms())
    except ApiError as error:
        return FetchResponse(error_code=error.code)
    logs = Logs(partitions, tiering, answers, min(request.max_bytes, settings.fetch_max_bytes))
    answer = _look(logs, request, plan)
    opening = partitions.opening(answer.closed) if answer.closed else None
    if opening is not None:
        return _when_open(logs, request, plan, opening)
    return _answer(logs, request, plan, answer)


async def _when_open(
    logs: Logs, request: FetchRequest, plan: FetchPlan, opening: Awaitable[None]
) -> FetchResponse:
    await opening
    answer = _answer(logs, request, plan, _look(logs, request, plan))
    return answer if isinstance(answer, FetchResponse) else await answer


def _answer(
    logs: Logs, request: FetchRequest, plan: FetchPlan, answer: Answer
) -> FetchResponse | Awaitable[FetchResponse]:
    if answer.remote:
        return _wait_for_store(logs, plan, answer)
    if (
        answer.complete
        or answer.size >= request.min_bytes
        or request.max_wait_ms <= 0
        or not plan.wanted
    ):
        return _response(plan, answer)
    return _wait(logs, request, plan, _watch(logs, plan))


def _watch(logs: Logs, plan: FetchPlan) -> list[Watched]:
    """Where to be told that one of the logs has more to show than at the look just taken."""
    found = [p for want in plan.wanted if (p := _try_find(logs, want)) is not None]
    return [Watched(partition, partition.waiters) for partition in found]


async def _wait(
    logs: Logs, request: FetchRequest, plan: FetchPlan, watched: list[Watched]
) -> FetchResponse:
    """Look again whenever one of the logs has more to show, until it is enough or too late."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + request.max_wait_ms / 1000
    while True:
        # Others are served between the look that came before and the first line here.
        if not any(one.is_over for one in watched):
            await woken((one.waiters for one in watched), deadline)
        answer = _look(logs, request, plan)
        watched = _watch(logs, plan)
        if answer.remote:
            return await _wait_for_store(logs, plan, answer)
        if answer.complete or answer.size >= request.min_bytes or loop.time() >= deadline:
            return _response(plan, answer)


async def _wait_for_store(logs: Logs, plan: FetchPlan, answer: Answer) -> FetchResponse:
    """Add what remote reads bring in time."""
    await logs.tiering().reads.wait([read for _, read in answer.remote])
    for place, read in answer.remote:
        want = plan.wanted[place]
        if read.error is not None:
            answer.data[place] = _refused(logs, want, ApiError(read.error))
        elif read.records is not None:
            answer.data[place] = answer.data[place]._replace(
                records=[read.records.records],
                aborted_transactions=[
                    AbortedTransaction(entry.producer_id, entry.first_offset)
                    for entry in read.records.aborted
                ]
                if read.key.committed
                else None,
            )
    return _response(plan, answer)


def _look(logs: Logs, request: FetchRequest, plan: FetchPlan) -> Answer:
    left = min(logs.max_bytes, logs.answers.room)
    data = []
    size = used = 0
    complete = False
    remote = []
    closed: list[TopicPartition] = []
    for place, want in enumerate(plan.wanted):
        try:
            found = _look_at(logs, request, want, min(left, want.max_bytes), first=used == 0)
        except (ApiError, LogError) as error:
            found = Found(_refused(logs, want, error), 0)
            complete = True
            if isinstance(error, NotOpen):
                closed.append(error.name)
        data.append(found.data)
        used += found.size
        left = max(0, left - found.size)
        if found.read is None:
            size += found.size
        else:
            remote.append((place, found.read))
    return Answer(data, size, complete, remote, closed)


def _look_at(
    logs: Logs, request: FetchRequest, want: Wanted, max_bytes: int, *, first: bool
) -> Found:
    partition = _find(logs, want)
    partition.check_epoch(want.leader_epoch)
    committed = request.isolation_level == READ_COMMITTED
    try:
        return _read(partition, want, max_bytes, committed=committed, first=first)
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
    return Found(_empty(partition, want, committed=committed), size, read)


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
    partition: HostedPartition, want: Wanted, max_bytes: int, *, committed: bool, first: bool
) -> Found:
    log = partition.log
    stable = log.last_stable_offset
    bound = stable if committed else log.high_watermark
    chunks, size = log.read(
        want.fetch_offset, max_bytes, upper_bound_offset=bound, min_one_message=first
    )
    aborted = None
    if committed:
        aborted = [
            AbortedTransaction(entry.producer_id, entry.first_offset)
            for entry in (log.aborted_in(want.fetch_offset, chunks) if size else ())
        ]
    data = _empty(partition, want, committed=committed)
    return Found(data._replace(aborted_transactions=aborted, records=chunks), size)


def _find(logs: Logs, want: Wanted) -> HostedPartition:
    if isinstance(want.topic, bytes):
        return logs.partitions.find_by_id(want.topic, want.partition)
    return logs.partitions.find(want.topic, want.partition)


def _try_find(logs: Logs, want: Wanted) -> HostedPartition | None:
    try:
        return _find(logs, want)
    except (ApiError, LogError):
        return None


def _refused(logs: Logs, want: Wanted, error: ApiError | LogError) -> PartitionData:
    log_start = -1
    if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
        log_start = _find(logs, want).log.log_start_offset
    return PartitionData(
        want.partition,
        error.code,
        -1,
        -1,
        log_start,
        aborted_transactions=None,
        records=b"",
    )


def _response(plan: FetchPlan, answer: Answer) -> FetchResponse:
    session = plan.session
    topics: dict[str | bytes, list[PartitionData]] = {}
    for want, data in zip(plan.wanted, answer.data, strict=True):
        if session is not None and not session.changed(want.key, data) and plan.incremental:
            continue
        topics.setdefault(want.topic, []).append(data)
    return FetchResponse(
        session_id=plan.session_id,
        responses=[
            FetchableTopicResponse(topic_id=topic, partitions=partitions)
            if isinstance(topic, bytes)
            else FetchableTopicResponse(topic, partitions=partitions)
            for topic, partitions in topics.items()
        ],
    )
