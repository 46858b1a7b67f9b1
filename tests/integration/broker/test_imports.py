"""Modules are imported when they are first needed, and never by the event loop."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys, threading
from ottla.testing.embedded import EmbeddedBroker
from tests.support.faults_client import PlainClient
from tests.support import import_requests

found = []

class Noting:
    def find_spec(self, name, path=None, target=None):
        if threading.current_thread().name == "ottla-broker" and name.startswith("ottla."):
            found.append(name)
        return None

with EmbeddedBroker() as broker:
    port = int(broker.bootstrap.rpartition(":")[2])
    before = set(sys.modules)
    sys.meta_path.insert(0, Noting())
    with PlainClient(port) as client:
        import_requests.ask_all(client)
    late = {name for name in set(sys.modules) - before if name.startswith("ottla.broker.")}
sys.meta_path.pop(0)
assert "ottla.broker.coordinators.groups" in late, late
assert not found, found
"""


def test_the_loop_imports_nothing_while_it_serves() -> None:
    run = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
