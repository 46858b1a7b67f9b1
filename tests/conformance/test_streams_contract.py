"""The streams contract on every backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.streams import (
    ConnectOptions,
    Create,
    FileOptions,
    RedisOptions,
    StdioOptions,
)
from tests.support.stream_brokers import kafka_contract
from tests.support.streams_contract import CONTRACT, Store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from ottla import EmbeddedBroker
    from tests.services import RedisServer


@pytest.fixture
def file_store(tmp_path: Path) -> Store:
    options = FileOptions(create=Create.IF_MISSING, beacon_interval=1024)
    return Store(f"file://{tmp_path}/x.ss/main", ConnectOptions(file=options))


@pytest.fixture
def stdio_store() -> Store:
    return Store("stdio:///main", ConnectOptions(stdio=StdioOptions(loopback=True)))


@pytest.fixture
def redis_store(redis_server: RedisServer, tmp_path: Path) -> Store:
    options = RedisOptions(mkstream=True, block=0.2)
    return Store(f"{redis_server.url}/contract-{tmp_path.name}", ConnectOptions(redis=options))


@pytest.fixture
def kafka_store(ottla_broker: EmbeddedBroker, ottla_topic: str) -> Store:
    return kafka_contract(ottla_broker.bootstrap, ottla_topic)


@pytest.mark.parametrize("case", CONTRACT, ids=lambda case: case.__name__)
@pytest.mark.parametrize("store_name", ["file_store", "stdio_store", "redis_store", "kafka_store"])
async def test_contract(
    case: Callable[[Store], Awaitable[None]], store_name: str, request: pytest.FixtureRequest
) -> None:
    await case(request.getfixturevalue(store_name))
