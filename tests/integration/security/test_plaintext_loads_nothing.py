"""Case 98: a broker whose listeners are PLAINTEXT loads nothing of TLS, SASL and ACLs."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

CODE = """
import asyncio, sys
from pathlib import Path
from ottla.broker.running.node import Node
from ottla.metadata.config.broker import load_broker_config

async def main(directory):
    config = load_broker_config(sets=["listeners=PLAINTEXT://127.0.0.1:0"])
    node = await Node.start(config, Path(directory), ephemeral=True)
    port = node.addresses["PLAINTEXT"][1]
    print(*found("hashlib"))
    await asyncio.to_thread(asked, port)
    await node.stop()

def asked(port):
    from tests.support.faults_client import PlainClient
    from tests.support import import_requests
    with PlainClient(port) as client:
        import_requests.ask_all(client)

def found(*more):
    unwanted = ("ottla.security", "hmac", "cryptography", "jwt", "urllib.request", *more)
    return [one for one in sys.modules if one.startswith(unwanted)]

asyncio.run(main(sys.argv[1]))
print(*found())  # group coordinators have a use for hashlib
"""


def test_98_nothing_of_security_is_loaded(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "\n\n"
