"""`--command-config`: every command that talks to a broker takes it, and uses it (case 104)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from ottla.cli.whole import app
from tests.support.doors import USERS, bootstrap, guarded_broker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from typer.testing import Result

SASL = "SASL_PLAINTEXT"
CONFIG = {
    "listeners": f"{SASL}://127.0.0.1:0",
    "group.share.assignment.interval.ms": "0",
}
PROPERTIES = """
security.protocol={protocol}
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
  username="alice" password="{password}";
"""


class Ottla:
    """Runs commands against one broker, with or without a file of settings."""

    def __init__(self, address: str, config: Path) -> None:
        self.address = address
        self.config = config

    def run(self, *args: str, given: str | None = None, config: Path | None = None) -> Result:
        connects = ["--bootstrap", self.address, "--command-config", str(config or self.config)]
        return CliRunner().invoke(app, [*args, *connects], input=given)

    def ok(self, *args: str, given: str | None = None) -> str:
        result = self.run(*args, given=given)
        assert result.exit_code == 0, result.output
        return result.stdout


@pytest.fixture(scope="module")
def ottla(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ottla]:
    with guarded_broker(CONFIG) as broker:
        path = tmp_path_factory.mktemp("config") / "alice.properties"
        path.write_text(PROPERTIES.format(protocol=SASL, password=USERS["alice"]))
        yield Ottla(bootstrap(broker, SASL), path)


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, one in getattr(command, "commands", {}).items():
        yield from commands(one, (*path, name))
    if not getattr(command, "commands", None):
        yield " ".join(path), command


CONNECTING = {"bootstrap", "input_url", "output_url"}


def test_every_command_that_connects_takes_it() -> None:
    connecting, taking = set(), set()
    for name, command in commands(get_command(app)):
        names = {one.name for one in command.params}
        if names & CONNECTING:
            connecting.add(name)
        if "command_config" in names:
            taking.add(name)
    assert connecting == taking
    assert {"topic create", "consume", "relay", "run", "doctor", "transaction abort"} <= taking


def test_commands_over_a_listener_that_asks_who_comes(ottla: Ottla, tmp_path: Path) -> None:
    assert "created" in ottla.ok("topic", "create", "orders", "--partitions", "2")
    assert "orders" in ottla.ok("topic", "list")
    assert "orders" in ottla.ok("topic", "describe", "orders")
    ottla.ok("topic", "alter", "orders", "--config", "retention.ms=1000000")
    ottla.ok("produce", "orders", given="one\ntwo\n")
    assert ottla.ok("consume", "orders", "--until-end", "--raw").split() == ["one", "two"]
    shared = ottla.ok(
        *("share-consume", "orders", "--group", "crew", "--from", "earliest"), "--max-records", "2"
    )
    assert "one" in shared
    assert "crew" in ottla.ok("share-group", "list")
    assert "crew" in ottla.ok("share-group", "describe", "crew")
    ottla.ok("group", "list")
    ottla.ok("transaction", "list")
    ottla.ok("bench", "--records", "100", "--partitions", "1")
    checks = json.loads(ottla.run("doctor", "--json").stdout)
    [broker] = [one for one in checks if one["check"].startswith("broker")]
    assert broker["verdict"] == "ok", broker
    assert "deleted" in ottla.ok("topic", "delete", "orders")


def test_a_wrong_password_is_one_sentence(ottla: Ottla, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.properties"
    wrong.write_text(PROPERTIES.format(protocol=SASL, password="canary"))
    result = ottla.run("topic", "list", config=wrong)
    assert result.exit_code == 1
    [line] = result.stderr.splitlines()
    assert "cannot log in as 'alice' with SCRAM-SHA-512" in line
    assert "canary" not in result.output


def test_a_command_without_it_says_what_is_missing(ottla: Ottla) -> None:
    result = CliRunner().invoke(app, ["topic", "list", "--bootstrap", ottla.address])
    assert result.exit_code == 1
    assert "if the listener wants a login, set security.protocol" in result.stderr


def test_the_variable_names_it_too(ottla: Ottla) -> None:
    result = CliRunner().invoke(
        app,
        ["topic", "list", "--bootstrap", ottla.address],
        env={"OTTLA_COMMAND_CONFIG": str(ottla.config)},
    )
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sasl.pasword=canary", "did you mean sasl.password"),
        ("sasl.login.class=x", "no classes are loaded"),
        (None, "No such file"),
    ],
)
def test_a_file_that_cannot_be_used_is_wrong_use(
    ottla: Ottla, tmp_path: Path, text: str | None, said: str
) -> None:
    path = tmp_path / "other.properties"
    if text is not None:
        path.write_text(text)
    result = ottla.run("topic", "list", config=path)
    assert result.exit_code == 2
    assert said in result.stderr.replace("\n", " ")
    assert "canary" not in result.output
