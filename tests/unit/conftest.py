"""Unit tests are pure: a test below this folder that starts a process or opens a socket fails.

Files below `tmp_path` are fine. Tests that need more belong to tests/integration.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE: Final = Path(__file__).parent
PROCESSES: Final = frozenset(
    {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system"}
)
NETWORK: Final = frozenset({socket.AF_INET, socket.AF_INET6})

_running: list[str] = []
_seen: list[str] = []


class NotPureError(RuntimeError):
    """A unit test did what only integration tests may do."""


def _watch(event: str, args: tuple[Any, ...]) -> None:
    if not _running:
        return
    if event in PROCESSES:
        _refuse(f"started a process ({event}: {args[0] if args else ''})")
    elif event == "socket.__new__" and args[1] in NETWORK:  # the pair of an event loop is AF_UNIX
        _refuse("opened a network socket")
    elif event in {"socket.bind", "socket.connect"}:
        _refuse(f"opened a socket ({event}: {args[1]})")


def _refuse(deed: str) -> None:
    message = f"{_running[-1]} {deed}; unit tests are pure: move it to tests/integration"
    _seen.append(message)
    raise NotPureError(message)


def taken() -> list[str]:
    """What was refused since the last call."""
    said = _seen.copy()
    _seen.clear()
    return said


sys.addaudithook(_watch)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    if HERE in item.path.parents:  # pytest calls this for tests of other folders, too
        _running.append(item.nodeid)
    try:
        return (yield)
    finally:
        _running.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """Fails also where the code under test has caught the error."""
    try:
        return (yield)
    finally:
        if said := taken():
            pytest.fail("\n".join(said), pytrace=False)
