"""The persister: durable share state, wherever its coordinator is (KIP-932).

The state of a share-partition lives in the partition of `__share_group_state` that its key hashes
to. If this node leads that partition the coordinator is asked directly, in the order of the calls;
otherwise the same question goes to the leader as an RPC, with others that go there. Answers that
may be different in a moment (the leader moved, is loading, or cannot be reached) are asked for
again for `PATIENCE_SECONDS` after the call: after a short pause, and at once when a node has come
or gone, or the leaders of the states have changed. Any other error is the answer. An error is
never mistaken for an empty state.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.broker.coordinators.service import CoordinatorService
from ottla.broker.errors import ApiError
from ottla.broker.running.peers import PeerUnreachable
from ottla.broker.shares.rpcs import RemoteCoordinators
from ottla.coordination.share_state import messages as m
from ottla.coordination.share_state.coordinator import ShareStateConfig, ShareStateMachine
from ottla.coordination.share_state.index import SnapshotIndex
from ottla.metadata.names import SHARE_GROUP_STATE_TOPIC
from ottla.randomness import RANDOM
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

    from ottla.broker.coordinators.log import Hosting
    from ottla.broker.running.peers import Peers
    from ottla.coordination.machine import Effect
    from ottla.coordination.share_state.records import ShareKey, StateRecord
    from ottla.metadata.image import MetadataImage

    Answer = Callable[[], Awaitable[m.StateResponse]]
    """Call it to wait for the answer. The write goes on by itself if nobody does."""

ReplyT = TypeVar("ReplyT", m.StateResponse, m.ReadStateResponse, m.StateSummaryResponse)

PATIENCE_SECONDS: Final = 15.0
"""Members wait for the answers, with all that they fetch and acknowledge at this node."""
FIRST_PAUSE_SECONDS: Final = 0.05
LONGEST_PAUSE_SECONDS: Final = 0.5  # a node is ready 0.2 s after its start
JITTER: Final = 0.2
TRY_AGAIN: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
TRY_AGAIN_ELSEWHERE: Final = TRY_AGAIN | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


class Moves:
    """Wakes those that pause when a coordinator may have moved."""

    def __init__(self) -> None:
        self.count = 0
        self._waiting: set[asyncio.Future[None]] = set()

    def note(self) -> None:
        self.count += 1
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    async def after(self, count: int, seconds: float) -> None:
        """Return when there have been more than `count`, or after so many seconds."""
        if self.count != count:
            return
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        try:
            await asyncio.wait([waiting], timeout=seconds)
        finally:
            self._waiting.discard(waiting)


class Persister:
    """Asks the share coordinator of a key, here or elsewhere."""

    def __init__(self, hosting: Hosting, peers: Peers) -> None:
        self._cluster = hosting.cluster
        self._data = hosting.data
        self._partitions = hosting.partitions
        self._elsewhere = RemoteCoordinators(peers)
        self._snapshots: dict[int, SnapshotIndex] = {}
        self._writing: dict[ShareKey, asyncio.Future[m.StateResponse]] = {}
        self._moves = Moves()
        self.coordinators: CoordinatorService[m.StateRequest, StateRecord, m.StateReply] = (
            CoordinatorService(
                hosting, SHARE_GROUP_STATE_TOPIC, self._machine, _no_effects, self._note
            )
        )

    def start(self) -> None:
        """Load partitions that were used before."""
        self.coordinators.start()

    async def stop(self) -> None:
        writes = tuple(self._writing.values())
        for writing in writes:
            writing.cancel()
        await asyncio.gather(*writes, return_exceptions=True)
        await self.coordinators.close()

    def image_changed(self, before: MetadataImage, after: MetadataImage) -> None:
        if before.topics_by_name is not after.topics_by_name:
            self.coordinators.leaders_changed(after)
        topic = SHARE_GROUP_STATE_TOPIC
        if before.brokers != after.brokers or before.topic(topic) != after.topic(topic):
            self._moves.note()

    async def ensure_topic(self) -> None:
        config = self._cluster.config
        await self.coordinators.ensure_topic(
            config.get_int("share.coordinator.state.topic.num.partitions"),
            {
                "cleanup.policy": "delete",
                "retention.ms": "-1",
                "compression.type": "producer",
                "segment.bytes": str(config.get_int("share.coordinator.state.topic.segment.bytes")),
            },
        )

    def write(self, request: m.WriteState) -> Answer:
        """Begin a write; writes of one share-partition keep the order of the calls.

        An older one that came later would move the start offset back. So what cannot be decided
        here and now goes out when the one before it has ended, its further attempts included.
        """
        key = request.key
        before = self._writing.get(key)
        if before is None:
            with suppress(ApiError):
                return partial(self._expected, self.coordinators.submit_now(str(key), request))
        # From now on: writes that wait for each other must not wait one patience each.
        until = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        writing = self._writing[key] = asyncio.ensure_future(
            self._write_after(before, request, until)
        )

        def ended(_: asyncio.Future[m.StateResponse]) -> None:
            if self._writing.get(key) is writing:
                del self._writing[key]

        writing.add_done_callback(ended)
        return lambda: writing

    async def _write_after(
        self,
        before: asyncio.Future[m.StateResponse] | None,
        request: m.WriteState,
        until: float,
    ) -> m.StateResponse:
        if before is not None:
            await asyncio.wait([before])
        return await self._ask_until(until, request, m.StateResponse)

    async def ask(self, request: m.KeyedRequest, expect: type[ReplyT]) -> ReplyT:
        """The coordinator's answer; a failure to reach it is an answer with an error too."""
        until = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        return await self._ask_until(until, request, expect)

    async def _ask_until(
        self, until: float, request: m.KeyedRequest, expect: type[ReplyT]
    ) -> ReplyT:
        """Asks once at least; no further attempt begins after `until`, by the loop's clock."""
        try:
            await self.ensure_topic()
        except ApiError as error:
            return expect(error.code, str(error))
        pause = FIRST_PAUSE_SECONDS
        while True:
            moves = self._moves.count
            answer = await self._ask_once(request, expect)
            # Another node may not know a new topic yet; this one does.
            is_local = self._leader(request.key) == self._cluster.node_id
            if answer.error not in (TRY_AGAIN if is_local else TRY_AGAIN_ELSEWHERE):
                return answer
            if asyncio.get_running_loop().time() >= until:
                return answer
            await self._moves.after(moves, pause * RANDOM.uniform(1 - JITTER, 1 + JITTER))
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _ask_once(self, request: m.KeyedRequest, expect: type[ReplyT]) -> ReplyT:
        leader = self._leader(request.key)
        try:
            if leader == self._cluster.node_id:
                return await self.coordinators.ask(str(request.key), request, expect)
            if leader < 0:
                return expect(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return await self._elsewhere.ask(leader, request, expect)
        except ApiError as error:
            return expect(error.code)
        except PeerUnreachable as error:
            return expect(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))

    async def _expected(self, future: asyncio.Future[m.StateReply]) -> m.StateResponse:
        try:
            answer = await self.coordinators.answered(future)
        except ApiError as error:
            return m.StateResponse(error.code)
        assert isinstance(answer, m.StateResponse)
        return answer

    async def drop_topics(self, topic_ids: frozenset[UUID]) -> None:
        """The coordinators here forget deleted topics."""
        await self.coordinators.ask_all(m.DropTopics(topic_ids), m.StateResponse)

    async def leader_of(self, key: ShareKey) -> int:
        """The node that coordinates this key; creates the internal topic if needed."""
        await self.ensure_topic()
        return self._leader(key)

    def _leader(self, key: ShareKey) -> int:
        topic = self._cluster.image.topics_by_name[SHARE_GROUP_STATE_TOPIC]
        return topic.partitions[key.state_partition(len(topic.partitions))].leader

    def _machine(self, index: int) -> ShareStateMachine:
        config = self._cluster.config
        self._snapshots[index] = SnapshotIndex()
        return ShareStateMachine(
            ShareStateConfig(
                config.get_int("share.coordinator.snapshot.update.records.per.snapshot"),
                config.get_int("share.coordinator.cold.partition.snapshot.interval.ms"),
            )
        )

    def _note(self, index: int, offset: int, key: bytes, value: bytes | None) -> None:
        self._snapshots[index].note(offset, key, value)

    async def prune(self) -> None:
        """Delete what no share-partition needs any more from the state logs."""
        moved = []
        for index in self.coordinators.loaded:
            snapshots = self._snapshots[index]
            hosted = self._partitions.find(SHARE_GROUP_STATE_TOPIC, index)
            needed = min(snapshots.needed_from, hosted.log.high_watermark)
            if needed > hosted.log.log_start_offset:
                hosted.log.delete_records_before(needed)
                moved.append(hosted)
        await self._data.checkpoints.log_starts_durable(moved)


def _no_effects(effect: Effect) -> None:
    raise TypeError(f"the share coordinator has no effects, not even {effect!r}")
