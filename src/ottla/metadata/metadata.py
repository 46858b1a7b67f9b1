"""The metadata for the event loop: the current image, and `change`.

    metadata = await Metadata.open(lambda: SqliteMetadataStore(path))
    after = await metadata.change(CreateTopic(...))

The store lives in one thread, the metadata thread, because it waits for disks and for locks of
other processes; one that never blocks is used on the loop. The image moves on the loop alone:

* Proposals are served one after another, in the order in which `change` was called. Each gets its
  own result or refusal.
* When the store has committed, the loop adopts the new image, calls the watchers in their order,
  and then `change` returns. An image is never taken back; every watcher sees every move.
* A watcher that fails is logged; the others run all the same, for the change is made.
* Cancelling `change` only stops waiting. A proposal that has begun is carried out and adopted; one
  that still waits for its turn is dropped.
* A proposal waits `CHANGE_WAIT_SECONDS` in all, for its turn and for the store's lock, and then
  fails with `StoreBusy` without having changed anything.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.clock import SYSTEM
from ottla.metadata.changes.apply import carry_out
from ottla.metadata.errors import StoreBusy, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ottla.clock import Clock
    from ottla.metadata.changes.apply import Change, Decision
    from ottla.metadata.image import MetadataImage
    from ottla.metadata.stores.store import MetadataStore

    Watcher = Callable[[MetadataImage, MetadataImage], None]

T = TypeVar("T")

# Proposals hold a store's lock for milliseconds: a longer wait means a stuck process.
# Clients wait 30 s for an answer, so they get the error and can retry before they give up.
CHANGE_WAIT_SECONDS: Final = 10.0

logger = logging.getLogger(__name__)


class Metadata:
    """Open, use and close it on one event loop."""

    def __init__(self, store: MetadataStore, thread: Executor, wait: float, clock: Clock) -> None:
        self._store = store
        self._thread = thread
        self._wait = wait
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._watchers: list[Watcher] = []
        # Called after each change that this node has made, so that it can tell others.
        self.proposed: Callable[[], None] = lambda: None
        # Returns when other nodes have a version, too; where there are none, at once.
        self.spread: Callable[[int], Awaitable[None]] = at_once
        self._closed = False
        self.image = store.snapshot()

    @classmethod
    async def open(
        cls,
        make: Callable[[], MetadataStore],
        *,
        wait: float = CHANGE_WAIT_SECONDS,
        clock: Clock = SYSTEM,
        blocks: bool = True,
    ) -> Metadata:
        """`make` runs in the metadata thread, as does everything the store is asked for later.

        Without `blocks` the store never waits for anything, and the loop itself asks it.
        """
        if not blocks:
            return cls(make(), _AtOnce(), wait, clock)
        thread = ThreadPoolExecutor(1, thread_name_prefix="ottla-metadata")
        opening = thread.submit(make)
        try:
            store = await asyncio.wrap_future(opening)
        except BaseException:
            thread.submit(_close_opened, opening)
            thread.shutdown(wait=False)
            raise
        return cls(store, thread, wait, clock)

    async def change(self, *steps: Change | Decision) -> MetadataImage:
        """Make changes, all or none. On return they are durable and this node has adopted them.

        The result is the image right after them; `image` may be newer. Raises `ChangeRefused`,
        what a decision raises, or a `StoreError`.
        """
        deadline = self._clock.monotonic() + self._wait

        def propose(store: MetadataStore) -> MetadataImage:
            left = deadline - self._clock.monotonic()
            if left <= 0:
                raise StoreBusy(
                    f"a turn within {self._wait:g} s",
                    "earlier changes that wait for its lock",
                    "metadata store",
                )
            return store.propose(*steps, wait=left)

        image = await self._ask(propose)
        self.proposed()
        return image

    def try_out(self, *steps: Change | Decision) -> MetadataImage:
        """The image that `change` would lead to, if no other change comes before it."""
        return carry_out(self.image, steps)[1]

    async def poll(self) -> MetadataImage:
        """Adopt what other nodes changed; microseconds in the thread when they did not."""
        return await self._ask(lambda store: store.poll())

    async def secret(self, name: str, make: Callable[[], bytes]) -> bytes:
        """A secret of the cluster that is in no image; the first to ask makes it, durably."""
        return await self._ask(lambda store: store.secret(name, make))

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Call `watcher(before, after)` whenever `image` moves; return what ends the watch.

        Watchers run on the loop; `ottla.metadata.delta` tells them what is different.
        """
        self._watchers.append(watcher)
        return partial(self._watchers.remove, watcher)

    async def close(self) -> None:
        """After everything that was proposed before."""
        if self._closed:
            return
        self._closed = True
        try:
            await asyncio.wrap_future(self._thread.submit(self._store.close))
        finally:
            self._thread.shutdown(wait=False)

    def _ask(self, work: Callable[[MetadataStore], T]) -> asyncio.Future[T]:
        if self._closed:
            raise StoreUnavailable("a running node", "one that has stopped", "metadata store")
        answer: asyncio.Future[T] = self._loop.create_future()
        self._thread.submit(self._work, work, answer)
        return answer

    def _work(self, work: Callable[[MetadataStore], T], answer: asyncio.Future[T]) -> None:
        """Runs in the metadata thread; results reach the loop in the same order."""
        if answer.cancelled():
            return
        try:
            settle = partial(_set_result, answer, work(self._store))
        except Exception as error:  # noqa: BLE001  # it goes to the caller
            settle = partial(_set_exception, answer, error)
        self._loop.call_soon_threadsafe(self._finished, self._store.snapshot(), settle)

    def _finished(self, newest: MetadataImage, settle: Callable[[], None]) -> None:
        self._adopt(newest)
        settle()

    def _adopt(self, after: MetadataImage) -> None:
        before, self.image = self.image, after
        if before.version == after.version:
            return
        for watcher in tuple(self._watchers):
            try:
                watcher(before, after)
            except Exception:
                logger.exception("%r failed for version %d of the metadata", watcher, after.version)


async def at_once(_: int) -> None:
    """There is no other node."""


class _AtOnce(Executor):
    """In place of the metadata thread."""

    def submit(self, work: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        done: Future[T] = Future()
        try:
            done.set_result(work(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 (passed on to the caller)
            done.set_exception(error)
        return done


def _close_opened(opening: Future[MetadataStore]) -> None:
    """Close the store, in the metadata thread, if the caller did not wait until it was open."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def _set_result(answer: asyncio.Future[T], result: T) -> None:
    if not answer.cancelled():
        answer.set_result(result)


def _set_exception(answer: asyncio.Future[T], error: Exception) -> None:
    if not answer.cancelled():
        answer.set_exception(error)
