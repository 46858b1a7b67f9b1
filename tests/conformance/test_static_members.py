"""Static members (KIP-345) of the Python clients: a restart moves nothing, a double is fenced."""

from __future__ import annotations

import asyncio
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, KafkaError

from tests.support.group_members import HEARTBEAT_MS, AioMember, KafkaPythonMember, Ownership
from tests.support.python_clients import until

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # see python_clients
    import kafka
    import kafka.errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ottla import EmbeddedBroker
    from tests.support.group_members import Member, Owned

PARTITIONS = 4


class Journal(Ownership):
    """Also keeps who was told what."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[object] = []

    def assign(self, member: object, partitions: Iterable[Owned]) -> None:
        self.told.append(member)
        super().assign(member, partitions)

    def revoke(self, member: object, partitions: Iterable[Owned]) -> None:
        self.told.append(member)
        super().revoke(member, partitions)

    def of(self, member: object) -> set[Owned]:
        return {partition for partition, owner in self.owners.items() if owner is member}


@pytest.fixture(autouse=True)
def aio_loop() -> Iterator[None]:
    with asyncio.Runner() as runner:
        AioMember.LOOP = runner.get_loop()
        yield


@pytest.mark.parametrize("kind", [KafkaPythonMember, AioMember])
def test_a_restart_moves_nothing(
    kind: Any, ottla_broker: EmbeddedBroker, new_topic: Callable[..., str], group: str
) -> None:
    topics = [new_topic(PARTITIONS)]
    journal = Journal()
    where = ottla_broker.bootstrap
    members: dict[str, Member] = {}

    def join(name: str) -> None:
        members[name] = kind(where, group, topics, "range", journal, instance=name)

    def poll() -> None:
        for member in members.values():
            member.poll()

    def is_settled() -> bool:
        return all(len(journal.of(one)) == PARTITIONS / 2 for one in members.values())

    join("a")
    join("b")
    try:
        until(is_settled, "both have two", poll)
        for name, other in (("a", "b"), ("b", "a")):
            had = journal.of(members[name])
            members[name].leave()  # without a word to the coordinator
            journal.told.clear()
            join(name)
            until(is_settled, f"{name} is back", poll)
            assert journal.of(members[name]) == had
            assert members[other] not in journal.told
    finally:
        for member in members.values():
            member.leave()


def test_confluent_kafka_hears_that_it_is_fenced(
    ottla_broker: EmbeddedBroker, ottla_topic: str, group: str
) -> None:
    def member() -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": ottla_broker.bootstrap,
                "group.id": group,
                "group.instance.id": "i",
                "heartbeat.interval.ms": HEARTBEAT_MS,
            }
        )
        consumer.subscribe([ottla_topic])
        until(consumer.assignment, "it has joined", lambda: consumer.poll(0.02))
        return consumer

    first, second = member(), member()
    errors: list[KafkaError | None] = []

    def poll() -> None:
        if (message := first.poll(0.02)) is not None:
            errors.append(message.error())

    until(lambda: errors, "the first is told", poll)
    assert errors[0] is not None
    assert errors[0].code() == KafkaError._FATAL
    assert "fenced by other consumer" in errors[0].str()
    second.close()
    first.close()


@pytest.mark.parametrize("double", ["kafka-python", "aiokafka"])
def test_kafka_python_hears_that_it_is_fenced(
    double: str, ottla_broker: EmbeddedBroker, ottla_topic: str, group: str
) -> None:
    """aiokafka takes a place, but names its instance in no heartbeat: it is not fenced itself."""
    settings = {
        "bootstrap_servers": ottla_broker.bootstrap,
        "group_id": group,
        "group_instance_id": "i",
        "heartbeat_interval_ms": HEARTBEAT_MS,
        "enable_auto_commit": False,
    }

    def member() -> Any:
        consumer = kafka.KafkaConsumer(ottla_topic, **settings)
        until(consumer.assignment, "it has joined", lambda: consumer.poll(timeout_ms=500))
        return consumer

    async def come_and_go() -> None:
        consumer = AIOKafkaConsumer(ottla_topic, **settings)
        await consumer.start()
        await consumer.stop()

    first = member()
    if double == "aiokafka":
        AioMember.LOOP.run_until_complete(come_and_go())
    else:
        member().close()
    place = {kafka.TopicPartition(ottla_topic, 0): kafka.OffsetAndMetadata(0, "", -1)}
    with pytest.raises(kafka.errors.FencedInstanceIdError):
        first.commit(place)
    first.close()
