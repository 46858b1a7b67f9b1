"""A broker in a process of its own, to be killed, flooded and measured.

Run as a module it serves until it is told to stop, and on SIGUSR1 prints what it holds as one line
of JSON: tasks, connections, requests by API. `BrokerProcess` starts it, and reads its log.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.broker.running.run import run_broker
from ottla.metadata.config.broker import load_broker_config
from tests.support import loop_monitor
from tests.support.loop_monitor import LoopMonitor
from tests.support.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from ottla.broker.running.node import Node

READY: Final = "ottla broker ready: "
# Long for any machine under load; a broker that needs it is stuck.
PATIENCE_SECONDS: Final = 60.0


def soak() -> bool:
    """Whether this is one of the long runs."""
    return os.environ.get("HYPOTHESIS_PROFILE") == "soak"


class BrokerProcess:
    """`start`, then `kill` or `stop`, as often as wanted; the log file grows over all of it."""

    def __init__(
        self,
        directory: Path,
        *,
        config: Mapping[str, str] | None = None,
        ephemeral: bool = False,
        port: int | None = None,
        under: Sequence[str] = (),
        module: str = "tests.support.faults_broker",
    ) -> None:
        """`under` is a command that starts the one it is given, such as `nice`; `module` another
        program than this one that ends in `main`."""
        self._under = under
        self._module = module
        self.port = free_port() if port is None else port
        self.log = directory / "broker.log"
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "group.initial.rebalance.delay.ms": "0",
            **(config or {}),
        }
        data_dir = "" if ephemeral else str(directory / "data")
        self._arguments = [data_dir, *(f"{key}={value}" for key, value in settings.items())]
        self._process: subprocess.Popen[str] | None = None
        self._ready = False

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def process(self) -> subprocess.Popen[str]:
        assert self._process is not None, "not started"
        return self._process

    def start(self) -> BrokerProcess:
        self.spawn()
        self.wait_until_ready()
        return self

    def spawn(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._under, sys.executable, "-m", self._module, *self._arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=Path(__file__).parents[2],
            )

    def wait_until_ready(self) -> None:
        if self._ready:
            return
        line = self._line()
        assert line.startswith(READY), f"broker did not start: {line!r}\n{self.log_text()[-4000:]}"
        self._ready = True

    def kill(self) -> None:
        self.process.kill()
        self._reap()

    def stop(self) -> int:
        self.process.terminate()
        return self._reap()

    def _reap(self) -> int:
        status = self.process.wait(PATIENCE_SECONDS)
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()
        self._process = None
        self._ready = False
        return status

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stats(self) -> dict[str, int]:
        """What the broker says it holds."""
        self.process.send_signal(signal.SIGUSR1)
        counted: dict[str, int] = json.loads(self._line())
        return counted

    def rss_bytes(self) -> int:
        return self._memory("VmRSS:")

    def peak_bytes(self) -> int:
        """The most it ever had resident."""
        return self._memory("VmHWM:")

    def _memory(self, label: str) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith(label))
        return int(line.split()[1]) * 1024

    def log_text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def _line(self) -> str:
        stream = self.process.stdout
        assert stream is not None
        readable, _, _ = select.select([stream], [], [], PATIENCE_SECONDS)
        assert readable, f"broker says nothing\n{self.log_text()[-4000:]}"
        return stream.readline()

    def __enter__(self) -> BrokerProcess:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self.kill()


def main(data_dir: str, *sets: str) -> None:
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    monitors: list[LoopMonitor] = []

    def ready(node: Node) -> None:
        if loop_monitor.is_wanted and loop_monitor.is_possible:
            monitors.append(LoopMonitor(asyncio.get_running_loop()))
            monitors[0].start()

        def tell() -> None:
            counted = {
                "tasks": len(asyncio.all_tasks()),
                "connections": len(node.dispatcher.connections),
                "requests": sum(node.dispatcher.requests.values()),
                "topics": len(node.image.topics_by_name),
                "unsent": node.services.answers.held,
                "disconnected": node.services.answers.disconnected,
            }
            print(json.dumps(counted), flush=True)

        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, tell)
        # A test that is killed takes its broker along: nobody holds the other end any more.
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), os._exit, 1)
        host, port = next(iter(node.addresses.values()))
        print(f"{READY}{host}:{port}", flush=True)

    run_broker(load_broker_config(sets=sets), Path(data_dir) if data_dir else None, ready)
    for monitor in monitors:
        monitor.stop()
        for stall in monitor.stalls:
            print(stall, file=sys.stderr)
        if monitor.stalls:
            sys.exit(loop_monitor.EXIT_STALLED)


if __name__ == "__main__":
    main(*sys.argv[1:])
