"""npm's client of schema registries (@kafkajs/confluent-schema-registry), a process of its own.

Its packages are those of node/package-lock.json, installed once into the cache of other judges.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.support.jvm import cached

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE: Final = Path(__file__).with_name("node")
INSTALL_SECONDS: Final = 300


class NoNode(RuntimeError):
    """There is no node here, or its packages cannot be fetched."""


class NodeFailed(Exception):
    """The client refused a call; its own words."""


class NodeRegistry:
    """Calls of the client; see node/registry.js."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def call(self, name: str, **given: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"call": name, **given}) + "\n")
        self._process.stdin.flush()
        told = json.loads(self._process.stdout.readline())
        if "error" in told:
            raise NodeFailed(told["error"])
        return told.get("answer")


@contextmanager
def node_registry(url: str) -> Iterator[NodeRegistry]:
    """The client, connected to a registry."""
    command = ["node", str(HERE / "registry.js"), str(_installed()), url]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield NodeRegistry(process)
        finally:
            process.kill()


def _installed() -> Path:
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise NoNode(f"npm's registry client needs Node.js, and there is no {program} here")
    files = [HERE / "package.json", HERE / "package-lock.json"]
    digest = hashlib.sha256(b"".join(one.read_bytes() for one in files)).hexdigest()
    with cached(f"node-registry-{digest[:12]}") as (target, filling):
        if filling is not None:
            filling.mkdir()
            for one in files:
                shutil.copy(one, filling)
            command = ["npm", "ci", "--silent", "--ignore-scripts", "--no-audit", "--no-fund"]
            done = subprocess.run(
                command,
                cwd=filling,
                capture_output=True,
                text=True,
                timeout=INSTALL_SECONDS,
                check=False,
            )
            if done.returncode:
                raise NoNode(f"npm could not fetch the registry client: {done.stderr.strip()}")
    return target
