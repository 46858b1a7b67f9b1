"""Commits of a consumer: on demand, by timer, by count, with each fetch; to backend or store.

If an automatic commit fails, the next call of the consumer raises the error, and the commit is
retried at the next tick.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from ottla.offsets.errors import OffsetError
from ottla.streams.errors import Evicted, StreamError
from ottla.streams.types import AutoCommit, Mode, ShardKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.streams.base import Source
    from ottla.streams.positions import StoredPositions
    from ottla.streams.tracker import Tracker
    from ottla.streams.types import ConsumerOptions, Message

_log = logging.getLogger(__name__)

COMMIT_INTERVAL = 1.0
STORE_INTERVAL = 5.0
"""Automatic commits to the backend, and to an external store, when no interval is given."""

FORESEEN = (StreamError, OffsetError, OSError)
"""What stores raise; anything else is a fault in a store and logged with its traceback."""


def _unheard(commit: asyncio.Future[dict[ShardKey, int]]) -> None:
    if not commit.cancelled() and (error := commit.exception()) is not None:
        _log.warning("a commit whose caller was cancelled failed: %s", error)


class Committer:
    """Saves the progress of a tracker, one commit at a time."""

    def __init__(
        self,
        source: Source,
        tracker: Tracker,
        options: ConsumerOptions,
        stored: StoredPositions | None,
        failed: Callable[[Exception], None],
    ):
        self.rewound = self.spoiled = False
        self._source = source
        self._tracker = tracker
        self._options = options
        self._stored = stored
        self._failed = failed
        self._due = asyncio.Event()
        self._one = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    @property
    def refusal(self) -> str | None:
        """Why there is nothing to commit to; None if there is."""
        if self._options.mode is Mode.REAL_TIME:
            return "a real-time consumer has no position to commit; use mode=RESUMABLE"
        if self.spoiled:
            return (
                "a transaction with this consumer's positions failed, so it holds acknowledgements "
                "that did not take effect; open another one, or rewind"
            )
        return self._source.no_commit

    @property
    def automatic(self) -> bool:
        """Whether the policy commits without being asked."""
        return self._options.auto_commit is not AutoCommit.DISABLED and self.refusal is None

    def start(self) -> None:
        """Begin to commit by timer, if the policy does, or nacks have to reach the store."""
        if self._options.mode is not Mode.REAL_TIME and (
            self._source.redelivers or self._options.auto_commit is not AutoCommit.DISABLED
        ):
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """No more commits by timer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def soon(self) -> None:
        """Commit now rather than at the next tick."""
        self._due.set()

    def count(self) -> None:
        """Something is done: a commit by count may be due."""
        every = self._options.commit_every
        if every is not None and self._tracker.done >= every:
            self._tracker.done = 0
            self._due.set()

    async def now(self) -> dict[ShardKey, int]:
        """Commit; returns the saved positions. Continues if its caller is cancelled."""
        commit = asyncio.ensure_future(self._commit())
        try:
            return await asyncio.shield(commit)
        except asyncio.CancelledError:
            commit.add_done_callback(_unheard)
            raise

    async def unasked(self) -> None:
        """A commit of the policy's own; an eviction costs its user nothing but a repetition."""
        try:
            await self.now()
        except Evicted as error:
            _log.warning("%s", error)

    async def first(self, messages: list[Message]) -> list[Message]:
        """IMMEDIATE: commit fetched messages before they are delivered."""
        if self.automatic:
            self._tracker.deliver(messages, time.monotonic())
            try:
                await self.now()
            except Exception as error:
                # The program has not seen them, so no later commit may pass them either.
                self._tracker.forget({ShardKey(one.stream, one.shard) for one in messages})
                if not isinstance(error, Evicted):
                    raise
                _log.warning("%s", error)
                return []
        return messages

    async def _commit(self) -> dict[ShardKey, int]:
        async with self._one:
            progress = self._tracker.progress()
            if not progress.empty:
                try:
                    if self._stored is not None:
                        await self._stored.save(progress.positions, rewind=self.rewound)
                        self.rewound = False
                    else:
                        await self._source.commit(progress)
                except BaseException:
                    self._tracker.failed(progress)
                    raise
            return self._tracker.committed(progress)

    async def _run(self) -> None:
        interval = self._options.auto_commit_interval
        if interval is None:
            interval = COMMIT_INTERVAL if self._stored is None else STORE_INTERVAL
        while True:
            try:
                async with asyncio.timeout(interval):
                    await self._due.wait()
            except TimeoutError:
                pass
            self._due.clear()
            self._tracker.ripen(time.monotonic())
            if self.refusal is None:
                try:
                    await self.unasked()
                except Exception as error:  # noqa: BLE001  # told to the next caller, tried again
                    if not isinstance(error, FORESEEN):
                        _log.exception("an automatic commit failed and is tried again")
                    self._failed(error)
