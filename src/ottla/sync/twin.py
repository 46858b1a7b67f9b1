"""The event loop that the twins share, and the way from a caller's thread into it and back."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from concurrent.futures import CancelledError, Future, wait
from contextlib import contextmanager
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Self, TypeVar

from ottla.callers import WAITING
from ottla.client.errors import WrongPlace

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

T = TypeVar("T")

# A program that ends waits so long, in seconds, for tasks to hear that they are cancelled. The
# thread is a daemon: whatever is stuck after that ends with the process.
EXIT_PATIENCE: Final = 1.0


class Portal:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._serve, name="ottla-sync", daemon=True)
        self._thread.start()
        atexit.register(self._end)

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._until_stopped())

    async def _until_stopped(self) -> None:
        await self._stop.wait()

    def _end(self) -> None:
        if self.pid == os.getpid():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(EXIT_PATIENCE)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine in the loop; an interrupt here cancels it there."""
        done: Future[T] = Future()
        tasks: list[asyncio.Task[T]] = []

        context = copy_context()
        context.run(WAITING.set, threading.current_thread())

        def start() -> None:
            task = self._loop.create_task(work, context=context)
            task.add_done_callback(lambda ended: _hand_over(ended, done))
            tasks.append(task)

        def cancel() -> None:
            if tasks:
                tasks[0].cancel()
            else:
                work.close()
                done.set_exception(CancelledError())

        try:
            self._check()
            self._loop.call_soon_threadsafe(start)
            return done.result()
        except WrongPlace:
            work.close()
            raise
        except BaseException:
            if self._loop.is_closed():
                work.close()
            elif not done.done():
                # The caller goes on when the work has ended, so that it can use the client again.
                self._loop.call_soon_threadsafe(cancel)
                wait([done])
            raise

    def call(self, function: Callable[[], T]) -> T:
        """Call a function that is not thread-safe where everything else is called."""

        async def work() -> T:
            return function()

        return self.run(work())

    def _check(self) -> None:
        if self.pid != os.getpid():
            raise WrongPlace(
                "this client was made before the process forked, and its connections stayed with "
                "the parent; make another one in the child"
            )
        if threading.get_ident() == self._thread.ident:
            raise WrongPlace(
                "a callback cannot wait for the event loop that calls it; hand the work to "
                "another thread, or use the async class"
            )


def _hand_over(ended: asyncio.Task[T], to: Future[T]) -> None:
    if ended.cancelled():
        to.set_exception(CancelledError())
    elif (error := ended.exception()) is not None:
        to.set_exception(error)
    else:
        to.set_result(ended.result())


class _Portals:
    """The portal of this process; what a fork has copied is not used."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: list[Portal] = []
        # In the child no thread would release a lock that was held at the fork.
        os.register_at_fork(before=self._lock.acquire, after_in_parent=self._lock.release)
        os.register_at_fork(after_in_child=self._lock.release)

    def current(self) -> Portal:
        with self._lock:
            # Those of parents are kept: their sockets are not to be closed in a child.
            if not self._made or self._made[-1].pid != os.getpid():
                self._made.append(Portal())
            return self._made[-1]


_portals = _Portals()


class AsyncClient(Protocol):
    """What all async classes have in common."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...


A = TypeVar("A", bound=AsyncClient)
H = TypeVar("H")


class Held(Generic[H]):
    """Holds an async object and runs its methods; the generated classes say which."""

    def __init__(self, make: Callable[[], H]) -> None:
        self._portal = _portals.current()
        self._async = self._portal.call(make)

    @classmethod
    def _made(cls, make: Callable[[], H]) -> Self:
        """The twin of what this function makes."""
        twin = cls.__new__(cls)
        Held.__init__(twin, make)
        return twin

    @classmethod
    def _of(cls, made: H) -> Self:
        """The twin of an object that another one has made."""
        return cls._made(lambda: made)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._portal.run(work)

    def _call(self, function: Callable[[], T]) -> T:
        return self._portal.call(function)

    def _each(self, items: AsyncIterator[T]) -> Iterator[T]:
        while (one := self._next(items)) is not None:
            yield one[0]

    def _next(self, items: AsyncIterator[T]) -> tuple[T] | None:
        async def step() -> tuple[T] | None:
            try:
                return (await anext(items),)
            except StopAsyncIteration:
                return None

        return self._run(step())

    @contextmanager
    def _within(self, make: Callable[[], AbstractAsyncContextManager[T]]) -> Iterator[T]:
        block = self._call(make)
        value = self._run(block.__aenter__())
        try:
            yield value
        except BaseException as error:
            if not self._run(block.__aexit__(type(error), error, error.__traceback__)):
                raise
        else:
            self._run(block.__aexit__(None, None, None))


class Twin(Held[A]):
    """The twin of a class that is entered and left."""

    def __enter__(self) -> Self:
        self._run(self._async.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._run(self._async.__aexit__(kind, error, trace))


async def awaited(one: Awaitable[T]) -> T:
    """What the object gives that is awaited."""
    return await one
