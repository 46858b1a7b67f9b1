"""The brokers that a share consumer fetches from: one session and one request at a time for each.

- Requests run in tasks of their own. A caller only waits for news, so that cancelling it loses
  neither records nor acknowledgements; later records wait in `arrived` for the next poll.
- Fetches start when a poll asks for them, never ahead: delivered records are locked and counted.
- Records of a topic that is not subscribed to any more are released at once.
- After a failure a broker is not asked for a while (exponential back-off).
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ottla.client.cluster.retry import RETRY, forgets
from ottla.client.errors import ClientError, ConnectionLost, KafkaError, UnsupportedApi, kafka_error
from ottla.client.share.decode import Arrival, Arrivals
from ottla.client.share.delivery import Delivery, ack_batches, has_renewals
from ottla.client.share.session import SESSION_ERRORS, ShareSession, ack_codes, ack_error
from ottla.client.share.types import Kind
from ottla.randomness import RANDOM
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping

    from ottla.client.cluster.cluster import Client
    from ottla.client.cluster.view import TopicPartition
    from ottla.client.share.acks import Ledger
    from ottla.client.share.delivery import Key, Sent
    from ottla.client.share.session import Limits
    from ottla.wire.schema.share_acknowledge import ShareAcknowledgeResponse
    from ottla.wire.schema.share_fetch import PartitionData, ShareFetchResponse

    Routes = Mapping[int, Mapping[Key, TopicPartition]]

OLDEST_WITH_MODES: Final = 2  # of ShareFetch and ShareAcknowledge: strict limits and renewals

# Parts of a lock's duration: how long a fetch may wait while locks are renewed, and how long before
# its end a lock is renewed, in time for a second attempt.
RENEWAL_SLACK: Final = 0.25
RENEWED_EARLY: Final = 0.6

# The partition is led elsewhere, or not known here yet.
MOVED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)


@dataclass(slots=True)
class _Leader:
    node: int
    session: ShareSession
    task: asyncio.Task[None] | None = None
    carries_acks: bool = False
    is_fetching: bool = False
    failures: int = 0
    not_before: float = -math.inf

    @property
    def is_busy(self) -> bool:
        return self.task is not None and not self.task.done()


class Leaders:
    """Fills `arrived`, and settles acknowledgements in the ledger."""

    def __init__(
        self,
        client: Client,
        group: str,
        member_id: str,
        ledger: Ledger,
        *,
        news: Callable[[], None],
        look_again: Callable[[], None],
    ) -> None:
        self.arrived = Arrivals()
        self.failure: ClientError | None = None
        self.topics: frozenset[str] = frozenset()
        """The subscribed topics."""
        self.renews = False
        """Whether locks are to be renewed, by `renew` and before fetches."""
        self.lock_timeout = 0.0
        """Duration of locks in seconds, as last reported by a broker."""
        self._client = client
        self._group = group
        self._member_id = member_id
        self._ledger = ledger
        self._news = news
        self._look_again = look_again
        self._leaders: dict[int, _Leader] = {}
        self._deliveries = 0
        self._now = asyncio.get_running_loop().time

    def fetch(self, routes: Routes, max_wait: float, limits: Limits) -> None:
        """Ask all leaders that are not being asked; with a strict limit one at a time."""
        for node in routes:
            if node not in self._leaders:
                self._leaders[node] = _Leader(node, ShareSession(self._group, self._member_id))
        pending = self._ledger.nodes_with_pending()
        idle = [
            leader
            for leader in self._leaders.values()
            if not leader.is_busy and leader.not_before <= self._now()
        ]
        if self.renews and self.lock_timeout:
            max_wait = min(max_wait, self.lock_timeout * RENEWAL_SLACK)
        may_fetch = not limits.strict or not any(
            leader.is_busy and leader.is_fetching for leader in self._leaders.values()
        )
        for leader in idle:
            wanted = routes.get(leader.node, {})
            if renewals := self._due_renewals(leader):
                self._start(leader, self._renew(leader, renewals))
            elif may_fetch and (wanted or leader.session.partitions):
                leader.is_fetching = True
                self._start(leader, self._fetch(leader, dict(wanted), max_wait, limits))
                may_fetch = not limits.strict
                # The others have their turns before it.
                self._leaders[leader.node] = self._leaders.pop(leader.node)
            elif leader.node in pending:
                self._start(leader, self._acknowledge(leader))

    def subscribe(self, topics: Iterable[str]) -> None:
        """Release records of other topics, those that have arrived and those that will."""
        self.topics = frozenset(topics)
        for arrival in self.arrived.take_others(self.topics):
            self._give_back(arrival.delivery)
        self.send_pending()

    def send_pending(self) -> set[int]:
        """Send acknowledgements to the leaders that are not being asked; where there are any."""
        pending = self._ledger.nodes_with_pending()
        for node in pending:
            if not self._leaders[node].is_busy:
                self._start(self._leaders[node], self._acknowledge(self._leaders[node]))
        return pending

    def renew(self) -> None:
        """Renew the locks that would end before long, with the leaders that are not being asked.

        The others are not asked for longer than a part of a lock, and are told before the next
        fetch.
        """
        for leader in self._leaders.values():
            if not leader.is_busy and (renewals := self._due_renewals(leader)):
                self._start(leader, self._renew(leader, renewals))

    def wake_at(self) -> float:
        """When a leader that was left alone can be asked again."""
        now = self._now()
        later = [one.not_before for one in self._leaders.values() if one.not_before > now]
        return min(later, default=math.inf)

    def check(self) -> None:
        """Raise a pending error for the caller."""
        for leader in self._leaders.values():
            if leader.task is not None and leader.task.done():
                # It fails only because of a bug of ours or of a callback: raise that once.
                done, leader.task = leader.task, None
                done.result()
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

    async def flush(self) -> None:
        """Return when everything that was acknowledged has been answered."""
        while True:
            pending = self.send_pending()
            tasks = [
                leader.task
                for leader in self._leaders.values()
                if leader.task is not None
                and leader.is_busy
                and (leader.carries_acks or leader.node in pending)
            ]
            if not tasks:
                return
            # Waiting does not own the tasks: cancelling it leaves them running.
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)

    async def close(self) -> None:
        """Send the last acknowledgements with the end of each session, which releases the rest."""
        busy = [one.task for one in self._leaders.values() if one.task is not None and one.is_busy]
        if busy:
            await asyncio.wait(busy)
        closing = [leader for leader in self._leaders.values() if leader.session.is_open]
        for leader in closing:
            self._start(leader, self._acknowledge(leader, closes=True))
        tasks = [leader.task for leader in closing if leader.task is not None]
        if tasks:
            await asyncio.wait(tasks)

    async def abort(self) -> None:
        """Stop all running tasks; closing the connections releases all records."""
        tasks = [leader.task for leader in self._leaders.values() if leader.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for node in self._leaders:
            self._ledger.lose(node)

    def _start(self, leader: _Leader, work: Coroutine[None, None, None]) -> None:
        leader.task = asyncio.create_task(work, name=f"ottla share leader {leader.node}")

    async def _send(self, leader: _Leader, request: object, *, needs_modes: bool) -> Any:
        """The answer; an end of the consumer is an end of the connection, for what was sent."""
        try:
            return await self._client.send(
                request, to=leader.node, min_version=OLDEST_WITH_MODES if needs_modes else 0
            )
        except asyncio.CancelledError:
            raise ConnectionLost("the consumer was closed before the answer came") from None

    async def _fetch(
        self,
        leader: _Leader,
        wanted: dict[Key, TopicPartition],
        max_wait: float,
        limits: Limits,
    ) -> None:
        sent = self._ledger.take(leader.node)
        if has_renewals(sent):
            await self._send_acks(leader, sent)
            return
        leader.carries_acks = bool(sent)
        max_wait_ms = int(max_wait * 1000)
        request = leader.session.fetch(wanted, ack_batches(sent), limits, max_wait_ms)
        try:
            answer: ShareFetchResponse = await self._send(
                leader, request, needs_modes=limits.strict
            )
            self._check(answer, "fetch")
        except ClientError as error:
            self._failed(leader, sent, error)
        else:
            self._answered(leader, sent, answer)
            moved = False
            for topic in answer.responses:
                for data in topic.partitions:
                    moved |= self._take(
                        leader, wanted, (topic.topic_id, data.partition_index), data
                    )
            if moved:
                leader.not_before = self._now() + RETRY.delay(1, RANDOM.random())
                self._look_again()
            if not self.topics.issuperset(name.topic for name in wanted.values()):
                await self._send_acks(leader, self._ledger.take(leader.node))
        self._news()

    def _take(
        self,
        leader: _Leader,
        wanted: dict[Key, TopicPartition],
        key: Key,
        data: PartitionData,
    ) -> bool:
        """One partition of an answer; whether it says that the partition is elsewhere."""
        if data.error_code in MOVED:
            return True
        if data.error_code and key in wanted:
            what = f"fetch {wanted[key]}"
            self.failure = kafka_error(data.error_code, what, data.error_message)
            leader.not_before = self._now() + RETRY.delay(1, RANDOM.random())
        if data.acquired_records and key in wanted:
            self._deliveries += 1
            delivery = Delivery(
                self._deliveries,
                leader.node,
                key,
                wanted[key],
                data.acquired_records,
                self._now() + (self.lock_timeout or math.inf),
            )
            records = data.records or b""
            # The protocol's reader returns one contiguous piece of what was read from the socket.
            assert isinstance(records, bytes | bytearray | memoryview)
            if wanted[key].topic in self.topics:
                self.arrived.add(Arrival(delivery, memoryview(records)))
            else:
                self._give_back(delivery)
        return False

    def _give_back(self, delivery: Delivery) -> None:
        delivery.mark(delivery.firsts[0], delivery.spans[-1].end, Kind.RELEASE)
        self._ledger.add(delivery)

    async def _acknowledge(self, leader: _Leader, *, closes: bool = False) -> None:
        await self._send_acks(leader, self._ledger.take(leader.node), closes=closes)

    async def _send_acks(self, leader: _Leader, sent: list[Sent], *, closes: bool = False) -> None:
        leader.carries_acks = True
        leader.is_fetching = False
        renews = has_renewals(sent)
        request = leader.session.acknowledge(ack_batches(sent), renews=renews, closes=closes)
        try:
            answer: ShareAcknowledgeResponse = await self._send(leader, request, needs_modes=renews)
            self._check(answer, "acknowledge")
        except UnsupportedApi as refusal:
            # Nothing was sent, so the session is as it was.
            unsent = refusal
            self._ledger.settle(sent, lambda _: unsent)
        except ClientError as error:
            self._failed(leader, sent, error)
        else:
            self._answered(leader, sent, answer)
            if closes:
                leader.session.ended()
        leader.carries_acks = False
        self._news()

    def _due_renewals(self, leader: _Leader) -> list[Sent]:
        if not self.renews or not leader.session.is_open:
            return []
        return self._ledger.renewals(leader.node, self._now() + self.lock_timeout * RENEWED_EARLY)

    async def _renew(self, leader: _Leader, renewals: list[Sent]) -> None:
        leader.carries_acks = True
        leader.is_fetching = False
        sent = self._ledger.take(leader.node)
        began = self._now()
        request = leader.session.acknowledge(ack_batches([*sent, *renewals]), renews=True)
        try:
            answer: ShareAcknowledgeResponse = await self._send(leader, request, needs_modes=True)
            self._check(answer, "renew locks")
        except UnsupportedApi as refusal:
            self.renews = False
            self.failure = unsent = refusal
            self._ledger.settle(sent, lambda _: unsent)
        except ClientError as error:
            self._failed(leader, sent, error)
        else:
            self._answered(leader, sent, answer)
            codes = ack_codes(answer)
            for delivery in {one.delivery for one in renewals}:
                delivery.expires = began + self.lock_timeout
                delivery.is_renewable = ack_error(codes, delivery.key) is None
        leader.carries_acks = False
        self._news()

    def _check(self, answer: ShareFetchResponse | ShareAcknowledgeResponse, verb: str) -> None:
        if answer.error_code:
            what = f"{verb} in share group {self._group!r}"
            raise kafka_error(answer.error_code, what, answer.error_message)
        # Answers of older versions do not tell.
        self.lock_timeout = answer.acquisition_lock_timeout_ms / 1000 or self.lock_timeout

    def _answered(
        self,
        leader: _Leader,
        sent: list[Sent],
        answer: ShareFetchResponse | ShareAcknowledgeResponse,
    ) -> None:
        leader.session.answered()
        leader.failures = 0
        if answer.throttle_time_ms > 0:
            # Over its quota. A fetch that was held until its request times out would end the
            # session, and with it all locks.
            leader.not_before = self._now() + answer.throttle_time_ms / 1000
        codes = ack_codes(answer)
        self._ledger.settle(sent, lambda key: ack_error(codes, key))
        if not MOVED.isdisjoint(codes.values()):
            self._look_again()

    def _failed(self, leader: _Leader, sent: list[Sent], error: ClientError) -> None:
        leader.session.ended()
        leader.failures += 1
        self._ledger.settle(sent, lambda _: error)
        self._ledger.lose(leader.node)
        self.arrived.lose(leader.node)
        if isinstance(error, KafkaError) and error.code in SESSION_ERRORS and leader.failures == 1:
            return
        leader.not_before = self._now() + RETRY.delay(leader.failures, RANDOM.random())
        stale = forgets(error, leader.failures, repeatable=True)
        if stale is not None:
            self._client.forget(stale)
            self._look_again()
        elif not (isinstance(error, KafkaError) and error.code in SESSION_ERRORS):
            self.failure = error
