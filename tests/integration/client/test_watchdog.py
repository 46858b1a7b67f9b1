"""No call hangs past its own timeout, whatever the broker does or does not do.

The brokers: one that accepts and never answers, one that answers what finds its way and nothing
else, one that is gone. `WATCH` is far above all timeouts that the clients are given here.
"""

from __future__ import annotations

import asyncio
import inspect
import socket
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from ottla import Admin, Producer, Reader, ShareConsumer
from ottla.errors import OttlaError
from ottla.wire.schema.api_versions import ApiVersionsRequest
from ottla.wire.schema.metadata import MetadataRequest
from tests.support.client_broker import Instead, ScriptedBroker, describe
from tests.support.junk import NEEDS, public_calls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

WATCH = 30.0
SHORT = 0.2
ADMIN = [name.partition(".")[2] for name, _ in public_calls(Admin)]
PRODUCER = [
    name.partition(".")[2] for name, _ in public_calls(Producer) if "transaction" not in name
]
REQUIRED: dict[str, dict[str, Any]] = {
    "Admin.delete_group": {"name": "g"},
    "Admin.delete_groups": {"names": ["g"]},
    "Admin.delete_records": {"before": {("good", 0): 1}},
    "Admin.delete_share_group": {"name": "g"},
    "Admin.delete_share_groups": {"names": ["g"]},
    "Admin.delete_topic": {"name": "good"},
    "Admin.delete_topics": {"names": ["good"]},
    "Admin.describe_groups": {"names": ["g"]},
    "Admin.describe_producers": {"of": ["good"]},
    "Admin.describe_share_groups": {"names": ["g"]},
    "Admin.describe_transactions": {"transactional_ids": ["t"]},
    "Admin.fence_producer": {"transactional_id": "t"},
    "Admin.list_group_offsets": {"group": "g"},
    "Admin.list_share_group_offsets": {"group": "g"},
}


class MuteBroker(ScriptedBroker):
    """Says which versions it knows and where partitions are, and nothing else."""

    def _answer(self, request: Any, api_key: int, version: int) -> tuple[Any, int]:
        if isinstance(request, ApiVersionsRequest | MetadataRequest):
            return super()._answer(request, api_key, version)
        return Instead.SILENCE, version


class SilentBroker(ScriptedBroker):
    """Accepts, and says nothing."""

    def _answer(self, request: Any, api_key: int, version: int) -> tuple[Any, int]:
        return Instead.SILENCE, version


@asynccontextmanager
async def broker_that_is(kind: str) -> AsyncIterator[str]:
    if kind == "gone":
        with socket.create_server(("127.0.0.1", 0)) as unused:
            port = unused.getsockname()[1]
        yield f"127.0.0.1:{port}"
        return
    async with (MuteBroker if kind == "mute" else SilentBroker)() as broker:
        describe({1: broker}, {"good": [1]}, controller=1)
        yield broker.bootstrap


@pytest.fixture(params=["mute", "silent", "gone"])
async def bootstrap(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    async with broker_that_is(request.param) as found:
        yield found


async def ends(client: Any, name: str) -> None:
    """Whether it fails or not, the call ends."""
    call = f"{type(client).__name__}.{name}"
    made = getattr(client, name)(**{**NEEDS.get(call, {}), **REQUIRED.get(call, {})})
    if inspect.isawaitable(made):
        with suppress(OttlaError):
            await made


async def test_every_call_of_an_admin_ends(bootstrap: str) -> None:
    async with asyncio.timeout(WATCH), asyncio.TaskGroup() as group:
        for name in ADMIN:
            admin = Admin(bootstrap, request_timeout=SHORT, api_timeout=2 * SHORT)
            group.create_task(ends(admin, name), name=name)


async def test_every_call_of_a_producer_ends(bootstrap: str) -> None:
    short: dict[str, Any] = {
        "max_block_ms": 2000 * SHORT,
        "delivery_timeout_ms": 2000 * SHORT,
        "request_timeout_ms": 1000 * SHORT,
    }
    async with asyncio.timeout(WATCH):
        for name in PRODUCER:
            async with Producer(bootstrap, **short) as producer:
                await asyncio.gather(*(ends(producer, name) for _ in range(5)))
                await producer.flush()
        async with Producer(bootstrap, transactional_id="t", **short) as producer:
            with pytest.raises(OttlaError):
                async with producer.transaction():
                    pass


async def test_readers_and_consumers_are_not_opened_for_ever(bootstrap: str) -> None:
    short: dict[str, Any] = {"request_timeout": SHORT, "api_timeout": 2 * SHORT}
    async with asyncio.timeout(WATCH):
        with pytest.raises(OttlaError):
            async with Reader(bootstrap, "good", **short):
                pass
        with pytest.raises(OttlaError):
            async with ShareConsumer(
                bootstrap, group="g", topics=["good"], max_wait=SHORT / 2, **short
            ):
                pass
