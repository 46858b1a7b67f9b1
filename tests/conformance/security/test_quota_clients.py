"""Quotas with Kafka's tools (cases 69 and 72)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import ottla
from tests.support.java_tools import JavaTools, kept_tools
from tests.support.jvm import why_no_jvm
from tests.support.names import fresh

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def broker() -> Iterator[ottla.EmbeddedBroker]:
    with ottla.EmbeddedBroker() as made:
        yield made


@pytest.fixture(scope="module")
def tools() -> Iterator[JavaTools]:
    if (reason := why_no_jvm()) is not None:
        pytest.skip(reason)
    with kept_tools() as kept:
        yield kept


def configs(tools: JavaTools, broker: ottla.EmbeddedBroker, *args: str) -> str:
    done = tools.run("kafka-configs", *args, bootstrap=broker.bootstrap)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


ENTITIES = [
    (("--entity-type", "users", "--entity-name", "alice"), "producer_byte_rate=1000"),
    (("--entity-type", "users", "--entity-default"), "request_percentage=50"),
    (("--entity-type", "clients", "--entity-name", "app"), "consumer_byte_rate=2000"),
    (("--entity-type", "clients", "--entity-default"), "controller_mutation_rate=1.5"),
    (
        (
            *("--entity-type", "users", "--entity-name", "alice"),
            *("--entity-type", "clients", "--entity-default"),
        ),
        "producer_byte_rate=3000",
    ),
    (("--entity-type", "ips", "--entity-name", "10.0.0.1"), "connection_creation_rate=5"),
    (("--entity-type", "ips", "--entity-default"), "connection_creation_rate=7"),
]


def test_72_kafka_configs_sets_describes_and_deletes(tools: JavaTools, tmp_path: Path) -> None:
    with ottla.EmbeddedBroker(tmp_path) as broker:
        for entity, value in ENTITIES:
            said = configs(tools, broker, "--alter", *entity, "--add-config", value)
            assert "Completed updating" in said
    with ottla.EmbeddedBroker(tmp_path) as broker:
        for entity, value in ENTITIES:
            key, _, number = value.partition("=")
            said = configs(tools, broker, "--describe", *entity)
            assert f"{key}={float(number)}" in said, said
            configs(tools, broker, "--alter", *entity, "--delete-config", key)
            assert key not in configs(tools, broker, "--describe", *entity)


def test_69_kafka_topics_says_that_the_quota_is_used_up(
    tools: JavaTools, broker: ottla.EmbeddedBroker
) -> None:
    entity = ("--entity-type", "users", "--entity-name", "ANONYMOUS")
    configs(tools, broker, "--alter", *entity, "--add-config", "controller_mutation_rate=0.01")
    try:
        outcomes = []
        for _ in range(3):
            name = fresh("topic")
            done = tools.run(
                *("kafka-topics", "--create", "--topic", name, "--partitions", "2"),
                bootstrap=broker.bootstrap,
            )
            outcomes.append((done.returncode, "quota" in (done.stdout + done.stderr).lower()))
            if done.returncode:
                break
        assert outcomes[0] == (0, False)
        assert outcomes[-1] == (1, True)
    finally:
        configs(tools, broker, "--alter", *entity, "--delete-config", "controller_mutation_rate")
