"""No call hangs past its own timeout, whatever the broker does or does not do.

The brokers: one that accepts and never answers, one that answers what finds its way and nothing
else, one that is gone, one that is frozen. `WATCH` is far above all timeouts that the clients are
given here.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
import socket
import subprocess
import sys
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from ottla import Admin, Consumer, Producer, Reader, ShareConsumer
from ottla.errors import BrokerUnreachable, OttlaError, RequestTimedOut
from ottla.wire.schema.api_versions import ApiVersionsRequest
from ottla.wire.schema.metadata import MetadataRequest
from tests.support.client_broker import Instead, ScriptedBroker, describe
from tests.support.junk import NEEDS, public_calls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

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
    "Consumer.subscribe": {"topics": ["good"]},
    "Reader.seek": {"to": "latest"},
    "ShareConsumer.subscribe": {"topics": ["good"]},
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
    with suppress(OttlaError):
        made = getattr(client, name)(**{**NEEDS.get(call, {}), **REQUIRED.get(call, {})})
        if inspect.isasyncgen(made):
            # It gives what has come before, then it fails: reading does not wait for ever.
            async for _ in made:
                pass
        elif inspect.isawaitable(made):
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


async def test_readers_and_share_consumers_are_not_opened_for_ever(bootstrap: str) -> None:
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


async def test_the_timeout_of_a_reader_is_for_opening_as_a_whole() -> None:
    """It was for each attempt, and for the time after the first one that failed."""
    async with asyncio.timeout(WATCH), broker_that_is("silent") as bootstrap:
        with pytest.raises(RequestTimedOut, match=r"given up after 0.4 s: "):
            async with Reader(bootstrap, "good", api_timeout=2 * SHORT):
                pass


CONSUMER = [name.partition(".")[2] for name, _ in public_calls(Consumer)]
READER = [name.partition(".")[2] for name, _ in public_calls(Reader)]
SHARE = [name.partition(".")[2] for name, _ in public_calls(ShareConsumer)]


async def test_every_call_of_a_consumer_ends(bootstrap: str) -> None:
    short: dict[str, Any] = {"request_timeout": SHORT, "api_timeout": 2 * SHORT, "topics": ["good"]}
    for protocol in ("consumer", "classic"):
        for name in (*CONSUMER, "__aiter__"):
            async with watched(f"Consumer.{name}"):
                consumer = Consumer(bootstrap, group="g", protocol=protocol, **short)
                async with consumer:
                    await ends(consumer, name)
                    await consumer.close(SHORT)


@pytest.fixture(scope="module")
def stopped() -> Iterator[tuple[str, Callable[[bool], None]]]:
    """A broker of its own process, and how to freeze it: it accepts, and does nothing else."""
    words = [sys.executable, "-m", "ottla.cli", "broker", "--port", "0", "--ephemeral"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        bootstrap = process.stdout.readline().rpartition(" ")[2].strip()

        def freeze(frozen: bool) -> None:
            process.send_signal(signal.SIGSTOP if frozen else signal.SIGCONT)

        try:
            yield bootstrap, freeze
        finally:
            freeze(False)
            process.kill()


def client_of(bootstrap: str, kind: str, group: str) -> Any:
    """Many of them are opened at once, while the broker answers, so they are given some time."""
    short: dict[str, Any] = {"request_timeout": 15 * SHORT, "api_timeout": 30 * SHORT}
    match kind:
        case "Admin":
            return Admin(bootstrap, **short)
        case "Reader":
            return Reader(bootstrap, "good", **short)
        case "Consumer":
            return Consumer(bootstrap, group=group, topics=["good"], **short)
        case "ShareConsumer":
            return ShareConsumer(
                bootstrap,
                group=group,
                topics=["good"],
                ack_mode="explicit",
                max_wait=SHORT,
                **short,
            )
        case _:
            return Producer(
                bootstrap,
                max_block_ms=30_000 * SHORT,
                delivery_timeout_ms=30_000 * SHORT,
                request_timeout_ms=15_000 * SHORT,
            )


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("Admin", ADMIN),
        ("Consumer", [*CONSUMER, "__aiter__"]),
        ("Producer", PRODUCER),
        ("Reader", READER),
        ("ShareConsumer", [*SHARE, "__anext__"]),
    ],
)
async def test_every_call_ends_when_the_broker_is_frozen_meanwhile(
    stopped: tuple[str, Callable[[bool], None]], kind: str, names: list[str]
) -> None:
    """The clients were connected, and have work: the connections stay open and nobody answers."""
    bootstrap, freeze = stopped
    async with Producer(bootstrap) as producer:
        await producer.send("good", b"v")
    opened = {name: client_of(bootstrap, kind, f"{kind}-{name}") for name in names}

    async def at_work(client: Any) -> None:
        await client.__aenter__()
        if kind == "Consumer":
            records: object = None
            while not records:
                with suppress(BrokerUnreachable):  # all of them join at once: it may take longer
                    records = await client.poll()

    async with asyncio.timeout(WATCH):
        await asyncio.gather(*map(at_work, opened.values()))
    freeze(True)
    try:

        async def call(name: str) -> None:
            async with watched(f"{kind}.{name}"):
                await ends(opened[name], name)
            async with watched(f"{kind}.close after {name}"):
                in_time = {} if kind in ("Admin", "Reader") else {"timeout": SHORT}
                await opened[name].close(**in_time)

        await asyncio.gather(*(call(name) for name in names))
    finally:
        freeze(False)


@asynccontextmanager
async def watched(call: str) -> AsyncIterator[None]:
    """A call ends by itself: what is cancelled here has hung."""
    try:
        async with asyncio.timeout(WATCH) as limit:
            yield
    except TimeoutError:
        if limit.expired():
            pytest.fail(f"{call} has not ended after {WATCH} s")
        raise
