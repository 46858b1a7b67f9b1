"""What a broker does not do on its way to the first answer."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from ottla import EmbeddedBroker
from ottla.broker.hosting.partitions import BATCH
from ottla.broker.running.binding import bound
from ottla.broker.running.node import Node
from ottla.broker.serving.dispatch import Dispatcher
from ottla.broker.topics import create_topic
from ottla.metadata.config.broker import load_broker_config
from tests.support.raw_client import RawClient, batch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "0.0.0.0", ""])
async def test_an_address_is_looked_up_without_a_thread(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_thread(look_up: Callable[..., Any], **options: Any) -> Any:
        raise AssertionError(f"{host!r} was looked up in a thread")

    monkeypatch.setattr(asyncio, "to_thread", no_thread)
    for one in await bound(host, 0):
        one.close()


async def test_a_name_is_looked_up_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    async def in_a_thread(look_up: Callable[..., Any], **options: Any) -> Any:
        asked.append(options)
        return look_up(**options)

    monkeypatch.setattr(asyncio, "to_thread", in_a_thread)
    for one in await bound("localhost", 0):
        one.close()
    assert len(asked) == 1


def test_a_second_broker_of_a_process_loads_no_api_again(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[int] = []
    load = Dispatcher._load

    def noted(dispatcher: Dispatcher, api_key: int) -> None:
        loaded.append(api_key)
        load(dispatcher, api_key)

    monkeypatch.setattr("ottla.broker.serving.dispatch._LOADED", set())
    monkeypatch.setattr(Dispatcher, "_load", noted)
    for _ in range(2):
        with EmbeddedBroker() as broker, RawClient(broker.bootstrap) as client:
            client.topic("orders", create=True)
            assert client.produce("orders", batch(b"value")).error_code == 0
            assert client.fetch_one("orders", 0).error_code == 0
    assert sorted(loaded) == [0, 1, 3]


async def test_an_ephemeral_broker_makes_logs_on_the_loop_and_serves_others_between(
    tmp_path: Path,
) -> None:
    """There is no disk to wait for, so there is no thread to wait for either."""
    import ottla.log.partition  # noqa: F401 (the first log of a process is made by a worker)

    config = load_broker_config(sets=["listeners=PLAINTEXT://127.0.0.1:0"])
    node = await Node.start(config, tmp_path, ephemeral=True)
    try:
        count = 5 * BATCH
        await create_topic(node.cluster, "orders", partitions=count)
        before = threading.active_count()
        opening = node.partitions.opening([("orders", index) for index in range(count)], write=True)
        assert opening is not None
        task = asyncio.ensure_future(opening)
        turns = 0
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        assert turns > count // BATCH
        assert len(list(node.partitions)) == count
        assert threading.active_count() == before
    finally:
        await node.stop()
