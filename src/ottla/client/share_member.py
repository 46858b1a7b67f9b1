"""The background of a share consumer: heartbeats, and where its partitions are.

- Heartbeats go over the coordinator's own connection, so that no waiting fetch delays them.
- An assignment names topics by id. Ids that metadata does not know yet, and partitions without a
  leader, are looked up again until they are known; they are not fetched before.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from ottla.client.cluster import Coordinator
from ottla.client.cluster_view import NO_LEADER, TopicPartition
from ottla.client.errors import ClientError, KafkaError
from ottla.client.retry import RETRY, forgets
from ottla.client.share_membership import Membership, Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.client.cluster import Client
    from ottla.client.share_acks import Key


class Member:
    """Two tasks from `start` to `stop`; `news` is called whenever something has changed."""

    def __init__(
        self, client: Client, membership: Membership, topics: Sequence[str], group: str
    ) -> None:
        self.membership = membership
        self.routes: dict[int, dict[Key, TopicPartition]] = {}
        """The partitions to fetch, under their leaders."""
        self.news: Callable[[], None] = lambda: None
        self._client = client
        self._topics = list(topics)
        self._coordinator = Coordinator(group)
        self._changed = asyncio.Event()
        self._astray = asyncio.Event()
        self._is_stale = False
        self._tasks: list[asyncio.Task[None]] = []

    async def join(self) -> None:
        """Return as a member; whatever keeps this consumer from that is raised."""
        self._tasks = [
            asyncio.create_task(self._beat(), name="ottla share heartbeats"),
            asyncio.create_task(self._find_leaders(), name="ottla share routes"),
        ]
        while self.membership.phase is Phase.JOINING:
            self._changed.clear()
            await self._changed.wait()
            self.check()

    async def leave(self) -> None:
        """Stop, and tell the coordinator if there is anything to tell."""
        was_member = self.membership.phase is Phase.STEADY
        await self.stop()
        if was_member:
            await self._client.send(self.membership.leave(), to=self._coordinator)

    async def stop(self) -> None:
        """End both tasks."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def check(self) -> None:
        """Raise what the caller has to know."""
        for task in self._tasks:
            if task.done():
                # They end early by a fault of ours alone, which nobody should wait out.
                task.result()
        if self.membership.failure is not None:
            failure = self.membership.failure
            raise type(failure)(*failure.args) from failure
        complaint, self.membership.complaint = self.membership.complaint, None
        if complaint is not None:
            raise complaint

    def look_again(self) -> None:
        """A leader is not where it was thought to be."""
        self._is_stale = True
        self._astray.set()

    async def _beat(self) -> None:
        membership = self.membership
        attempts = 0
        while membership.phase is not Phase.FAILED:
            before = membership.assignment
            try:
                answer = await self._client.send(membership.heartbeat(), to=self._coordinator)
                delay = membership.answered(answer, random.random())
                if answer.error_code:
                    self._forget(
                        KafkaError(answer.error_code, "heartbeat"), attempts := attempts + 1
                    )
                else:
                    attempts = 0
            except ClientError as error:
                delay = membership.failed(error, random.random())
                self._forget(error, attempts := attempts + 1)
            if membership.assignment != before:
                self._astray.set()
            self._changed.set()
            self.news()
            await asyncio.sleep(delay)

    def _forget(self, error: ClientError, attempt: int) -> None:
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
                    await self._client.refresh(self._topics)
                except ClientError as error:
                    self._forget(error, 1)
                missing = self._route()
            self.news()
            failures = failures + 1 if missing else 0
            if missing:
                self._astray.set()
                await asyncio.sleep(RETRY.delay(failures, random.random()))

    def _route(self) -> bool:
        """Find the leaders of all assigned partitions; whether some are missing."""
        view = self._client.view
        by_id = {
            view.topics[name].id: view.topics[name] for name in self._topics if name in view.topics
        }
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
