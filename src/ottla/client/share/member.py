"""The background of a share consumer: heartbeats, and where its partitions are.

- Heartbeats go over the coordinator's own connection, so that no waiting fetch delays them.
- An assignment names topics by id. Ids that metadata does not know yet, and partitions without a
  leader, are looked up again until they are known; they are not fetched before.
- A topic that does not exist may be created later. The caller gets one error, and records when
  there are some. The same holds for a cluster that cannot be reached, once per `api_timeout`.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.client.cluster.cluster import Coordinator
from ottla.client.cluster.retry import MISSING_TOPIC_ATTEMPTS, RETRY, forgets
from ottla.client.cluster.view import NO_LEADER, TopicPartition
from ottla.client.errors import (
    BrokerUnreachable,
    ClientError,
    ConnectionLost,
    KafkaError,
    RequestTimedOut,
    UnknownTopic,
    afresh,
)
from ottla.client.share.membership import Membership, Phase
from ottla.randomness import RANDOM
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from ottla.client.cluster.cluster import Client
    from ottla.client.share.delivery import Key

logger = logging.getLogger(__name__)


class Member:
    """Two tasks from `start` to `stop`; `news` is called whenever something has changed."""

    def __init__(self, client: Client, membership: Membership) -> None:
        self.membership = membership
        self.routes: dict[int, dict[Key, TopicPartition]] = {}
        """The partitions to fetch, under their leaders."""
        self.news: Callable[[], None] = lambda: None
        self._client = client
        self._coordinator = Coordinator(membership.group)
        self._changed = asyncio.Event()
        self._due = asyncio.Event()
        self._astray = asyncio.Event()
        self._astray.set()
        self._is_stale = True
        self._named_missing: set[str] = set()
        self.unheard: ClientError | None = None
        """Why no broker can be asked, as long as that is so."""
        self._now = asyncio.get_running_loop().time
        self._heard_at = self._now()
        self._tasks: list[asyncio.Task[None]] = []

    async def join(self) -> None:
        """Return as a member, if there are topics; raise the error that prevents it."""
        self._tasks = [
            asyncio.create_task(self._survive(self._beat), name="ottla share heartbeats"),
            asyncio.create_task(self._survive(self._find_leaders), name="ottla share routes"),
        ]
        while self.membership.phase is Phase.JOINING:
            self._changed.clear()
            await self._changed.wait()
            self.check()

    def subscribe(self, topics: Sequence[str]) -> None:
        """Have other topics from now on."""
        self.membership.subscribe(topics)
        self._named_missing.clear()
        self._due.set()
        self.look_again()

    async def leave(self) -> None:
        """Stop, and tell the coordinator if there is anything to tell."""
        await self.stop()
        if self.membership.phase is Phase.STEADY:
            self.membership.subscribe(())
        if self.membership.phase is Phase.LEAVING:
            await self._client.send(self.membership.heartbeat(), to=self._coordinator)

    async def stop(self) -> None:
        """End both tasks."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def check(self) -> None:
        """Raise a pending error for the caller."""
        if self.membership.failure is not None:
            raise afresh(self.membership.failure)
        complaint, self.membership.complaint = self.membership.complaint, None
        if complaint is not None:
            raise complaint
        if self.unheard is not None and self._now() - self._heard_at >= self._client.api_timeout:
            self._heard_at = self._now()
            raise BrokerUnreachable(str(self.unheard)) from self.unheard

    def look_again(self) -> None:
        """A leader is not where it was thought to be."""
        self._is_stale = True
        self._astray.set()

    async def _survive(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Continue after an unexpected error."""
        failures = 0
        while True:
            try:
                return await work()
            except Exception:
                logger.exception("share group %s: continuing after an error", self.membership.group)
            failures += 1
            await asyncio.sleep(RETRY.delay(failures, RANDOM.random()))

    async def _beat(self) -> None:
        membership = self.membership
        attempts = 0
        while membership.phase is not Phase.FAILED:
            self._due.clear()
            if membership.is_silent:
                await self._due.wait()
                continue
            before = membership.assignment
            try:
                answer = await self._client.send(membership.heartbeat(), to=self._coordinator)
                delay = membership.answered(answer, RANDOM.random())
                self._heard()
                if answer.error_code:
                    self._forget(
                        KafkaError(answer.error_code, "heartbeat"), attempts := attempts + 1
                    )
                else:
                    attempts = 0
            except ClientError as error:
                delay = membership.failed(error, RANDOM.random())
                self._forget(error, attempts := attempts + 1)
            if membership.assignment != before:
                self._astray.set()
            self._changed.set()
            self.news()
            with suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._due.wait()

    def _heard(self) -> None:
        self._heard_at = self._now()
        self.unheard = None

    def _forget(self, error: ClientError, attempt: int) -> None:
        if isinstance(error, BrokerUnreachable | ConnectionLost | RequestTimedOut):
            self.unheard = error
        stale = forgets(error, attempt, repeatable=True)
        if stale is not None:
            self._client.forget(stale)

    async def _find_leaders(self) -> None:
        failures = 0
        while True:
            await self._astray.wait()
            self._astray.clear()
            missing = self._route()
            if missing or self._is_stale:
                self._is_stale = False
                try:
                    await self._client.refresh(self.membership.topics)
                except ClientError as error:
                    self._forget(error, 1)
                missing = self._route() or self._is_missing_topics(failures)
            self.news()
            failures = failures + 1 if missing else 0
            if missing:
                self.look_again()
                await asyncio.sleep(RETRY.delay(failures, RANDOM.random()))

    def _is_missing_topics(self, failures: int) -> bool:
        """Whether a topic is missing and the caller was not told yet."""
        absent = {
            name
            for name in self.membership.topics
            if self._client.view.missing.get(name) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        } - self._named_missing
        if not absent:
            return False
        if failures + 1 < MISSING_TOPIC_ATTEMPTS:
            return True
        self._named_missing |= absent
        names = ", ".join(repr(name) for name in sorted(absent))
        self.membership.complaint = UnknownTopic(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"subscribe to {names}",
            "records will come once it exists",
        )
        return False

    def _route(self) -> bool:
        """Find the leaders of all assigned partitions; whether some are missing."""
        known = self._client.view.topics
        by_id = {known[name].id: known[name] for name in self.membership.topics if name in known}
        routes: dict[int, dict[Key, TopicPartition]] = {}
        missing = False
        for topic_id, index in sorted(self.membership.assignment):
            topic = by_id.get(topic_id)
            leader = NO_LEADER if topic is None else topic.leader_of(index)
            if topic is None or leader == NO_LEADER:
                missing = True
                continue
            routes.setdefault(leader, {})[topic_id, index] = TopicPartition(topic.name, index)
        self.routes = routes
        return missing
