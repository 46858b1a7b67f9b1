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
    # By default each failed login of an address is answered later than the one before.
    delay = {"connection.failed.authentication.delay.ms": "0"}
    with ottla.EmbeddedBroker(security=SECURED, config=delay) as broker:
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


LINES = """
produce x
consume x
share-consume x --group g
sql select+1+from+x
run {directory}/pipeline.py --state {directory}/state
relay --input kafka://{address}/x --output file://{directory}/copy.ss/x
clock --output kafka://{address}/x --interval 10ms --count 1
bench
doctor
top --once
cluster status
cluster move x-0 1
cluster drain 1
cluster forget 1
topic create x
topic list
topic describe x
topic alter x --config retention.ms=1
topic delete x
group list
group describe x
group reset x --to-earliest
group forget x --topic x
group delete x
share-group list
share-group describe x
share-group reset x --to-earliest
share-group alter x --unset share.delivery.count.limit
share-group forget x --topic x
share-group delete x
share-group redrive x
pipeline check {directory}/pipeline.py --deep
table run --once
table status
table show x
table verify x
table infer x
table resume x --accept
table retire x
table drop x --yes
table reprocess x
table rebuild x
table erase x --where a=1
table compact x
table expire x
table sweep x
tier status
tier list x
tier verify x
tier repair x
tier plan x
transaction list
transaction describe x
transaction find-hanging
transaction abort x
user create x --password-file {directory}/password
user list
user describe x
user delete x
acl allow x read on topic:x
acl deny x read on topic:x
acl grant x producer topic:x
acl list
acl revoke x --all
acl test x read on topic:x
quota set user=x produce=1MB/s
quota list
quota delete user=x
registry run
registry subjects
registry show x
registry add x {directory}/schema.json
registry check x {directory}/schema.json
registry config
registry mode
registry delete x
""".strip().splitlines()
PIPELINE = """
from ottla.spark.pipelines import flow, source, topic

source("records", topic="records")

@flow("copied", reads=["records"], writes=topic("copies"))
def copied(records):
    return records
"""


def taking() -> set[str]:
    """The commands that take such a file."""
    return {
        name
        for name, command in commands(get_command(app))
        if "command_config" in {one.name for one in command.params}
    }


@pytest.mark.long
def test_every_command_logs_in_as_the_file_says_case_104(
    run: Ottla, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a wrong password each of them is refused, and says so."""
    built = get_command(app)  # once: the runner would build all commands for each of them
    monkeypatch.setattr("typer.testing._get_command", lambda _: built)
    (tmp_path / "pipeline.py").write_text(PIPELINE)
    (tmp_path / "schema.json").write_text('"string"')
    (tmp_path / "password").write_text("p")
    wrong = tmp_path / "wrong.properties"
    wrong.write_text(run.config.read_text().replace('password="a"', 'password="canary"'))
    left = taking()
    said = {}
    for line in LINES:
        left -= {name for name in left if f"{line} ".startswith(f"{name} ")}
        words = line.format(directory=tmp_path, address=run.address).split()
        args = [word.replace("+", " ") for word in words] + ["--command-config", str(wrong)]
        if run.address not in " ".join(words):
            args += ["--bootstrap", run.address]
        result = CliRunner().invoke(app, args, input="x\n")
        if "cannot log in as 'alice'" not in result.output.replace("\n", " "):
            said[line] = result.output
        assert result.exit_code != 0, line
        assert "canary" not in result.output, line
    assert said == {}
    assert left == {"pipeline status"}  # it asks nobody before the first checkpoint


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


@pytest.mark.long
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
