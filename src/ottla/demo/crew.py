"""The child processes: started, started again after a crash on purpose, and all ended in the end.

Each child has its own session, so that Ctrl-C reaches the parent alone, which then ends them in
order. A child that ends in any way that was not planned is a failure of the demo.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ottla.demo.child import CRASHED, END_WITHIN_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ottla.demo.stage import Stage

POLL_SECONDS: Final = 0.1
# Beyond the time that a child gives itself: then the machine is stuck, not the child.
KILL_AFTER_SECONDS: Final = END_WITHIN_SECONDS + 5


class ChildFailed(Exception):
    """A child process ended unexpectedly."""


class Child:
    """One role of the crew through its lives; `crashes_after` has the length of each but the last.

    A length is a number of records.
    """

    def __init__(self, stage: Stage, role: str, name: str, crashes_after: Sequence[int]) -> None:
        self.role = role
        self.name = name
        self.crashes = 0
        self._stage = stage
        self._crashes_after = list(crashes_after)
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        dies_after = self._crashes_after[self.crashes] if self._is_to_crash else 0
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "ottla.demo.child",
                    self.role,
                    self._stage.to_json(),
                    str(dies_after),
                    self.name,
                ],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                # What Spark leaves behind when it is killed goes with the demo's directory.
                env={**os.environ, "TMPDIR": self._stage.directory},
            )

    @property
    def _log(self) -> Path:
        return self._stage.logs / f"{self.name}.log"

    @property
    def _is_to_crash(self) -> bool:
        return self.crashes < len(self._crashes_after)

    @property
    def is_running(self) -> bool:
        """Whether it or a process it started is running: Spark has a JVM."""
        if self._process.poll() is None:
            return True
        try:
            os.killpg(self._process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def look(self) -> bool:
        """Whether it has crashed as planned, and was started again."""
        status = self._process.poll()
        if status is None:
            return False
        self._close_stdin()
        if status != CRASHED or not self._is_to_crash:
            words = self._log.read_text(errors="replace").strip().rpartition("\n")[2]
            raise ChildFailed(
                f"{self.name} ended with status {status}; its last line: {words!r}; all of it is in"
                f" {self._log}"
            )
        self.crashes += 1
        self._process = self._start()
        return True

    def ask_to_end(self) -> None:
        self._close_stdin()

    def _close_stdin(self) -> None:
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()

    def kill(self) -> None:
        """Kill it and the processes it started."""
        self._close_stdin()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Crew:
    """All children. `on_crash` is called for each planned crash."""

    def __init__(self, on_crash: Callable[[Child], None]) -> None:
        self.children: list[Child] = []
        self._on_crash = on_crash

    def add(self, child: Child) -> None:
        self.children.append(child)

    def crashes(self) -> Counter[str]:
        """By role."""
        return Counter({child.role: 0 for child in self.children}) + Counter(
            role for child in self.children for role in [child.role] * child.crashes
        )

    async def watch(self) -> None:
        """Watch them without end; raises `ChildFailed` if one ends unexpectedly."""
        while True:
            for child in self.children:
                if child.look():
                    self._on_crash(child)
            await asyncio.sleep(POLL_SECONDS)

    async def end(self, patience: float = KILL_AFTER_SECONDS) -> list[str]:
        """Ask all to end and wait for it; the names of those that did not, which are killed."""
        for child in self.children:
            child.ask_to_end()
        for _ in range(round(patience / POLL_SECONDS)):
            if not self.running:
                return []
            await asyncio.sleep(POLL_SECONDS)
        left = self.running
        self.kill()
        return left

    def kill(self) -> None:
        """End all that are left, and whatever they have started."""
        for child in self.children:
            child.kill()

    @property
    def running(self) -> list[str]:
        return [child.name for child in self.children if child.is_running]
