"""Kafka's own share consumer and tools for share groups against Ottla.

Where a JVM cannot run, the reason is the skip's reason.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest

from ottla.testing.embedded import EmbeddedBroker
from tests.support.java_client import JavaClient
from tests.support.java_tools import JavaTools, kept_tools
from tests.support.jvm import why_no_jvm
from tests.support.share_member import SHARE_CONFIG
from tests.support.share_workers import poll_until, produce_numbers, set_group, share_consumer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RECORDS: Final = 20


@pytest.fixture(scope="module")
def tools() -> Iterator[JavaTools]:
    if (reason := why_no_jvm()) is not None:
        pytest.skip(reason)
    with kept_tools() as kept:
        yield kept


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config=SHARE_CONFIG) as broker:
        yield broker


@pytest.fixture
def prepared(broker: EmbeddedBroker) -> Callable[[str], str]:
    """Makes a topic of some records and a group of the same name that reads from its start."""

    def prepare(name: str) -> str:
        broker.create_topic(name)
        produce_numbers(broker.bootstrap, name, range(RECORDS))
        set_group(broker.bootstrap, name, share_auto_offset_reset="earliest")
        return name

    return prepare


def test_67_the_java_share_consumer_releases_and_accepts(
    tools: JavaTools, broker: EmbeddedBroker, prepared: Callable[[str], str]
) -> None:
    name = prepared("java")
    java = JavaClient(broker.bootstrap, tools)
    for kind, times in (("RELEASE", 1), ("RELEASE", 2), ("ACCEPT", 3)):
        found = java.share_consume(name, RECORDS, group=name, acknowledge=kind)  # type: ignore[arg-type]
        assert [delivery.record.offset for delivery in found] == list(range(RECORDS))
        assert {delivery.delivery_count for delivery in found} == {times}
    produce_numbers(broker.bootstrap, name, [RECORDS])
    consumer = share_consumer(broker.bootstrap, name, name)
    assert [message.offset() for message in poll_until(consumer, 1)] == [RECORDS]
    consumer.close()


def test_the_tools_for_share_groups(
    tools: JavaTools, broker: EmbeddedBroker, prepared: Callable[[str], str]
) -> None:
    name = prepared("tools")

    def say(*command: str) -> str:
        done = tools.run(*command, bootstrap=broker.bootstrap)
        assert done.returncode == 0, done
        return done.stdout

    def groups(*command: str) -> list[list[str]]:
        return [line.split() for line in say("kafka-share-groups", *command).splitlines() if line]

    of_group = "--group", name
    consumer = share_consumer(broker.bootstrap, name, name, share_acknowledgement_mode="explicit")
    for message in poll_until(consumer, RECORDS)[:5]:
        consumer.acknowledge(message)
    consumer.commit_sync()
    assert [name] in groups("--list")
    assert [name, "Stable"] in groups("--list", "--state")
    # As in Kafka, the start follows with the next write; the lag is up to date.
    assert [name, name, "0", "0", str(RECORDS - 5)] in groups("--describe", *of_group)
    _, member = groups("--describe", "--members", *of_group)
    assert member[0] == name
    assert f"{name}:0" in member
    refused = tools.run("kafka-share-groups", "--delete", *of_group, bootstrap=broker.bootstrap)
    assert "not empty" in (refused.stdout + refused.stderr).lower()
    consumer.close()

    groups("--reset-offsets", "--to-earliest", "--topic", name, *of_group, "--execute")
    assert [name, name, "0", "0", str(RECORDS)] in groups("--describe", *of_group)
    read = say(
        *("kafka-console-share-consumer", "--topic", name, *of_group),
        *("--max-messages", str(RECORDS), "--timeout-ms", "30000"),
    )
    assert re.findall(r"^\d+$", read, re.MULTILINE) == [str(n) for n in range(RECORDS)]
    groups("--delete-offsets", "--topic", name, *of_group)
    groups("--delete", *of_group)
    assert [name] not in groups("--list")
