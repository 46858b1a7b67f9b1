"""What a supervisor asks of a living node is asked of another one if that node dies over it."""

from __future__ import annotations

import selectors
import subprocess
import sys
from typing import TYPE_CHECKING

from ottla.broker.running.settings import Settings
from ottla.broker.running.supervisor import Setup, Supervisor, _Process
from ottla.cluster.supervise import Ready, Started
from ottla.metadata.config.broker import BrokerConfig

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

CHILD = "import sys; print(sys.stdin.readline(), end='', flush=True); sys.stdin.read()"


def test_the_partitions_are_spread_although_the_node_that_was_asked_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = BrokerConfig({})
    setup = Setup(2, tmp_path, "text", "warning")
    announced: list[object] = []
    supervisor = Supervisor(config, Settings(config), setup, tmp_path, {}, announced.append)
    monkeypatch.setattr(supervisor, "_spawn", lambda node_id: None)
    with selectors.DefaultSelector() as selector:
        supervisor._selector = selector
        supervisor._happened(Started())
        for node in (1, 2):
            child = subprocess.Popen(
                [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            supervisor._processes[node] = _Process(child)
            selector.register(supervisor._processes[node].output, selectors.EVENT_READ, node)
            supervisor._happened(Ready(node))
        assert len(announced) == 1
        first, second = (supervisor._processes[node].popen for node in (1, 2))
        supervisor._ask_living()
        first.kill()
        first.wait()
        supervisor._look_after(1)
        supervisor._ask_living()
        assert second.stdout is not None
        assert second.stdout.readline() == b'{"settle": 2}\n'
        second.kill()
        second.wait()
        supervisor._processes[2].close()
