"""`ottla table` from the outside."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from ottla.cli.whole import app
from ottla.client.admin.admin import Admin
from ottla.tables.pointer import read_pointers
from ottla.tables.worker import Worker
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
    return place.command(*args)


def value(place: Place, *args: str) -> Any:
    result = run(place, *args, "--json")
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return json.loads(result.stdout)


@pytest.mark.long
def test_a_table_is_written_shown_and_compared(place: Place) -> None:
    waiting = run(place, "status", place.topic)
    assert (waiting.exit_code, "not created yet" in waiting.stderr) == (1, True)
    early = run(place, "verify", place.topic)
    assert (early.exit_code, "has no table yet" in early.stderr) == (1, True)
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


@pytest.mark.long
@pytest.mark.parametrize("how", ["--replay", "--accept"])
def test_case_52_readers_see_at_once_how_a_table_goes_on(place: Place, how: str) -> None:
    """Fault: the pointer came with the next round."""
    run(place, "run", "--once", "--topics", place.topic)
    older = place.state().snapshot
    asyncio.run(place.fill([b"e"]))
    run(place, "run", "--once", "--topics", place.topic)
    handle: Any = place.state().handle
    handle.manage_snapshots().rollback_to_snapshot(older).commit()
    assert "goes on at" in run(place, "resume", place.topic, how).stdout
    pointer = asyncio.run(read_pointers(place.bootstrap))[place.topic]
    assert pointer.metadata_location == place.state().metadata_location
    assert pointer.position == {0: 3 if how == "--replay" else 4, 1: 1}


@pytest.mark.long
def test_case_96_columns_are_proposed_for_json_values(place: Place) -> None:
    values = [b'{"shop":"a","n":1}', b'{"shop":"b","n":"x","note":null}', b"{", None]
    asyncio.run(place.fill([*values, b'{"late":true}']))
    args = ["table", "infer", place.topic, "--bootstrap", place.bootstrap]
    told = CliRunner().invoke(app, args)
    assert (told.exit_code, told.stdout) == (
        0,
        "shop string, n string, note string, late boolean\n",
    )
    said = " ".join(told.stderr.split())
    assert "5 of 8 values are no JSON objects" in said
    assert "optional, of 3 values: shop (in 2), n (in 2), note (in 0), late (in 1)" in said
    assert "read as text: n" in said
    found = json.loads(CliRunner().invoke(app, [*args, "--json"]).stdout)
    assert (found["objects"], found["others"]) == (3, 5)
    assert found["columns"][1] == {"name": "n", "type": "string", "values": 2, "mixed": True}
    # Of each partition the newest ones.
    few = json.loads(CliRunner().invoke(app, [*args, "--json", "--sample", "2"]).stdout)
    assert (few["ddl"], few["objects"], few["others"]) == ("late boolean", 1, 1)
    nothing = CliRunner().invoke(app, ["table", "infer", "no-such", "--bootstrap", place.bootstrap])
    assert (nothing.exit_code, "no-such" in nothing.stderr) == (1, True)


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["status", "no-such-topic"], 1, "there is no topic 'no-such-topic'"),
        (["run", "--once", "--topics", "no-such-topic"], 1, "no-such-topic has no table"),
        (["run", "--once", "--topics", ""], 2, "expected names such as a,b, got ''"),
        (["resume", "t"], 2, "--replay or --accept"),
        (["reprocess", "t", "--reason", "bogus"], 2, "expected one of not_framed"),
        (["run", "--once", "--config", "/no/such.toml"], 2, "cannot read"),
        (["run", "--once", "--registry", "registry:8081"], 2, "expected http://HOST:PORT"),
        (["rebuild", "t", "--files", "a,"], 2, "expected names such as a,b"),
    ],
)
def test_wrong_use_is_told(place: Place, args: list[str], code: int, said: str) -> None:
    result = run(place, *args)
    assert (result.exit_code, said in " ".join(result.stderr.split())) == (code, True), (
        result.stderr
    )


@pytest.mark.long
@pytest.mark.parametrize("args", [["run", "--once"], ["status"]])
def test_no_broker_is_told_at_once(args: list[str], tmp_path: Path) -> None:
    """Fault: a run said nothing for a minute."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        warehouse = f"file://{tmp_path}"
        result = CliRunner().invoke(
            app, ["table", *args, "--bootstrap", address, "--warehouse", warehouse]
        )
    assert result.exit_code == 1
    assert result.stderr.startswith(f"ottla: cannot connect to {address}: ")
    assert result.stderr.endswith("; is a broker running there? --bootstrap names another\n")


@pytest.mark.long
def test_a_run_that_is_stopped_says_so(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: it said that no topic has a table."""

    async def stopped(_: Worker) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    monkeypatch.setattr(Worker, "run_once", stopped)
    result = run(place, "run", "--once")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "stopped before all was taken" in result.stderr


@pytest.mark.long
@pytest.mark.parametrize("args", [["run", "--once"], ["status"]])
@pytest.mark.parametrize(
    ("catalog", "why"),
    [
        ("sqlite:////no/such/dir/x.db", "unable to open database file"),
        ("postgresql://me:geheim@127.0.0.1:1/x", "onnection refused"),
    ],
)
def test_a_catalogue_that_cannot_be_opened_is_told_in_one_line(
    place: Place, args: list[str], catalog: str, why: str
) -> None:
    """Fault: a traceback of 120 lines."""
    options = ["--bootstrap", place.bootstrap, "--warehouse", f"file://{place.directory}/w"]
    result = CliRunner().invoke(app, ["table", *args, *options, "--catalog", catalog])
    assert result.exit_code == 1
    [line] = result.stderr.splitlines()
    shown = catalog.replace("geheim", "***")
    assert line.startswith(f"ottla: cannot open the catalogue {shown}: ")
    assert why in line


def test_looking_makes_no_directory(tmp_path: Path) -> None:
    """Fault: it made the directory of a mistyped warehouse."""
    directory = tmp_path / "mistyped"
    result = CliRunner().invoke(app, ["table", "status", "--warehouse", f"file://{directory}"])
    said = f"ottla: no tables in {directory}: it is no directory; --warehouse names another\n"
    assert (result.exit_code, result.stderr) == (1, said)
    assert not directory.exists()


def test_a_warehouse_may_be_the_name_of_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: it was taken for an object store."""
    monkeypatch.chdir(tmp_path)
    for given in ("tables/here", str(tmp_path / "tables/here")):
        result = CliRunner().invoke(app, ["table", "status", "--warehouse", given])
        assert f"no tables in {tmp_path / 'tables/here'}: it is no directory" in result.output


def test_a_warehouse_elsewhere_needs_a_catalogue(place: Place) -> None:
    args = ["table", "status", "--bootstrap", place.bootstrap, "--warehouse", "s3://b/p"]
    result = CliRunner().invoke(app, args)
    assert (result.exit_code, "--catalog" in result.stderr) == (2, True)
    result = CliRunner().invoke(app, [*args, "--catalog", "mysql://x"])
    assert (result.exit_code, "sqlite:///FILE" in result.stderr) == (1, True), result.stderr
