"""`ottla registry`: every command, for people and as JSON, and what it refuses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from ottla import EmbeddedBroker
from ottla.cli.whole import app

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Run = Callable[..., str]

FIRST = '{"type":"record","name":"Order","fields":[{"name":"shop","type":"string"}]}'
WORSE = FIRST.replace("]}", ',{"name":"amount","type":"int"}]}')
BETTER = FIRST.replace("]}", ',{"name":"amount","type":"int","default":0}]}')


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(registry=True) as broker:
        yield broker


@pytest.fixture
def run(broker: EmbeddedBroker) -> Run:
    def run(*args: str, status: int = 0) -> str:
        found = CliRunner().invoke(app, ["registry", *args, "--bootstrap", broker.bootstrap])
        assert found.exit_code == status, found.output
        return found.output

    return run


@pytest.fixture
def schema(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str, name: str = "order.avsc") -> str:
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


@pytest.mark.long
def test_a_subject_from_its_first_schema_to_its_end(
    run: Run, schema: Callable[..., str], tmp_path: Path
) -> None:
    assert run("add", "orders-value", schema(FIRST)) == "orders-value version 1 has the id 1\n"
    assert "orders-value" in run("subjects")
    assert json.loads(run("subjects", "ord", "--json")) == ["orders-value"]
    assert FIRST in run("show", "orders-value")
    shown: Any = json.loads(run("show", "orders-value", "1", "--json"))
    assert (shown["id"], shown["version"], shown["kind"]) == (1, 1, "AVRO")

    assert "amount" in run("check", "orders-value", schema(WORSE), status=1)
    assert "409" in run("add", "orders-value", schema(WORSE), status=1)
    assert "may follow" in run("check", "orders-value", schema(BETTER))
    run("add", "orders-value", schema(BETTER))

    assert run("config") == "BACKWARD\n"
    assert run("config", "orders-value", "--set", "none") == "NONE\n"
    assert run("config", "orders-value", "--unset") == "BACKWARD\n"
    assert run("mode", "orders-value", "--set", "READONLY") == "READONLY\n"
    assert "READONLY" in run("delete", "orders-value", status=1)
    assert run("mode", "orders-value", "--unset") == "READWRITE\n"

    assert run("delete", "orders-value", "2") == "deleted orders-value version 2\n"
    assert "without --permanent first" in run("delete", "orders-value", "--permanent", status=1)
    run("delete", "orders-value")
    assert "soft-deleted; --permanent deletes it" in run("delete", "orders-value", status=1)
    assert json.loads(run("delete", "orders-value", "--permanent", "--json"))["versions"] == [1, 2]
    assert "40401" in run("show", "orders-value", status=1)


def test_references_and_kinds(run: Run, schema: Callable[..., str]) -> None:
    run("add", "shop", schema('{"$id":"shop.json","type":"string"}', "shop.json"))
    user = schema('{"type":"object","properties":{"shop":{"$ref":"shop.json"}}}', "order.json")
    run("add", "order", user, "--reference", "shop.json=shop:1")
    assert json.loads(run("show", "order", "--json"))["references"][0]["subject"] == "shop"
    assert "NAME=SUBJECT:VERSION" in run("add", "order", user, "--reference", "x", status=2)
    other = schema('"string"', "order.txt")
    assert "--kind" in run("add", "order2", other, status=2)
    run("add", "order2", other, "--kind", "avro")
    assert "avro, json and protobuf" in run("add", "order2", other, "--kind", "xml", status=1)


def test_a_broker_without_a_registry_is_told(ottla_broker: EmbeddedBroker) -> None:
    found = CliRunner().invoke(app, ["registry", "subjects", "--bootstrap", ottla_broker.bootstrap])
    assert found.exit_code == 1
    assert "--registry" in found.output


def test_an_open_listener_is_refused() -> None:
    found = CliRunner().invoke(app, ["registry", "run", "--listen", "0.0.0.0:8081"])
    assert found.exit_code == 2
    assert "--insecure" in found.output
