"""Kafka Streams counts by key over Ottla and survives SIGKILL.

The program (jvm/ecosystem/Counter.java) keeps its counts in a store with a changelog. It is killed
in the middle and started again with an empty directory, so that its counts come back from the
changelog alone and its open transaction is aborted by the broker.

- exactly_once_v2: committed totals of each key are 1, 2, 3, ... without a gap or a repetition.
- at_least_once: no record is left out; the last total of a key may be larger.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

import pytest

from ottla.wire.records import Record
from tests.support.ecosystem import JavaProcess
from tests.support.topics import create_topic, produce

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka import Message

TIME: Final = 1_750_000_000_000
KEYS: Final = 7
PARTITIONS: Final = 2
# Each key has as many of them.
FIRST: Final = 100
SECOND: Final = 900


def write_words(bootstrap: str, each: int) -> None:
    for partition in range(PARTITIONS):
        keys = [b"%d" % key for key in range(KEYS) if key % PARTITIONS == partition]
        words = [Record(0, TIME, key, b"word") for _ in range(each) for key in keys]
        produce(bootstrap, "words", words, partition=partition)


def totals(messages: list[Message]) -> dict[bytes, list[int]]:
    found = defaultdict(list)
    for message in messages:
        key, value = message.key(), message.value()
        assert isinstance(key, bytes)
        assert isinstance(value, bytes)
        found[key].append(int(value))
    return found


def counter(bootstrap: str, directory: Path, guarantee: str, classpath: str) -> JavaProcess:
    return JavaProcess(
        directory.with_suffix(".log"),
        "Counter",
        "application.id=counter",
        f"bootstrap.servers={bootstrap}",
        f"processing.guarantee={guarantee}",
        f"state.dir={directory}",
        "commit.interval.ms=100",
        # The broker's least: so long the dead member keeps its partitions.
        "session.timeout.ms=6000",
        "heartbeat.interval.ms=1000",
        "auto.offset.reset=earliest",
        classpath=classpath,
    )


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_counts_survive_a_kill(bootstrap: str, tmp_path: Path, jvm: str, guarantee: str) -> None:
    create_topic(bootstrap, "words", PARTITIONS)
    create_topic(bootstrap, "totals", PARTITIONS)
    write_words(bootstrap, FIRST)
    with counter(bootstrap, tmp_path / "first", guarantee, jvm) as first:
        first.read_until(bootstrap, "totals", lambda messages: len(messages) > KEYS)
        write_words(bootstrap, SECOND)
        first.kill()
    everything = FIRST + SECOND

    def complete(messages: list[Message]) -> bool:
        found = totals(messages)
        return len(found) == KEYS and all(max(of) >= everything for of in found.values())

    with counter(bootstrap, tmp_path / "second", guarantee, jvm) as second:
        found = totals(second.read_until(bootstrap, "totals", complete))
        second.kill()
    if guarantee == "exactly_once_v2":
        once = list(range(1, everything + 1))
        assert found == {b"%d" % key: once for key in range(KEYS)}
