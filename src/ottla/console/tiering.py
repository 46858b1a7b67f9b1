"""Where the logs of tiered topics are: folded from the metadata topic, in a thread of its own.

Folding 100,000 segments takes seconds, so it is done only while somebody looks at the page, one at
a time, and the page shows the last result with its age.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.client.errors import ClientError
from ottla.console.missing import Missing, missing
from ottla.console.snapshot import is_refusal
from ottla.errors import OttlaError
from ottla.objects.errors import RemoteStorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.clock import Clock
    from ottla.console.clusters import ClusterSettings
    from ottla.tier.upkeep.tools import PartitionStatus

OLD: Final = 30.0
"""Seconds after which the catalogue is folded again, if somebody looks."""
TIMEOUT: Final = 30.0
READING: Final = Missing("the catalogue is being read; this page shows it when it is done")


@dataclass(frozen=True, slots=True)
class TierAnswer:
    """All partitions of tiered topics."""

    partitions: tuple[PartitionStatus, ...]
    undecodable: int
    """Records of the metadata topic that are no events."""
    error: str = ""
    """Why the catalogue could not be read."""


class TierAccess:
    """The last answer, and the work for the next one."""

    def __init__(
        self, settings: ClusterSettings, clock: Clock, keep: Callable[[TierAnswer | Missing], None]
    ) -> None:
        self._keep = keep
        self._settings = settings
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self._at: float | None = None
        self.answer: TierAnswer | Missing = READING

    @property
    def age_s(self) -> float | None:
        return None if self._at is None else self._clock.monotonic() - self._at

    async def look(self, patience: float) -> None:
        """Fold again if the answer is old; wait for it no longer than this."""
        age = self.age_s
        if self._task is None and (age is None or age >= OLD):
            self._task = asyncio.create_task(self._read())
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=patience)

    async def _read(self) -> None:
        try:
            self.answer = await asyncio.to_thread(_fold, self._settings)
            self._keep(self.answer)
        except (OttlaError, RemoteStorageError) as error:
            self.answer = missing(error, "Read on topic '__remote_log_metadata'")
            is_refused = isinstance(error, ClientError) and is_refusal(error)
            self._keep(self.answer if is_refused else TierAnswer((), 0, self.answer.reason))
        finally:
            self._at = self._clock.monotonic()
            self._task = None

    async def close(self) -> None:
        """The thread ends by itself, with the requests that it waits for."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


def _fold(settings: ClusterSettings) -> TierAnswer:
    """Runs in a thread, with a loop and connections of its own."""
    from ottla.client.admin.admin import Admin
    from ottla.tier.upkeep import tools

    async def work() -> TierAnswer:
        security = settings.security
        async with Admin(settings.bootstrap, security=security, api_timeout=TIMEOUT) as admin:
            topics = await tools.tiered_topics(admin)
            log = await tools.open_catalogue(admin, settings.bootstrap, security)
            try:
                folded = await tools.fold(log)
            finally:
                await log.close()
            found = await tools.statuses(admin, folded, topics) if topics else []
            return TierAnswer(tuple(found), folded.undecodable)

    return asyncio.run(work())
