"""`ottla transaction` from the outside, against an embedded broker."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from ottla import EmbeddedBroker
from ottla.cli.whole import app
from ottla.errors import ProducerFenced
from ottla.sync import Producer
from tests.support.raw_client import RawClient, batch, produce_request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typer.testing import Result

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """Takes the batches of any transaction, so that one can hang."""
    with EmbeddedBroker(config={"transaction.partition.verification.enable": "false"}) as broker:
        yield broker


@pytest.fixture
def name(broker: EmbeddedBroker) -> str:
    """Of a topic, and for a transactional id."""
    name = f"cli-{next(_numbers)}"
    broker.create_topic(name)
    return name


def run(broker: EmbeddedBroker, *args: str) -> Result:
    return CliRunner().invoke(app, ["transaction", *args, "--bootstrap", broker.bootstrap])


def ok(broker: EmbeddedBroker, *args: str) -> str:
    result = run(broker, *args)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result.stdout


def value(broker: EmbeddedBroker, *args: str) -> Any:
    return json.loads(ok(broker, *args, "--json"))


def test_an_open_transaction_is_shown_and_aborted(broker: EmbeddedBroker, name: str) -> None:
    with Producer(broker.bootstrap, transactional_id=name) as producer:
        transaction = producer.transaction()
        transaction.__enter__()
        producer.send(name, b"v")
        [listed] = value(broker, "list", "--state", "Ongoing", "--pattern", name)
        assert (listed["transactional_id"], listed["state"]) == (name, "Ongoing")
        assert ok(broker, "list", "--longer-than", "3600") == "no transactions\n"
        [found] = value(broker, "describe", name)
        assert found["partitions"] == [{"topic": name, "partition": 0}]
        assert found["producer"] == listed["producer"]
        shown = ok(broker, "describe", name)
        assert shown.startswith(f"{name}  Ongoing  producer {listed['producer']} epoch 0")
        assert "\nbegan 20" in shown
        said = ok(broker, "abort", name)
        assert said == f"aborted what {name} had open; its producer is fenced\n"
        with pytest.raises(ProducerFenced):
            transaction.__exit__(None, None, None)
    assert f"{name}  " in ok(broker, "describe", name)
    assert name in ok(broker, "list")


def test_an_id_that_never_was_is_not_aborted(broker: EmbeddedBroker, name: str) -> None:
    result = run(broker, "abort", name)
    assert result.exit_code == 1
    assert f"transactional id '{name}'" in result.stderr


def test_a_hanging_transaction_is_found_and_aborted(broker: EmbeddedBroker, name: str) -> None:
    data = batch(b"v", producer_id=4711, producer_epoch=3, base_sequence=0, transactional=True)
    with RawClient(broker.bootstrap) as raw:
        request = produce_request(name, {0: data})._replace(transactional_id=name)
        raw.ask("produce", 9, request)
    assert ok(broker, "find-hanging") == "no hanging transactions\n"
    [found] = value(broker, "find-hanging", "--longer-than", "0")
    assert found.pop("last_write").startswith("20")
    place = {"topic": name, "partition": 0, "start_offset": 0}
    assert found == {**place, "producer": 4711, "epoch": 3}
    where = ("--topic", name, "--partition", "0", "--start-offset", "0")
    assert ok(broker, "abort", *where) == (
        f"aborted the transaction in {name}-0 that began at offset 0\n"
    )
    assert value(broker, "find-hanging", "--topic", name, "--longer-than", "0") == []
    result = run(broker, "abort", *where)
    assert (result.exit_code, "no transaction is open" in result.stderr) == (1, True)


def test_what_is_not_there_is_said_in_a_sentence(broker: EmbeddedBroker, name: str) -> None:
    result = run(broker, "describe", name)
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert "TRANSACTIONAL_ID_NOT_FOUND" in result.stderr
    assert run(broker, "list", "--state", "Nonsense").exit_code == 1


@pytest.mark.parametrize(
    "args", [(), ("id", "--topic", "t"), ("--topic", "t", "--partition", "0")], ids=len
)
def test_what_to_abort_is_said_in_one_way(broker: EmbeddedBroker, args: tuple[str, ...]) -> None:
    assert run(broker, "abort", *args).exit_code == 2
