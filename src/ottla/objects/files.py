"""A file that worker threads may still use when the event loop closes it.

Cancelling the task that awaits a worker does not stop the worker. If its file were closed
meanwhile, the descriptor could be a client's socket or another log a moment later, and the worker
would read or write there. So the worker that is inside closes the file when it leaves.
"""

from __future__ import annotations

import errno
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from io import FileIO

T = TypeVar("T")


class WorkerFile:
    """Opened by the first worker that uses it; one worker at a time."""

    def __init__(
        self, open_file: Callable[[], FileIO], closed: Callable[[], object] | None = None
    ) -> None:
        """`closed` is called after the file was closed, if it was ever opened."""
        self._open = open_file
        self._closed = closed
        self._file: FileIO | None = None
        self._in_use = threading.Lock()
        self._is_given_up = False

    def use(self, work: Callable[[FileIO], T]) -> T:
        """In a worker: what `work` returns. OSError if the file has been given up."""
        try:
            with self._in_use:
                if self._is_given_up:
                    raise OSError(errno.EBADF, "the file was given up")
                if self._file is None:
                    self._file = self._open()
                return work(self._file)
        finally:
            if self._is_given_up:
                self.close()

    def close(self) -> None:
        """Close it now, or when the worker that is inside leaves. Never waits."""
        self._is_given_up = True
        if self._in_use.acquire(blocking=False):
            try:
                file, self._file = self._file, None
                if file is not None:
                    file.close()
                    if self._closed is not None:
                        self._closed()
            finally:
                self._in_use.release()
