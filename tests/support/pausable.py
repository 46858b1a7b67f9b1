"""Workers that go on only when a test says so, call by call.

`PausableExecutor` takes the place of a node's threads. A job waits in `jobs` until the test lets it
go, for so many calls of the file system or to its end. It has a thread of its own, because it may
stop in the middle of a function, but only one thread ever runs: the test's, or that of the job it
has let go. So what happens is the same in every run.

- `PausableStorage` is the real file system; a job stops before its calls.
- `PausableLock` is a lock for jobs. A job that finds it taken is `blocked` until another has
  left. The event loop must find it free: it never waits for a lock.
- `InlineExecutor` runs what it is given at once, for threads that are not to be paused.

`kill` ends everything as a killed process ends: no call of the file system after it has any effect.
"""

from __future__ import annotations

import threading
from concurrent.futures import Executor, Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.log.errors import LogError
from ottla.log.os_storage import OsStorage
from ottla.log.storage import Buffer, Directory, Entry

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType

T = TypeVar("T")

# A job answers within microseconds; one that waits for something nobody sees is a fault.
STUCK_SECONDS: Final = 60.0
AT_ONCE: Final = ("load",)  # imports of an API's modules: they touch nothing of the node


class Killed(BaseException):
    """The process of this thread is dead."""


class Closed(AssertionError):
    """A file or directory was used after it had been closed."""


class Job:
    """One piece of work for a worker thread."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.kind = _kind(function)
        self.future: Future[Any] = Future()
        self.at = "the beginning"
        self.done = False
        self.blocked = False
        self.error: BaseException | None = None
        self._calls: int | None = None
        self._killed = False
        self._thread: threading.Thread | None = None
        self._go = threading.Semaphore(0)
        self._stopped = threading.Semaphore(0)

    def __repr__(self) -> str:
        return f"<{self.kind} at {self.at}>"

    def go(self, calls: int | None = None) -> None:
        """Go on for so many calls of the file system and stop before the next, or to the end."""
        assert not self.done
        self._calls = calls
        self.blocked = False
        if self._thread is None:
            if not self.future.set_running_or_notify_cancel():
                self.done = True
                return
            self._thread = threading.Thread(target=self._run, name=f"job {self.kind}", daemon=True)
            self._thread.start()
        else:
            self._go.release()
        assert self._stopped.acquire(timeout=STUCK_SECONDS), f"{self} waits for something unknown"

    def kill(self) -> None:
        self._killed = True
        if self._thread is not None and not self.done:
            self.go()
            self._thread.join()
        self.done = True

    def reach(self, what: str) -> None:
        """In the job's thread, before a call of the file system."""
        self.at = what
        if self._calls == 0:
            self._stop()
        elif self._calls is not None:
            self._calls -= 1

    def wait_for(self, lock: PausableLock) -> None:
        """In the job's thread: somebody else has the lock."""
        self.at = "a lock"
        self.blocked = True
        self._stop()

    def _stop(self) -> None:
        self._stopped.release()
        self._go.acquire()
        if self._killed:
            raise Killed

    def _run(self) -> None:
        _here.job = self
        try:
            self._settle()
        finally:
            self.done = True
            self._stopped.release()

    def _settle(self) -> None:
        try:
            result = self.function()
        except Killed:
            return
        except BaseException as error:  # noqa: BLE001 (it goes to who waits for the job)
            self.error = error
            self.future.set_exception(error)
        else:
            self.future.set_result(result)


_here = threading.local()


def current_job() -> Job | None:
    """The job whose thread this is."""
    return getattr(_here, "job", None)


def _kind(function: Callable[[], Any]) -> str:
    while isinstance(function, partial):
        function = function.func
    return getattr(function, "__name__", type(function).__name__).strip("_")


class PausableExecutor(Executor):
    """Keeps jobs until the test lets them go."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.failed: list[Job] = []
        """Jobs that ended in an error no caller of a healthy disk should meet."""

    def submit(self, function: Callable[..., T], /, *args: Any, **options: Any) -> Future[T]:
        job = Job(partial(function, *args, **options) if args or options else function)
        if job.kind in AT_ONCE:
            job.go()
        else:
            self.jobs.append(job)
        return job.future

    def go(self, job: Job, calls: int | None = None) -> None:
        """Let one job go on; if it is done it leaves the list."""
        job.go(calls)
        if job.done:
            self.jobs.remove(job)
            if job.error is not None and not isinstance(job.error, LogError):
                self.failed.append(job)

    def kill(self) -> None:
        for job in self.jobs:
            job.kill()
        self.jobs.clear()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """A node that stops waits for its workers: so they go."""
        del wait, cancel_futures
        while self.jobs:
            left = [job for job in self.jobs if not job.blocked] or self.jobs
            self.go(left[0])


class InlineExecutor(Executor):
    """Runs what it is given in the caller's thread, at once."""

    def __init__(self, *args: object, **options: object) -> None:
        del args, options

    def submit(self, function: Callable[..., T], /, *args: Any, **options: Any) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(function(*args, **options))
        except Exception as error:  # noqa: BLE001 (it goes to who waits for it)
            future.set_exception(error)
        return future


class PausableThread:
    """The thread of a journal: what it is given are jobs like all others."""

    def __init__(self, loop: asyncio.AbstractEventLoop, executor: Executor) -> None:
        self._loop = loop
        self._executor = executor

    def run(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        def ended(job: Future[None]) -> None:
            self._loop.call_soon_threadsafe(done, job.exception())

        self._executor.submit(work).add_done_callback(ended)

    async def close(self) -> None:
        """Nothing is left: it is closed after the last slot."""


class PausableLock:
    """A `threading.Lock` between jobs."""

    def __init__(self) -> None:
        self._taken = False

    def __enter__(self) -> bool:
        job = current_job()
        while self._taken:
            assert job is not None, "the event loop waits for a lock that a worker has"
            job.wait_for(self)
        self._taken = True
        return True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._taken = False


class PausableStorage(OsStorage):
    """The operating system's files; jobs stop before each call, a killed one does nothing."""

    def __init__(self) -> None:
        self.killed = False
        self.used_closed: list[str] = []
        """Calls for descriptors that had been given back: a file was closed under its user."""

    def _reach(self, call: str, *places: Path | Entry | Directory | int) -> None:
        if self.killed:
            raise Killed
        job = current_job()
        if job is not None:
            job.reach(f"{call} {' '.join(map(str, places))}")
            if self.killed:
                raise Killed
        for place in places:
            if (
                (isinstance(place, int) and place < 0)
                or (isinstance(place, Entry) and place.parent._is_closed)
                or (isinstance(place, Directory) and place._is_closed)
            ):
                self.used_closed.append(f"{call} {place} in {job}")

    def open(self, path: Path | Entry, *, create: bool) -> int:
        self._reach("open", path)
        return super().open(path, create=create)

    def open_directory(self, path: Path) -> int:
        # No job stops here: the caller has the directory's lock, which is held for this call alone.
        if self.killed:
            raise Killed
        return super().open_directory(path)

    def pwritev(self, fd: int, chunks: Sequence[Buffer], position: int) -> int:
        self._reach("pwritev", fd)
        return super().pwritev(fd, chunks, position)

    def write_durably(self, fd: int, chunks: Sequence[Buffer], position: int) -> None:
        self._reach("write_durably", fd)
        super().write_durably(fd, chunks, position)

    def pread(self, fd: int, size: int, position: int) -> bytes:
        self._reach("pread", fd)
        return super().pread(fd, size, position)

    def size(self, fd: int) -> int:
        self._reach("size", fd)
        return super().size(fd)

    def truncate(self, fd: int, size: int) -> None:
        self._reach("truncate", fd)
        super().truncate(fd, size)

    def fdatasync(self, fd: int) -> None:
        self._reach("fdatasync", fd)
        super().fdatasync(fd)

    def fsync_dir(self, path: Path | Directory) -> None:
        self._reach("fsync_dir", path)
        super().fsync_dir(path)

    def rename(self, source: Path | Entry, target: Path | Entry) -> None:
        self._reach("rename", source, target)
        super().rename(source, target)

    def unlink(self, path: Path | Entry) -> None:
        self._reach("unlink", path)
        super().unlink(path)

    def mkdir(self, path: Path) -> None:
        self._reach("mkdir", path)
        super().mkdir(path)

    def listdir(self, path: Path | Directory) -> list[str]:
        self._reach("listdir", path)
        return super().listdir(path)

    def read_file(self, path: Path | Entry) -> bytes:
        self._reach("read_file", path)
        return super().read_file(path)

    def mtime_ms(self, path: Path | Entry) -> int:
        self._reach("mtime_ms", path)
        return super().mtime_ms(path)
