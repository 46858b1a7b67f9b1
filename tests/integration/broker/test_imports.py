"""Modules are imported when they are first needed, and never by the event loop."""

from __future__ import annotations

import subprocess
import sys

import pytest

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

TIERED = """
import sys, tempfile, threading, time
from ottla.broker.tiering.tiering import Tiering
from ottla.testing.embedded import EmbeddedBroker

found = []
read = Tiering._read_catalogue

class Noting:
    def find_spec(self, name, path=None, target=None):
        if threading.current_thread().name == "ottla-broker" and name.startswith("ottla."):
            found.append(name)
        return None

async def noted(self):
    sys.meta_path.insert(0, Noting())
    await read(self)

Tiering._read_catalogue = noted
assert "ottla.client.admin.admin" not in sys.modules
with tempfile.TemporaryDirectory() as store:
    config = {"remote.log.storage.system.enable": "true", "rsm.config.url": "file://" + store}
    with EmbeddedBroker(config=config) as broker:
        tiering = broker._node.services.tiering()
        deadline = time.monotonic() + 60
        while tiering.manager is None:
            assert time.monotonic() < deadline, tiering.alarm
            time.sleep(0.01)
assert "ottla.client.admin.admin" in sys.modules
assert not found, found
"""


@pytest.mark.parametrize("code", [CODE, TIERED], ids=["plain", "tiered"])
def test_the_loop_imports_nothing_while_it_serves(code: str) -> None:
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


PLAIN = """
import sys
from ottla.testing.embedded import EmbeddedBroker

with EmbeddedBroker():
    assert "encodings.idna" not in sys.modules
    rooms = "ottla.registry", "ottla.schemas", "ottla.http"
    found = [name for name in sys.modules if name.startswith(rooms)]
    assert not found, found
"""


LISTENING = """
import http.client, json, sys
from ottla.testing.embedded import EmbeddedBroker

def loaded():
    return [name for name in sys.modules if name.startswith(("ottla.registry", "ottla.http"))]

with EmbeddedBroker(registry=True) as broker:
    assert not loaded(), loaded()
    asked = http.client.HTTPConnection(broker.registry_url.removeprefix("http://"))
    asked.request("GET", "/subjects")
    assert json.load(asked.getresponse()) == []
    assert "ottla.registry.routes" in loaded()
with EmbeddedBroker(registry=True):
    pass
"""


@pytest.mark.parametrize("code", [PLAIN, LISTENING])
def test_a_broker_loads_nothing_that_it_does_not_use(code: str) -> None:
    """The codec of international names takes half a megabyte; rooms take their time.

    A registry without schemas is loaded when somebody connects.
    """
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
