"""`ottla table` from the outside."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from ottla.cli.whole import app
from ottla.client.admin.admin import Admin
from tests.support.tables import Place, places

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result

    from ottla.testing.embedded import EmbeddedBroker


@pytest.fixture
def place(ottla_broker: EmbeddedBroker, tmp_path: Path) -> Place:
    place = next(places(ottla_broker.bootstrap, tmp_path))
    asyncio.run(_filled(place))
    return place


async def _filled(place: Place) -> None:
    await place.create(2)
    await place.fill([b"a", b"b", b"c"], 0)
    await place.fill([b"d"], 1)


def run(place: Place, *args: str) -> Result:
    return CliRunner().invoke(
        app,
        [
            "table", *args, "--bootstrap", place.bootstrap,
            "--warehouse", f"file://{place.directory}/w",
            "--catalog", f"sqlite:///{place.directory}/catalog.db",
        ],
    )  # fmt: skip


def value(place: Place, *args: str) -> Any:
    result = run(place, *args, "--json")
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return json.loads(result.stdout)


def test_a_table_is_written_shown_and_compared(place: Place) -> None:
    waiting = run(place, "status", place.topic)
    assert (waiting.exit_code, "not created yet" in waiting.stderr) == (1, True)
    assert value(place, "run", "--once", "--topics", place.topic) == {place.topic: {"0": 3, "1": 1}}
    [status] = value(place, "status", place.topic)
    assert (status["lag"], status["rows"], status["problem"]) == (0, 4, None)
    assert (status["position"], status["ends"]) == ({"0": 3, "1": 1}, {"0": 3, "1": 1})
    shown = value(place, "show", place.topic)
    assert shown["columns"][0] == {"id": 1, "name": "value", "type": "binary"}
    assert shown["partition"] == "day(_timestamp)"
    people = run(place, "show", place.topic)
    assert "pl.scan_iceberg('file://" in people.stdout
    found = value(place, "verify", place.topic)
    assert [(one["partition"], one["end"], one["missing"]) for one in found] == [
        (0, 3, 0), (1, 1, 0),
    ]  # fmt: skip
    said = run(place, "verify", place.topic).stdout
    assert said == "4 offsets compared, 0 of 2 windows differ\n"
    assert "not rolled back" in run(place, "resume", place.topic, "--replay").stdout
    assert "the topic's own" in run(place, "retire", place.topic).stdout
    for step, said in (("compact", "0 groups"), ("expire", "0 snapshots"), ("sweep", "0 files")):
        assert said in run(place, step, place.topic).stdout


def test_case_67_a_hole_is_something_wrong(place: Place) -> None:
    async def delete() -> None:
        async with Admin(place.bootstrap) as admin:
            await admin.delete_records({(place.topic, 0): 2})

    run(place, "run", "--once", "--topics", place.topic)
    asyncio.run(place.fill([b"e", b"f"]))
    asyncio.run(delete())
    assert run(place, "status", place.topic).exit_code == 0
    asyncio.run(place.fill([b"g"]))

    async def delete_all() -> None:
        async with Admin(place.bootstrap) as admin:
            await admin.delete_records({(place.topic, 0): 5})

    asyncio.run(delete_all())
    assert value(place, "run", "--once", "--topics", place.topic)[place.topic]["0"] == 6
    status = run(place, "status", place.topic)
    assert (status.exit_code, "1 holes" in status.stderr) == (1, True)


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["status", "no-such-topic"], 1, "no-such-topic has no table"),
        (["run", "--once", "--topics", "no-such-topic"], 1, "no-such-topic has no table"),
        (["resume", "t"], 2, "--replay or --accept"),
        (["run", "--once", "--config", "/no/such.toml"], 2, "cannot read"),
    ],
)
def test_wrong_use_is_told(place: Place, args: list[str], code: int, said: str) -> None:
    result = run(place, *args)
    assert (result.exit_code, said in " ".join(result.stderr.split())) == (code, True), (
        result.stderr
    )


def test_a_warehouse_elsewhere_needs_a_catalogue(place: Place) -> None:
    args = ["table", "status", "--bootstrap", place.bootstrap, "--warehouse", "s3://b/p"]
    result = CliRunner().invoke(app, args)
    assert (result.exit_code, "--catalog" in result.stderr) == (2, True)
    result = CliRunner().invoke(app, [*args, "--catalog", "mysql://x"])
    assert (result.exit_code, "sqlite:///FILE" in result.stderr) == (1, True), result.stderr
