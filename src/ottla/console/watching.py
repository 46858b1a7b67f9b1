"""Keeps what pages show fresh while somebody looks, and costs the cluster nothing otherwise.

A page is made from the last answers at once; it waits `PATIENCE` for fresher ones, and longer only
where there is none at all. The sampler ticks for a while after a page was asked for, or always.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.console import redrive
from ottla.console.browse import Browser
from ottla.console.letters import Box
from ottla.console.missing import Missing
from ottla.console.redrive import Progress
from ottla.console.registry import RegistryAccess
from ottla.console.tiering import TierAccess
from ottla.errors import OttlaError

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable
    from typing import Any

    from ottla.client.cluster.cluster import Client
    from ottla.client.cluster.view import TopicPartition
    from ottla.clock import Clock
    from ottla.console.attention import Attention
    from ottla.console.clusters import Cluster
    from ottla.console.look import Look
    from ottla.console.redrive import Plan
    from ottla.console.snapshot import Kind, Snapshot

PATIENCE: Final = 0.2
"""Seconds that a page waits for fresher answers: then it shows the last ones with their age."""
FIRST_PATIENCE: Final = 2.0
"""The same where there is nothing to show yet."""
WATCHED: Final = 60.0
"""Seconds for which the sampler goes on after a page was asked for, if nothing else is said."""
TICK: Final = 10.0
ENDS_AT_ONCE: Final = 500
"""Partitions whose ends a page asks for itself; the sampler asks for the others in its turn."""

MOST_BOXES: Final = 4
"""Topics of letters that are kept: some 10 MiB each."""

logger = logging.getLogger(__name__)


class Redrive(NamedTuple):
    """A redrive that was started here."""

    plan: Plan
    progress: Progress
    task: asyncio.Task[None]


class Watched:
    """One cluster, and who looks at it."""

    def __init__(self, cluster: Cluster, clock: Clock, sample_for: float = WATCHED) -> None:
        self.cluster = cluster
        self._sample_for = sample_for
        self._clock = clock
        self._asked = asyncio.Event()
        self._last_asked = -math.inf
        self._tasks: set[asyncio.Task[None]] = set()
        self._sampling: asyncio.Task[None] | None = None
        self._ticked = False
        self.registry = RegistryAccess(cluster, clock)
        self.tier = TierAccess(cluster.settings, clock, cluster.snapshot.keep_tier)
        self.boxes: dict[str, Box] = {}
        """Dead letters by topic, of those that somebody looked at."""
        self.redrives: dict[str, Redrive] = {}
        """The last redrive of each topic of letters."""

    @property
    def name(self) -> str:
        return self.cluster.name

    @property
    def client(self) -> Client:
        found = self.cluster.client
        assert found is not None  # only tests of the snapshot have a cluster without one
        return found

    @property
    def snapshot(self) -> Snapshot:
        return self.cluster.snapshot

    @property
    def browser(self) -> Browser:
        return Browser(self.client, self._clock)

    def look(self) -> Look:
        return self.cluster.look()

    def attention(self) -> Attention:
        return self.cluster.attention()

    def start(self) -> None:
        self._sampling = asyncio.create_task(self._sample())

    def box(self, topic: str) -> Box:
        """The letters of a topic; the box that was used longest ago makes room."""
        found = self.boxes.pop(topic, None) or Box(topic)
        self.boxes[topic] = found
        while len(self.boxes) > MOST_BOXES:
            del self.boxes[next(iter(self.boxes))]
        return found

    def start_redrive(self, plan: Plan) -> None:
        """Carry a plan out, whoever looks on; one at a time for each topic of letters."""
        before = self.redrives.pop(plan.topic, None)
        if before is not None:
            before.task.cancel()
        progress = Progress(len(plan.places))
        task = asyncio.create_task(self._redrive(plan, progress))
        self.redrives[plan.topic] = Redrive(plan, progress, task)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _redrive(self, plan: Plan, progress: Progress) -> None:
        try:
            await redrive.run(self.cluster.settings, plan, progress, self._clock)
            progress.state = "done"
        except asyncio.CancelledError:
            progress.state = "stopped"
            raise
        except OttlaError as error:
            progress.state, progress.error = "failed", " ".join(str(error).split())
            logger.warning("cluster %s: redrive of %s: %s", self.name, plan.topic, error)

    async def close(self) -> None:
        tasks = [*self._tasks, *([self._sampling] if self._sampling else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.registry.close()
        await self.tier.close()
        await self.cluster.close()

    async def fresh(
        self,
        *kinds: Kind,
        then: Iterable[Kind] = (),
        watch: Iterable[TopicPartition | str] = (),
    ) -> None:
        """Somebody looks at these: have answers that are not too old.

        `then` are figures that may follow: the page does not wait long for the first of them.
        """
        self._last_asked = self._clock.monotonic()
        follow = tuple(then)
        self.snapshot.want(*kinds, *follow)
        self.cluster.sampler.watch(watch)
        self._asked.set()
        data = self.snapshot.data
        is_known = all(getattr(data, kind.value[0]).at_ms is not None for kind in kinds)
        await asyncio.gather(
            self._wait(self.snapshot.refresh(*kinds), is_known),
            self._wait(self.snapshot.refresh(*follow), is_known=True),
        )
        if not self._ticked:
            self._ticked = True
            await asyncio.gather(
                self._wait(self.cluster.tick(), is_known=True),
                self._wait(self._find_registry(), is_known=True),
            )

    async def _find_registry(self) -> None:
        await self.registry.client()

    async def has_topic(self, name: str) -> bool:
        """Whether the topic exists; one that the snapshot does not know yet is asked for."""
        if name in self.snapshot.data.topics:
            return True
        return await self.browser.has_topic(name)

    async def ends(self, keys: Iterable[TopicPartition]) -> None:
        """Ask for the ends of these logs if they are not known yet."""
        data = self.snapshot.data
        unknown = [key for key in keys if key not in data.ends or data.ends[key].start is None]
        if not unknown:
            return

        async def ask() -> None:
            some = unknown[:ENDS_AT_ONCE]
            self.snapshot.keep_ends(await self.snapshot.source.ends(some, starts=True))

        await self._wait(ask(), is_known=False)

    async def wait(self, work: Coroutine[Any, Any, None], *, is_known: bool) -> None:
        """Wait for the work a little, or longer if nothing is known; it goes on by itself."""
        await self._wait(work, is_known)

    async def _wait(self, work: Coroutine[Any, Any, None], is_known: bool) -> None:
        task = asyncio.create_task(self._quietly(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.wait({task}, timeout=PATIENCE if is_known else FIRST_PATIENCE)

    async def _quietly(self, work: Coroutine[Any, Any, None]) -> None:
        """The page shows what is missing and why; nothing is to be raised here."""
        try:
            await work
        except OttlaError as error:
            logger.debug("cluster %s: %s", self.name, error)

    async def _sample(self) -> None:
        while True:
            if self._sample_for < math.inf:
                await self._asked.wait()
                if self._clock.monotonic() - self._last_asked > self._sample_for:
                    self._asked.clear()
                    continue
            try:
                await self.cluster.tick()
            except OttlaError as error:
                logger.warning("cluster %s: cannot sample: %s", self.name, error)
            self._ticked = True
            await asyncio.sleep(TICK)

    def away(self, max_age_s: float | None = None) -> str | None:
        """Why the cluster does not answer, or has not for so long; None if it does."""
        data = self.snapshot.data
        if data.away_since_ms is not None:
            return data.away_reason or "no broker answers"
        if isinstance(data.cluster.value, Missing):
            return str(data.cluster.value)
        age = data.cluster.age_s(self._clock.now())
        if max_age_s is not None and age is not None and age > max_age_s:
            return f"no broker has answered for {age:.0f} s"
        return None
