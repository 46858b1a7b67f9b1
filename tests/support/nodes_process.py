"""`ottla broker --nodes N` as a user starts it: a supervisor and its node processes."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

READY: Final = "ottla broker ready: "
# Long for any machine under load; who needs it is stuck.
PATIENCE_SECONDS: Final = 60.0


class NodesProcess:
    """Starts when it is entered; whatever still runs at the end is killed."""

    def __init__(self, directory: Path, nodes: int, *options: str) -> None:
        self._directory = directory
        self._arguments = [
            *("broker", "--nodes", str(nodes), "--data-dir", str(directory)),
            *(options or ("--port", "0")),
        ]
        self.process: subprocess.Popen[str] | None = None
        # A pipe that nobody reads is full after 64 KiB, and then whoever logs stands still.
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed when it is left
        self.bootstrap = ""
        self._said = b""

    def __enter__(self) -> NodesProcess:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ottla.cli", *self._arguments],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self.bootstrap = self.line().removeprefix(READY)
        return self

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def line(self) -> str:
        """The next line of its standard output."""
        assert self.process is not None
        assert self.process.stdout is not None
        pipe = self.process.stdout.fileno()
        while b"\n" not in self._said:
            readable, _, _ = select.select([pipe], [], [], PATIENCE_SECONDS)
            assert readable, "not ready in time"
            data = os.read(pipe, 4096)
            assert data, self.errors()
            self._said += data
        line, _, self._said = self._said.partition(b"\n")
        return line.decode()

    def errors(self) -> str:
        """All that it and its nodes wrote to stderr."""
        fd = self._errors.fileno()  # whose position is that of the writers, too
        return os.pread(fd, os.fstat(fd).st_size, 0).decode()

    def nodes(self) -> dict[int, int]:
        """The process of each node that holds its directory, by node.

        A node that takes over from another holds the directory of that one for a moment, too.
        """
        found: dict[int, int] = {}
        locks = [self._directory / ".lock", *self._directory.glob("node.*/.lock")]
        for lock in sorted(locks, key=lambda path: path.stat().st_mtime_ns):
            parent = lock.parent
            node = 1 if parent == self._directory else int(parent.name.removeprefix("node."))
            text = lock.read_text().strip()
            if not text or int(text) in found.values():
                continue
            if Path(f"/proc/{text}").exists() and _parent(int(text)) == self.pid:
                found[node] = int(text)
        return found

    def signal_node(self, node: int, number: signal.Signals) -> int:
        pid = self.nodes()[node]
        os.kill(pid, number)
        return pid

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(PATIENCE_SECONDS)

    def kill(self) -> None:
        """The supervisor alone."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(PATIENCE_SECONDS)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self.process is not None
        left = list(self.nodes().values())
        self.process.kill()
        self.process.wait(PATIENCE_SECONDS)
        for pid in left:
            if Path(f"/proc/{pid}").exists():
                os.kill(pid, signal.SIGKILL)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._errors.close()


def _parent(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, parent = text.rpartition(")")[2].split()[:2]
    return None if state == "Z" else int(parent)


def wait_for(done: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def gone(pids: Sequence[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)
