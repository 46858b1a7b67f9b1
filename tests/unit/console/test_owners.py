"""Clusters by login: what happens when the login or the person goes in the meantime."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.console.own import Owners


class Silent:
    """A cluster whose brokers do not answer."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.is_closed = False
        self.cluster = SimpleNamespace(
            settings=SimpleNamespace(security=SimpleNamespace(has_sasl=1))
        )
        self.client = self

    async def connection_to(self, _: str) -> None:
        self.asked.set()
        await asyncio.Event().wait()

    async def close(self) -> None:
        self.is_closed = True


async def test_who_goes_during_the_login_leaves_no_connections() -> None:
    cluster: Any = Silent()
    owners = Owners(lambda _name, _password: {"local": cluster})
    checking = asyncio.create_task(owners.check("anna", "secret"))
    await cluster.asked.wait()
    checking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await checking
    await owners.close()
    assert cluster.is_closed


async def test_a_login_that_is_over_has_no_clusters() -> None:
    owners = Owners(lambda _name, _password: {})
    owners.add("cookie", "anna", "secret", 0.0)
    assert owners.of("cookie", 1.0) == {}
    owners.end("cookie")
    assert owners.of("cookie", 2.0) is None
