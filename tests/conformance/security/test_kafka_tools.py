"""kafka-acls and kafka-configs say of Ottla what they say of Apache Kafka.

Cases 43, 72 and 111 of the specification of security.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.support.java_tools import kept_tools
from tests.support.judging_kafka import JudgingKafka
from tests.support.rights import rights_broker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.java_tools import JavaTools
    from tests.support.rights import RightsPlace

pytestmark = pytest.mark.jvm

ACLS = [
    "--add --allow-principal User:alice --operation Read --operation Describe --topic orders",
    "--add --deny-principal User:bob --deny-host 10.0.0.1 --operation Write --topic orders",
    ("--add --allow-principal User:alice --producer --topic pre --resource-pattern-type prefixed"),
    "--add --allow-principal User:alice --consumer --topic orders --group readers",
    (
        "--add --allow-principal User:alice --producer --idempotent --topic orders"
        " --transactional-id payments"
    ),
    "--add --allow-principal User:carol --operation All --cluster",
    "--add --allow-principal User:alice --operation Describe --delegation-token t",
    "--list",
    "--list --topic orders",
    "--list --topic prefix --resource-pattern-type match",
    "--list --topic pre --resource-pattern-type prefixed",
    "--list --principal User:carol",
    "--list --group readers",
    "--list --cluster",
    (
        "--remove --force --deny-principal User:bob --deny-host 10.0.0.1 --operation Write"
        " --topic orders"
    ),
    "--remove --force --topic pre --resource-pattern-type match",
    "--remove --force --topic nothing",
    "--add --allow-principal alice --operation Read --topic orders",
    "--list",
    "--remove --force --cluster",
    "--list --cluster",
]
CONFIGS = [
    # Both at once: Kafka takes them for two changes of one thing; here each mechanism is its own.
    (
        "--alter --entity-type users --entity-name alice"
        " --add-config SCRAM-SHA-256=[iterations=8192,password=a]"
    ),
    "--alter --entity-type users --entity-name alice --add-config SCRAM-SHA-512=[password=b]",
    "--describe --entity-type users --entity-name alice",
    "--alter --entity-type users --entity-name alice --delete-config SCRAM-SHA-512",
    (
        "--alter --entity-type users --entity-name bob --add-config SCRAM-SHA-256=[iterations=1,"
        "password=x]"
    ),
    "--alter --entity-type users --entity-name nobody --delete-config SCRAM-SHA-512",
    "--alter --entity-type users --entity-name alice --add-config producer_byte_rate=1024",
    "--alter --entity-type users --entity-default --add-config consumer_byte_rate=2048",
    (
        "--alter --entity-type users --entity-name alice --entity-type clients --entity-name app"
        " --add-config request_percentage=50,producer_byte_rate=512"
    ),
    "--alter --entity-type clients --entity-default --add-config controller_mutation_rate=10",
    "--alter --entity-type ips --entity-name 127.0.0.1 --add-config connection_creation_rate=100",
    "--alter --entity-type users --entity-name alice --add-config no_such_rate=1",
    "--describe --entity-type users",
    "--describe --entity-type users --entity-name alice",
    "--describe --entity-type users --entity-name alice --entity-type clients",
    "--describe --entity-type clients",
    "--describe --entity-type ips",
    "--alter --entity-type users --entity-name alice --delete-config producer_byte_rate",
    "--describe --entity-type users --entity-name alice",
    "--alter --entity-type ips --entity-name 127.0.0.1 --delete-config connection_creation_rate",
    "--describe --entity-type ips",
]


@pytest.fixture(scope="module")
def tools() -> Iterator[JavaTools]:
    with kept_tools() as made:
        yield made


@pytest.fixture(scope="module")
def places() -> Iterator[dict[str, RightsPlace]]:
    with rights_broker() as own, JudgingKafka() as kafka:
        yield {"ottla": own, "kafka": kafka}


def _in_order(line: str) -> str:
    """A list of settings has no order."""
    head, are, settings = line.strip().partition(" are ")
    return head + are + ", ".join(sorted(settings.split(", ")))


def _answers(tools: JavaTools, place: RightsPlace, tool: str, commands: list[str]) -> list[object]:
    found: list[object] = []
    for command in commands:
        done = tools.run(tool, *command.split(), bootstrap=place.bootstrap("root"))
        words = set(re.findall(r"\w+(?:Exception|Error)\b", done.stdout + done.stderr))
        lines = [] if words else sorted(map(_in_order, done.stdout.splitlines()))
        found.append((command, done.returncode, words, lines))
    return found


@pytest.mark.parametrize(("tool", "commands"), [("kafka-acls", ACLS), ("kafka-configs", CONFIGS)])
def test_111_72_43_the_tools_say_the_same(
    tools: JavaTools, places: dict[str, RightsPlace], tool: str, commands: list[str]
) -> None:
    ours = _answers(tools, places["ottla"], tool, commands)
    theirs = _answers(tools, places["kafka"], tool, commands)
    for mine, reference in zip(ours, theirs, strict=True):
        assert mine == reference
