"""`ottla offsets` from the outside, on all stores that a URL can name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from ottla.cli.whole import app
from ottla.offsets.urls import store_from_url

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result


def run(*args: str) -> Result:
    return CliRunner().invoke(app, ["offsets", *args])


def ok(*args: str) -> str:
    result = run(*args)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result.stdout


def value(*args: str) -> Any:
    return json.loads(ok(*args, "--json"))


def failure(*args: str) -> str:
    """The one sentence of a command that fails."""
    result = run(*args)
    assert result.exit_code == 1, result.output
    [line] = result.stderr.splitlines()
    return line


@pytest.fixture(params=["directory", "file", "sqlite", "postgresql"])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    if request.param == "directory":
        (tmp_path / "offsets").mkdir()
        return str(tmp_path / "offsets")
    if request.param == "file":
        (tmp_path / "my offsets").mkdir()
        return f"file://{tmp_path}/my%20offsets"
    if request.param == "sqlite":
        (tmp_path / "offsets.db").touch()
        return f"sqlite:///{tmp_path}/offsets.db"
    url: str = request.getfixturevalue("postgres_server").url
    return f"{url}&table=cli_offsets"


def test_a_position_from_birth_to_death(store: str) -> None:
    assert value("list", store) == []
    assert "no position" in failure("get", store, "billing", "orders")
    assert ok("set", store, "billing", "orders", "12") == (
        "set 'billing' in 'orders' shard 0 to 12, it was at nowhere\n"
    )
    assert ok("get", store, "billing", "orders") == "12\n"
    changed = value("set", store, "billing", "orders", "15", "--shard", "3")
    assert changed == {
        "consumer": "billing",
        "stream": "orders",
        "shard": 3,
        "position": 15,
        "previous": None,
        "changed": True,
    }
    assert "--rewind" in failure("set", store, "billing", "orders", "11")
    assert "another worker" in failure("set", store, "billing", "orders", "20", "--expected", "1")
    assert value("set", store, "billing", "orders", "0", "--rewind")["previous"] == 12
    rows = value("list", store, "--consumer", "billing")
    assert [(row["shard"], row["position"]) for row in rows] == [(0, 0), (3, 15)]
    table = ok("list", store).splitlines()
    assert table[0].split() == ["consumer", "stream", "shard", "position"]
    assert table[2].split() == ["billing", "orders", "0", "0"]
    assert value("get", store, "billing", "orders", "--shard", "3")["position"] == 15
    assert value("delete", store, "billing", "orders")["deleted"] is True
    assert "deleted" in ok("delete", store, "billing", "orders", "--shard", "3")
    assert "no position" in failure("delete", store, "billing", "orders")
    assert value("list", store) == []


def test_the_layout_of_lance(tmp_path: Path) -> None:
    (tmp_path / "client").mkdir()
    (tmp_path / "client" / "topic-7-consumer-9.offset").write_text("42\n")
    assert ok("get", f"file://{tmp_path}?lance=client", "9", "7") == "42\n"


def test_a_corrupt_file_is_told_and_can_be_deleted(tmp_path: Path) -> None:
    ok("set", str(tmp_path), "billing", "orders", "12")
    (tmp_path / "billing" / "orders.0.offset").write_bytes(b"")
    assert "does not hold a position" in failure("list", str(tmp_path))
    ok("delete", str(tmp_path), "billing", "orders")


def test_what_cannot_be_is_said_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "app.db").write_bytes(b"not a database, whatever its name says" * 100)
    assert "sqlite:///" in failure("list", str(tmp_path / "app.db"))
    assert "not a database" in failure("list", f"sqlite:///{tmp_path}/app.db")
    assert "connection" in failure("list", f"postgresql:///x?host={tmp_path}")
    assert "LANCE" in failure("get", f"file://{tmp_path}?lance=x", "a", "b")
    assert "2^128" in failure("set", str(tmp_path), "a", "b", str(2**128))


@pytest.mark.parametrize(
    "url", ["redis://host", "sqlite://file.db", "file://dir", "file:///d?x=1", "sqlite:///f?y=2"]
)
def test_a_wrong_store_is_wrong_use(url: str) -> None:
    assert run("list", url).exit_code == 2
    with pytest.raises(ValueError, match=r"names|options"):
        store_from_url(url)


def test_a_directory_that_is_not_there_has_no_positions_to_list(tmp_path: Path) -> None:
    assert "does not exist" in failure("list", str(tmp_path / "typo"))
    assert "does not exist" in failure("list", f"file://{tmp_path}/typo")
    assert "password=***" in failure("list", "host=127.0.0.1 password=secret")
    ok("set", str(tmp_path / "new"), "a", "b", "1")


def test_asking_makes_no_database(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/typo.db"
    assert "there is no file" in failure("list", url)
    assert "there is no file" in failure("get", url, "a", "b")
    assert "there is no file" in failure("delete", url, "a", "b")
    assert list(tmp_path.iterdir()) == []
    ok("set", url, "a", "b", "1")
    assert ok("get", url, "a", "b") == "1\n"


def test_a_wrong_key_is_wrong_use(tmp_path: Path) -> None:
    assert run("get", str(tmp_path), "", "orders").exit_code == 2
    assert run("get", str(tmp_path), "a", "b", "--shard", "-1").exit_code == 2
