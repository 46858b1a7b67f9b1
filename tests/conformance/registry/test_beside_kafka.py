"""`ottla registry run` beside a Kafka cluster: case 21."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import ottla
from ottla import EmbeddedBroker, SchemaRegistry
from ottla.client.security import PLAINTEXT
from ottla.registry.standalone import Standalone
from ottla.schemas.registry_client import RegistryRefused
from tests.support.names import fresh

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.long
TEXT = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
NO_DEFAULT = TEXT.replace("]}", ',{"name":"b","type":"int"}]}')
DEFAULT = TEXT.replace("]}", ',{"name":"b","type":"int","default":0}]}')


@pytest.fixture(params=["ottla", "apache"])
def bootstrap(request: pytest.FixtureRequest) -> str:
    if request.param == "apache":
        found: str = request.getfixturevalue("apache_bootstrap")
        return found
    broker: EmbeddedBroker = request.getfixturevalue("ottla_broker")
    return broker.bootstrap


@pytest.fixture
async def topic() -> str:
    return fresh("schemas")


@pytest.fixture
async def beside(bootstrap: str, topic: str) -> AsyncIterator[Standalone]:
    standalone = Standalone(bootstrap, topic, PLAINTEXT)
    await standalone.start("127.0.0.1", 0)
    yield standalone
    await standalone.close()


async def test_case_21_register_refuse_delete_and_start_again(
    bootstrap: str, topic: str, beside: Standalone
) -> None:
    async with SchemaRegistry(beside.url) as registry:
        first = await registry.register("a-value", TEXT)
        assert (first.version, (await registry.by_id(first.id)).text) == (1, TEXT)
        assert (await registry.register("a-value", TEXT)).id == first.id
        with pytest.raises(RegistryRefused, match="b") as refused:
            await registry.register("a-value", NO_DEFAULT)
        assert refused.value.code == 409
        second = await registry.register("a-value", DEFAULT)
        assert await registry.delete("a-value", 2) == [2]
        assert await registry.versions("a-value") == [1]
    again = Standalone(bootstrap, topic, PLAINTEXT)
    await again.start("127.0.0.1", 0)
    try:
        async with SchemaRegistry(again.url) as registry:
            assert await registry.versions("a-value", deleted=True) == [1, 2]
            assert (await registry.by_id(second.id)).text == DEFAULT
    finally:
        await again.close()


async def test_case_21_a_second_registry_takes_over(
    bootstrap: str, topic: str, beside: Standalone
) -> None:
    async with SchemaRegistry(beside.url) as registry:
        await registry.register("a-value", TEXT)
    other = Standalone(bootstrap, topic, PLAINTEXT)
    await other.start("127.0.0.1", 0)
    try:
        async with SchemaRegistry(other.url) as registry:
            taken = await registry.register("b-value", '"int"')
        async with SchemaRegistry(beside.url, timeout=0.3) as registry:
            with pytest.raises(RegistryRefused) as refused:
                await registry.register("c-value", '"long"')
        assert refused.value.code in (50001, 50003)
        await asyncio.wait_for(beside.taken_over(), 30)
        async with SchemaRegistry(other.url) as registry:
            assert await registry.subjects() == ["a-value", "b-value"]
            assert (await registry.register("c-value", '"long"')).id == taken.id + 1
    finally:
        await other.close()


def test_the_command_serves_until_it_is_told_to_stop(ottla_broker: EmbeddedBroker) -> None:
    command = ["registry", "run", "--bootstrap", ottla_broker.bootstrap, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        [sys.executable, "-m", "ottla.cli", *command, "--topic", fresh("schemas")],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            assert line.startswith("ottla registry ready: http://127.0.0.1:")
            url = line.split(": ", 1)[1].strip()

            async def subjects() -> list[str]:
                async with ottla.SchemaRegistry(url) as registry:
                    return await registry.subjects()

            assert asyncio.run(subjects()) == []
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
