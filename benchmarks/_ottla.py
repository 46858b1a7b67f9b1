"""`ottla broker` as a process to be measured, in the same terms as its peers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType

READY = "ottla broker ready: "
STOP_SECONDS = 120.0
CPU_OF_PROCESS = 2
RELEASE_0_1 = "bbc74a5"


class OttlaProcess:
    """A broker with a data directory of its own, removed at the end."""

    bootstrap: str
    addresses: list[str]  # of its listeners, in their order
    seconds_to_ready: float

    def __init__(
        self, config: Mapping[str, str] | None = None, *, source: Path | None = None
    ) -> None:
        self._config = dict(config or {})
        self._source = source  # the `src` of another version; None is what is installed
        self._directory = tempfile.TemporaryDirectory(prefix="ottla-bench-")
        self._process: subprocess.Popen[str] | None = None

    @property
    def data_dir(self) -> Path:
        return Path(self._directory.name) / "data"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self.stop()
        self._directory.cleanup()

    def configure(self, config: Mapping[str, str]) -> None:
        """Further settings, from the next start on."""
        self._config |= config

    def start(self) -> None:
        """Start, or start again, on the same directory."""
        began = time.monotonic()
        environment = os.environ | ({"PYTHONPATH": str(self._source)} if self._source else {})
        # An installed package has bytecode. Where storing it is off, a start compiles all sources.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self._process = subprocess.Popen(
            self._command(), stdout=subprocess.PIPE, text=True, env=environment
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self.seconds_to_ready = time.monotonic() - began
        self.addresses = line.removeprefix(READY).split()
        self.bootstrap = self.addresses[0]

    def _command(self) -> list[str]:
        command = [sys.executable, "-m", "ottla.cli", "broker", "--data-dir", str(self.data_dir)]
        if "listeners" not in self._config:
            command += ["--listen", "127.0.0.1:0"]
        for key, value in self._config.items():
            command += ["--set", f"{key}={value}"]
        return command

    def stop(self) -> float:
        """Stop it cleanly; the seconds that took."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> float:
        assert self._process is not None
        assert self._process.stdout is not None
        began = time.monotonic()
        self._process.send_signal(how)
        self._process.wait(timeout=STOP_SECONDS)
        self._process.stdout.close()
        self._process = None
        return time.monotonic() - began

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def rss_bytes(self) -> int:
        status = self._proc("status").splitlines()
        (line,) = (line for line in status if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024

    def cpu_seconds(self) -> float:
        """Of all its threads, those that have ended included; exact, not in ticks of 10 ms."""
        assert self._process is not None
        # What clock_getcpuclockid(3) gives; Python has only that of a thread.
        return time.clock_gettime(~self._process.pid << 3 | CPU_OF_PROCESS)

    def pause(self) -> None:
        """Let it do nothing at all until `resume`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def settle_disk(self) -> None:
        """Write everything out and give its memory back.

        A machine whose memory is full of cached files spends its time on finding pages, whoever
        writes; what a log costs after much has been written shows only without that.
        """
        give_back(Path(self._directory.name))

    def _proc(self, name: str) -> str:
        assert self._process is not None
        return Path(f"/proc/{self._process.pid}/{name}").read_text()


@contextmanager
def release_source(commit: str = RELEASE_0_1) -> Iterator[Path]:
    """The source of release 0.1, or of another commit, from the history of this checkout."""
    with tempfile.TemporaryDirectory(prefix="ottla-release-") as directory:
        archive = subprocess.run(
            ["git", "archive", commit, "src"],
            cwd=Path(__file__).parents[1],
            capture_output=True,
            check=False,
        )
        if archive.returncode:
            raise RuntimeError(f"needs a git checkout with the history back to {commit}")
        subprocess.run(["tar", "-x", "-C", directory], input=archive.stdout, check=True)
        yield Path(directory) / "src"


def give_back(directory: Path) -> None:
    """Write out what is below a directory, and drop it from the page cache."""
    os.sync()
    for path in directory.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class WatchedOttla(OttlaProcess):
    """One whose event loop is watched from each start to the stop after it."""

    def _command(self) -> list[str]:
        command = [sys.executable, "-m", "benchmarks._scale_monitor"]
        config = {"listeners": "PLAINTEXT://127.0.0.1:0", **self._config}
        command += [str(self._report), str(self.data_dir)]
        return command + [f"{key}={value}" for key, value in config.items()]

    @property
    def _report(self) -> Path:
        return Path(self._directory.name) / "longest-turn"

    def longest_turn(self) -> tuple[float, str]:
        """Seconds of the loop's longest turn before the last stop, and what it did."""
        seconds, _, where = self._report.read_text().partition("\n")
        return float(seconds), where
