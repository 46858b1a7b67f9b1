"""Wrong arguments of every kind for every public method: refused as ours, and the next call works.

One client of each kind lives through all of it.
"""

from __future__ import annotations

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ottla
from ottla import Admin, Consumer, Producer, Reader, ShareConsumer, sync
from ottla.client import extras
from ottla.client.transactions.transaction import Transaction
from ottla.errors import BadArgument, KafkaError, OttlaError
from tests.support.junk import NEEDS, Spot, spots, values
from tests.support.sizes import examples

if TYPE_CHECKING:
    from collections.abc import Callable

# Calls end by their own timeout, API_TIMEOUT; a call that has not ended by then hangs.
WATCH = 60.0
API_TIMEOUT = 5.0
# A close ends the client, or does not; either way there is nothing to go on with.
CLOSES = ("Consumer.close", "Producer.close", "ShareConsumer.close")
FIELDS = {
    "Admin": "admin",
    "Consumer": "consumer",
    "Producer": "producer",
    "Reader": "reader",
    "ShareConsumer": "share_consumer",
    "Transaction": "transaction",
}
SPOTS = [
    spot
    for spot in spots(Admin, Consumer, Producer, Reader, ShareConsumer, Transaction)
    if spot.call not in CLOSES
]


class Clients:
    """One of each kind, and a call of each that has to work whatever happened before."""

    def __init__(self, bootstrap: str) -> None:
        short: dict[str, Any] = {"api_timeout": API_TIMEOUT}
        self.admin = Admin(bootstrap, **short)
        self.producer = Producer(bootstrap, max_block_ms=API_TIMEOUT * 1000)
        self.guarded = Producer(bootstrap, transactional_id="t", max_block_ms=API_TIMEOUT * 1000)
        self.reader = Reader(bootstrap, "good", **short)
        self.consumer = Consumer(bootstrap, group="readers", topics=["good"], **short)
        self.share_consumer = ShareConsumer(
            bootstrap, group="share", topics=["good"], ack_mode="explicit", **short
        )
        self._stack = AsyncExitStack()

    async def open(self) -> None:
        with suppress(KafkaError):  # another test has made it
            await self.admin.create_topic("good", 1)
        await self.producer.send("good", b"first")
        for one in (
            self.admin,
            self.producer,
            self.guarded,
            self.reader,
            self.consumer,
            self.share_consumer,
        ):
            await self._stack.enter_async_context(one)

    async def close(self) -> None:
        await self._stack.aclose()

    async def attempt(self, spot: Spot, junk: object) -> None:
        owner, _, name = spot.call.partition(".")
        arguments = {**NEEDS[spot.call], spot.parameter: junk}
        async with asyncio.timeout(WATCH):
            if owner == "Transaction":
                async with self.guarded.transaction() as transaction:
                    await transaction.send_offsets(**arguments)
                return
            made = getattr(getattr(self, FIELDS[owner]), name)(**arguments)
            given = await made if inspect.isawaitable(made) else made
            if owner == "ShareConsumer" and name in ("poll", "take"):
                for record in given:
                    self.share_consumer.acknowledge(record)
            elif name == "poll_arrow":
                self.share_consumer.acknowledge(given)

    async def still_work(self, owner: str) -> None:
        async with asyncio.timeout(WATCH):
            await getattr(self, f"_good_{FIELDS[owner]}")()

    async def _good_admin(self) -> None:
        assert await self.admin.list_offsets(["good"], "earliest")

    async def _good_producer(self) -> None:
        assert (await self.producer.send("good", b"v")).topic == "good"

    async def _good_transaction(self) -> None:
        async with self.guarded.transaction():
            await self.guarded.send("good", b"in a transaction")

    async def _good_reader(self) -> None:
        await self.reader.seek("earliest")
        assert await self.reader.read_many(1)

    async def _good_consumer(self) -> None:
        self.consumer.subscribe(["good"])
        self.consumer.resume()
        await self.producer.send("good", b"more")
        while not await self.consumer.poll(0.2):
            await self.producer.send("good", b"more")
        await self.consumer.commit()

    async def _good_share_consumer(self) -> None:
        self.share_consumer.subscribe(["good"])
        record: list[Any] = []
        while not record:
            await self.producer.send("good", b"work")
            record = await self.share_consumer.poll(0.2)
        for one in record:
            self.share_consumer.acknowledge(one)
        await self.share_consumer.commit()


@pytest.fixture(autouse=True, scope="module")
def loaded() -> None:
    """pytest would compile it in a thread, while Hypothesis changes how deep calls may go: Python
    3.11 then refuses the syntax tree."""
    extras._load("reader.decode")


def test_every_method_is_tried() -> None:
    assert {spot.call for spot in SPOTS} == NEEDS.keys()


@pytest.mark.sampled
def test_the_next_good_call_works(ottla_broker: ottla.EmbeddedBroker) -> None:
    with asyncio.Runner() as runner:
        clients = Clients(ottla_broker.bootstrap)
        runner.run(clients.open())
        refused = 0

        @given(spot=st.sampled_from(SPOTS), junk=values)
        @settings(max_examples=examples(300))
        def check(spot: Spot, junk: object) -> None:
            nonlocal refused
            try:
                runner.run(clients.attempt(spot, junk))
            except BadArgument:
                refused += 1
            except OttlaError:
                pass  # a good argument, for something that is not there
            runner.run(clients.still_work(spot.call.partition(".")[0]))

        try:
            check()
        finally:
            runner.run(clients.close())
        assert refused > examples(300) // 3


async def test_a_close_refuses_what_is_no_time(ottla_broker: ottla.EmbeddedBroker) -> None:
    clients = Clients(ottla_broker.bootstrap)
    await clients.open()
    for client in (clients.producer, clients.share_consumer, clients.consumer):
        for wrong in ("1", -1, float("nan"), [None]):
            try:
                await client.close(timeout=wrong)  # type: ignore[arg-type]
            except BadArgument as error:
                assert str(error).startswith("timeout: expected")  # noqa: PT017
            else:
                raise AssertionError(f"{wrong!r} was taken")
    await clients.still_work("Producer")
    await clients.still_work("ShareConsumer")
    await clients.still_work("Consumer")
    await clients.close()


class Twins:
    """The blocking twin of each client; every call of one is watched from another thread."""

    def __init__(self, bootstrap: str) -> None:
        short: dict[str, Any] = {"api_timeout": API_TIMEOUT}
        self.admin = sync.Admin(bootstrap, **short)
        self.producer = sync.Producer(bootstrap, max_block_ms=API_TIMEOUT * 1000)
        self.reader = sync.Reader(bootstrap, "good", **short)
        self.consumer = sync.Consumer(bootstrap, group="twin", topics=["good"], **short)
        self.share_consumer = sync.ShareConsumer(
            bootstrap, group="twin-share", topics=["good"], ack_mode="explicit", **short
        )
        self._caller = ThreadPoolExecutor(1)

    def call(self, function: Callable[..., Any], **arguments: Any) -> Any:
        return self._caller.submit(function, **arguments).result(WATCH)

    def open(self, stack: ExitStack) -> None:
        self.producer.send("good", b"first")
        for one in (self.admin, self.producer, self.reader, self.consumer, self.share_consumer):
            stack.enter_context(one)
        stack.callback(self._caller.shutdown)

    def attempt(self, spot: Spot, junk: object) -> None:
        owner, _, name = spot.call.partition(".")
        given = self.call(
            getattr(getattr(self, FIELDS[owner]), name),
            **{**NEEDS[spot.call], spot.parameter: junk},
        )
        if owner == "ShareConsumer" and name in ("poll", "take"):
            for record in given:
                self.share_consumer.acknowledge(record)
        elif name == "poll_arrow":
            self.share_consumer.acknowledge(given)

    def still_work(self, owner: str) -> None:
        getattr(self, f"_good_{FIELDS[owner]}")()

    def _good_admin(self) -> None:
        assert self.call(self.admin.list_offsets, of=["good"])

    def _good_producer(self) -> None:
        assert self.call(self.producer.send, topic="good", value=b"v").topic == "good"

    def _good_reader(self) -> None:
        self.call(self.reader.seek, to="earliest")
        assert self.call(self.reader.read_many, max_records=1)

    def _good_consumer(self) -> None:
        self.call(self.consumer.subscribe, topics=["good"])
        self.call(self.consumer.resume)
        self._good_producer()
        while not self.call(self.consumer.poll, timeout=0.2):
            self._good_producer()

    def _good_share_consumer(self) -> None:
        self.call(self.share_consumer.subscribe, topics=["good"])
        records: list[Any] = []
        while not records:
            self._good_producer()
            records = self.call(self.share_consumer.poll, timeout=0.2)
        for one in records:
            self.share_consumer.acknowledge(one)


@pytest.mark.sampled
def test_the_twins_refuse_and_go_on(ottla_broker: ottla.EmbeddedBroker) -> None:
    found = [spot for spot in SPOTS if not spot.call.startswith("Transaction.")]
    twins = Twins(ottla_broker.bootstrap)
    refused = 0
    with ExitStack() as stack:
        twins.open(stack)

        @given(spot=st.sampled_from(found), junk=values)
        @settings(max_examples=examples(150))
        def check(spot: Spot, junk: object) -> None:
            nonlocal refused
            try:
                twins.attempt(spot, junk)
            except BadArgument:
                refused += 1
            except OttlaError:
                pass  # a good argument, for something that is not there
            twins.still_work(spot.call.partition(".")[0])

        check()
    assert refused > examples(150) // 3


def test_iterating_a_twin_takes_no_arguments_and_wrong_ones_of_others_do_not_stop_it(
    ottla_broker: ottla.EmbeddedBroker,
) -> None:
    with (
        sync.Producer(ottla_broker.bootstrap) as producer,
        sync.Consumer(ottla_broker.bootstrap, group="iterated", topics=["good"]) as consumer,
    ):
        producer.send("good", b"v")
        records = iter(consumer)
        next(records)
        with pytest.raises(BadArgument):
            consumer.seek(("good", 0), object())  # type: ignore[arg-type]
        producer.send("good", b"w")
        assert next(records).topic == "good"
