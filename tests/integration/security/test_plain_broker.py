"""A PLAINTEXT broker loads nothing of security (case 98)."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import os, signal, sys
from ottla.broker.running.run import run_broker
from ottla.metadata.config.broker import load_broker_config

def ready(node):
    print("\\n".join(sys.modules))
    os.kill(os.getpid(), signal.SIGTERM)

run_broker(load_broker_config(sets=["listeners=PLAINTEXT://127.0.0.1:0"]), None, ready)
"""
NONE_OF = ("ottla.security", "hmac", "cryptography", "jwt", "urllib.request", "secrets", "re2")
DOOR = ("door", "lobby", "session", "credentials", "tls_connection", "guarded_connection")


def test_case_98_a_plain_broker_loads_nothing_of_security() -> None:
    run = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    assert "ottla.broker.running.node" in loaded
    assert [name for name in NONE_OF if name in loaded] == []
    assert [name for name in loaded if name.startswith("ottla.security")] == []
    assert [name for name in DOOR if f"ottla.broker.access.{name}" in loaded] == []
