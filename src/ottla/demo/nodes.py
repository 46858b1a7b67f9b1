"""The broker: three node processes with one address, of which one is killed.

`serve` is what `ottla broker --nodes 3 --console-listen 127.0.0.1:0` does, in a child process, with
two listeners: INSIDE for the house, without a password, and SHOPS for the shops, with TLS and
passwords (`shops`). Its nodes also run the worker that keeps the topic as a table (`table`).

Nothing tells the other parts of the demo that a node has died: their clients find out and go on.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import TYPE_CHECKING, Final

from ottla.demo.child import watch_parent
from ottla.demo.crew import Child, ChildFailed
from ottla.demo.stage import BROKER_SETTINGS, INSIDE, NODES, SHOPS

if TYPE_CHECKING:
    from types import TracebackType

    from ottla.broker.running.supervisor import Served
    from ottla.demo.stage import Stage

KILLED: Final = 2
"""The node that is killed: it leads a partition of the orders, as each does."""
LOOK_SECONDS: Final = 0.05
STOP_SECONDS: Final = 20.0


def serve(stage: Stage) -> None:
    """Run the nodes until the parent of this process asks for the end, or is gone."""
    from ottla.broker.running.logs import set_up_logging
    from ottla.broker.running.supervisor import Setup, run_nodes
    from ottla.metadata.config.broker import load_broker_config

    watch_parent(lambda: os.kill(os.getpid(), signal.SIGTERM))
    set_up_logging("text", "warning")
    config = load_broker_config(sets=[f"{key}={value}" for key, value in settings(stage).items()])

    def tell(served: Served) -> None:
        addresses = {name: f"{host}:{port}" for name, (host, port) in served.addresses.items()}
        ready = stage.served.with_suffix(".new")
        ready.write_text(json.dumps({**addresses, "console": served.console}))
        ready.rename(stage.served)

    raise SystemExit(run_nodes(config, Setup(NODES, stage.broker_data, "text", "warning"), tell))


def settings(stage: Stage) -> dict[str, str]:
    return {
        **BROKER_SETTINGS,
        "ottla.console.listener": "http://127.0.0.1:0",
        "ottla.audit.file": str(stage.logs / "audit.log"),
        "ottla.table.worker": "child",
        "ottla.table.nice": "0",  # it has a minute
        "ottla.table.warehouse": stage.tables.as_uri(),
        "rsm.config.url": stage.tier.as_uri(),
        f"listener.name.{SHOPS.lower()}.ssl.keystore.location": str(stage.key_store),
    }


class Nodes:
    """The child process with the nodes, from `async with` on until it is left."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def __aenter__(self) -> Nodes:
        self._child = Child(self._stage, "nodes", "nodes", ())
        try:
            while not self._stage.served.exists():
                self.look()
                await asyncio.sleep(LOOK_SECONDS)
        except BaseException:
            self._child.kill()
            raise
        return self

    def stage(self) -> Stage:
        """The stage with the addresses of the broker."""
        told = json.loads(self._stage.served.read_text())
        return self._stage._replace(
            bootstrap=told[INSIDE], shops=told[SHOPS], console=told["console"]
        )

    def look(self) -> None:
        """`ChildFailed` if the supervisor has ended."""
        self._child.look()

    def kill_one(self) -> int:
        """Kill a node with SIGKILL; returns the process that it was."""
        process = self.process_of(KILLED)
        if process is None:
            raise ChildFailed(f"node {KILLED} is not running; look at {self._stage.logs}/nodes.log")
        os.kill(process, signal.SIGKILL)
        return process

    def process_of(self, node: int) -> int | None:
        """The process of a node, from the lock of its directory."""
        text = (self._stage.broker_data / f"node.{node}" / ".lock").read_text().strip()
        return int(text) if text else None

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._child.ask_to_end()
        for _ in range(round(STOP_SECONDS / LOOK_SECONDS)):
            if not self._child.is_running:
                break
            await asyncio.sleep(LOOK_SECONDS)
        self._child.kill()
