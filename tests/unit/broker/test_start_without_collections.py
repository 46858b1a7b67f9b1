"""The collector rests while a broker's process starts: all that is made then stays."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from ottla.broker.running import run
from ottla.broker.running.run import serve

if TYPE_CHECKING:
    import asyncio


async def test_the_collector_rests_during_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 100,000 ACLs it took a second of the start."""
    did: list[str] = []
    names = ("disable", "enable", "freeze")
    calls: dict[str, Any] = {name: lambda name=name: did.append(name) for name in names}
    monkeypatch.setattr(run, "gc", SimpleNamespace(**calls, callbacks=[]))

    async def stop() -> None:
        did.append("stop")

    async def start() -> Any:
        did.append("start")
        return SimpleNamespace(entrance=SimpleNamespace(look_again=lambda: None), stop=stop)

    async def begin(_: Any, stops: asyncio.Event) -> None:
        did.append("ready")
        stops.set()

    await serve(cast("Any", start()), begin, None)
    assert did == ["disable", "start", "enable", "freeze", "ready", "stop"]


async def test_a_start_that_fails_leaves_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[str] = []
    calls: dict[str, Any] = {
        name: lambda name=name: did.append(name) for name in ("disable", "enable")
    }
    monkeypatch.setattr(run, "gc", SimpleNamespace(**calls))

    async def start() -> Any:
        raise OSError("the port is taken")

    async def begin(_: Any, __: asyncio.Event) -> None:
        raise AssertionError

    with pytest.raises(OSError, match="taken"):
        await serve(cast("Any", start()), begin, None)
    assert did == ["disable", "enable"]
