"""The I/O of a group member: one task that sends the machine's requests.

- Requests go over the coordinator's own connection, so no waiting fetch delays a heartbeat.
- The caller is watched: after `max_poll_interval` seconds without a call the member leaves, so that
  others get its partitions, and joins again with the next call.
"""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.client.cluster.cluster import Coordinator
from ottla.client.cluster.retry import forgets
from ottla.client.consumer.classic import ClassicMember
from ottla.client.consumer.machine import Learn
from ottla.client.errors import BrokerUnreachable, ClientError, ClientFault
from ottla.randomness import RANDOM
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.client.cluster.cluster import Client
    from ottla.client.cluster.view import ClusterView
    from ottla.client.consumer.machine import Command, Member

logger = logging.getLogger(__name__)


class Group:
    """One task that speaks for `member`; `news` is called whenever the caller may have to act."""

    def __init__(
        self, client: Client, member: Member, *, max_poll_interval: float, news: Callable[[], None]
    ) -> None:
        self.member = member
        self.coordinator = Coordinator(member.group)
        self._client = client
        self._news = news
        self._max_poll_interval = max_poll_interval
        self._now = asyncio.get_running_loop().time
        self._polled_at = self._now()
        self._is_away = False
        self.is_restless = False
        """Whether the caller has to act; looked at for each record, so it is kept."""
        self._poked = asyncio.Event()
        self._attempts = 0
        self._looked_for: set[tuple[str, ...]] = set()
        self._named_missing: set[str] = set()
        self._unheard: ClientError | None = None
        """Why the coordinator does not answer; raised once for each `api_timeout` of that."""
        self._unheard_since = self._now()
        self._task = asyncio.create_task(self._run(), name=f"ottla group {member.group}")

    def polled(self) -> None:
        """The caller is here."""
        self._polled_at = self._now()
        self._is_away = False

    def poke(self) -> None:
        """Ask the machine again for its next step."""
        self.is_restless = self.member.wish() is not None
        self._poked.set()

    def check(self) -> None:
        """Raise what keeps this member out of the group for good."""
        if self._task.done() and not self._task.cancelled():
            # It ends early only because of a bug of ours: raise it at once.
            self._task.result()
        if self.member.failure is not None:
            raise self.member.failure
        unheard, seconds = self._unheard, self._now() - self._unheard_since
        if unheard is not None and seconds >= self._client.api_timeout:
            self._unheard_since = self._now()
            raise BrokerUnreachable(
                f"group {self.member.group!r} was not reached for {seconds:.1f} s: {unheard}"
            ) from unheard

    async def leave(self) -> None:
        """Stop, and tell the coordinator if it should know; it would miss the member later."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        request = self.member.farewell()
        if request is not None:
            try:
                await self._client.send(request, to=self.coordinator)
            except ClientError as error:
                logger.info("group %r could not be left: %s", self.member.group, error)

    async def _run(self) -> None:
        while True:
            self._poked.clear()
            self._watch_caller()
            command = self.member.next(self._now())
            if command is not None:
                await self._do(command)
                self.is_restless = self.member.wish() is not None
                self._news()
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._wake_at()):
                    await self._poked.wait()

    def _wake_at(self) -> float | None:
        times = [self._polled_at + self._max_poll_interval if not self._is_away else math.inf]
        # A step that waits for the caller needs no timer.
        times.append(self.member.due if self.member.wish() is None else math.inf)
        return min(times) if min(times) < math.inf else None

    def _watch_caller(self) -> None:
        if self._is_away or self._now() - self._polled_at < self._max_poll_interval:
            return
        self._is_away = True
        logger.warning(
            "group %s: no poll for %g s, leaving the group; raise max_poll_interval if work on "
            "one batch takes longer",
            self.member.group,
            self._max_poll_interval,
        )
        self.member.expire()
        self.is_restless = True

    async def _do(self, command: Command) -> None:
        member, began = self.member, self._now()
        try:
            if isinstance(command, Learn):
                async with self._client.within_api_timeout("ask for metadata"):
                    view = await self._client.refresh(command.topics)
                member.learned(view.topics, self._now())
                self._name_missing(view)
            else:
                async with self._client.within_api_timeout("reach the group", command.patience):
                    answer = await self._client.send(
                        command.request, to=self.coordinator, patience=command.patience
                    )
                self._unheard = None
                if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                    assert isinstance(member, ClassicMember)
                    member.required(answer.member_id)
                if answer.error_code:
                    raise member.failure_of(answer)
                member.answered(command.request, answer, self._now(), RANDOM.random())
                if member.is_steady and not member.owned and member.wish() is None:
                    await self._look_for_topics()
            self._attempts = 0
        except ClientError as error:
            self._failed(error, began)
        except Exception as error:
            logger.exception("group %s: continuing after an error", member.group)
            self._failed(ClientFault.of("take part in the group", error), began)

    async def _look_for_topics(self) -> None:
        """This member has nothing to read: perhaps because a topic does not exist."""
        if self.member.topics in self._looked_for:
            return
        async with self._client.within_api_timeout("ask for metadata"):
            view = await self._client.refresh(self.member.topics)
        self._looked_for.add(self.member.topics)
        self._name_missing(view)

    def _name_missing(self, view: ClusterView) -> None:
        missing = {name for name in self.member.topics if name in view.missing}
        if new := sorted(missing - self._named_missing):
            logger.warning(
                "group %s: %s: no such topic; its records come once it is created",
                self.member.group,
                ", ".join(map(repr, new)),
            )
        self._named_missing |= missing

    def _failed(self, error: ClientError, began: float) -> None:
        self._attempts += 1
        if self._unheard is None:
            self._unheard_since = began
        self._unheard = error
        stale = forgets(error, self._attempts, repeatable=True)
        if stale is not None:
            self._client.forget(stale)
        self.member.failed(error, self._now(), RANDOM.random())
