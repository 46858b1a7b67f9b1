"""`--command-config`: every command that talks to a broker takes it, and uses it (case 104)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import ottla
from ottla.cli.whole import app

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from typer.testing import Result

SECURED = ottla.Secured(users={"alice": "a"}, super_users=["alice"])


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
def broker() -> Iterator[ottla.EmbeddedBroker]:
    with ottla.EmbeddedBroker(security=SECURED) as broker:
        yield broker


@pytest.fixture(scope="module")
def run(broker: ottla.EmbeddedBroker) -> Ottla:
    return Ottla(broker.bootstrap, broker.properties_file("alice"))


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, one in getattr(command, "commands", {}).items():
        yield from commands(one, (*path, name))
    if not getattr(command, "commands", None):
        yield " ".join(path), command


CONNECTING = {"bootstrap", "brokers", "input_url", "output_url"}


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


@pytest.mark.long
def test_who_logs_in_is_not_deleted_by_mistake(run: Ottla, broker: ottla.EmbeddedBroker) -> None:
    """Fault: `user delete admin` as admin locked everybody out without a word."""
    broker.create_user("boss", "b")
    broker.create_acls("allow boss all cluster")
    boss = broker.properties_file("boss")
    refused = run.run("user", "delete", "boss", config=boss)
    assert refused.exit_code == 1
    assert "this command logs in as boss" in refused.stderr
    assert "--yes" in refused.stderr
    deleted = run.run("user", "delete", "boss", "--yes", config=boss)
    assert deleted.stdout == (
        "deleted user boss\n1 ACL(s) of boss stay, for a new user of this name, too; to delete "
        "them: ottla acl revoke boss --all\n"
    )
    assert "deleted allow User:boss all cluster" in run.ok("acl", "revoke", "boss", "--all")
    assert run.ok("acl", "revoke", "boss", "--all") == "no ACLs\n"


def test_commands_over_a_listener_that_asks_who_comes_case_104(run: Ottla, tmp_path: Path) -> None:
    assert "created" in run.ok("topic", "create", "orders", "--partitions", "2")
    assert "orders" in run.ok("topic", "list")
    assert "orders" in run.ok("topic", "describe", "orders")
    run.ok("topic", "alter", "orders", "--config", "retention.ms=1000000")
    run.ok("produce", "orders", given="one\ntwo\n")
    assert run.ok("consume", "orders", "--until-end", "--raw").split() == ["one", "two"]
    shared = run.ok(
        *("share-consume", "orders", "--group", "crew", "--from", "earliest"), "--max-records", "2"
    )
    assert "one" in shared
    assert "crew" in run.ok("share-group", "list")
    assert "crew" in run.ok("share-group", "describe", "crew")
    run.ok("group", "list")
    run.ok("transaction", "list")
    run.ok("bench", "--records", "100", "--partitions", "1")
    checks = json.loads(run.run("doctor", "--json").stdout)
    [broker] = [one for one in checks if one["check"].startswith("broker")]
    assert broker["verdict"] == "ok", broker
    relayed = f"file://{tmp_path}/copy.ss/orders"
    config = f"?config={run.config}"
    result = CliRunner().invoke(
        app,
        [
            *("relay", "--input", f"kafka://{run.address}/orders", "--output", relayed),
            *("--until-end", "--command-config", str(run.config)),
        ],
    )
    assert result.exit_code == 0, result.output
    assert "relayed 2 messages" in result.stderr
    run.ok("topic", "create", "copies")
    result = CliRunner().invoke(
        app,
        [
            *("relay", "--input", relayed, "--until-end"),
            *("--output", f"kafka://{run.address}/copies{config}"),
        ],
    )
    assert result.exit_code == 0, result.output
    assert "deleted" in run.ok("topic", "delete", "orders")


def test_a_wrong_password_is_one_sentence(run: Ottla, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.properties"
    wrong.write_text(run.config.read_text().replace('password="a"', 'password="canary"'))
    result = run.run("topic", "list", config=wrong)
    assert result.exit_code == 1
    [line] = result.stderr.splitlines()
    assert "cannot log in as 'alice' with SCRAM-SHA-512" in line
    assert "canary" not in result.output


def test_a_command_without_it_says_what_is_missing(run: Ottla) -> None:
    result = CliRunner().invoke(app, ["topic", "list", "--bootstrap", run.address])
    assert result.exit_code == 1
    assert "it wants TLS: set security.protocol to SSL or SASL_SSL" in result.stderr


def test_the_variable_names_it_too(run: Ottla) -> None:
    result = CliRunner().invoke(
        app,
        ["topic", "list", "--bootstrap", run.address],
        env={"OTTLA_COMMAND_CONFIG": str(run.config)},
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
    run: Ottla, tmp_path: Path, text: str | None, said: str
) -> None:
    path = tmp_path / "other.properties"
    if text is not None:
        path.write_text(text)
    result = run.run("topic", "list", config=path)
    assert result.exit_code == 2
    assert said in result.stderr.replace("\n", " ")
    assert "canary" not in result.output
