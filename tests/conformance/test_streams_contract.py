"""The streams contract on every backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.streams import ConnectOptions, Create, FileOptions, StdioOptions
from tests.support.streams_contract import CONTRACT, Store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path


@pytest.fixture
def file_store(tmp_path: Path) -> Store:
    options = FileOptions(create=Create.IF_MISSING, beacon_interval=1024)
    return Store(f"file://{tmp_path}/x.ss/main", ConnectOptions(file=options))


@pytest.fixture
def stdio_store() -> Store:
    return Store("stdio:///main", ConnectOptions(stdio=StdioOptions(loopback=True)))


@pytest.mark.parametrize("case", CONTRACT, ids=lambda case: case.__name__)
@pytest.mark.parametrize("store_name", ["file_store", "stdio_store"])
async def test_contract(
    case: Callable[[Store], Awaitable[None]], store_name: str, request: pytest.FixtureRequest
) -> None:
    await case(request.getfixturevalue(store_name))
