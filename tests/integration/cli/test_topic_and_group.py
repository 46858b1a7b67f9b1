"""`ottla topic`, `group` and `share-group` from the outside, against an embedded broker."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, ShareConsumer
from typer.testing import CliRunner

from ottla.cli.whole import app

if TYPE_CHECKING:
    from typer.testing import Result

    from ottla.testing.embedded import EmbeddedBroker

_numbers = itertools.count(1)


class Ottla:
    """Runs commands against one broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def run(self, *args: str) -> Result:
        return CliRunner().invoke(app, [*args, "--bootstrap", self.bootstrap])

    def ok(self, *args: str) -> str:
        result = self.run(*args)
        assert (result.exit_code, result.stderr) == (0, ""), result.output
        return result.stdout

    def value(self, *args: str) -> Any:
        return json.loads(self.ok(*args, "--json"))

    def failure(self, *args: str) -> str:
        """The one sentence of a command that fails."""
        result = self.run(*args)
        assert result.exit_code == 1
        [line] = result.stderr.splitlines()
        return line


@pytest.fixture
def ottla(ottla_broker: EmbeddedBroker) -> Ottla:
    return Ottla(ottla_broker.bootstrap)


@pytest.fixture
def name() -> str:
    """A name for a topic or a group that no other test uses."""
    return f"cli-{next(_numbers)}"


@pytest.fixture
def topic(ottla: Ottla, name: str) -> str:
    ottla.ok("topic", "create", name, "--partitions", "2")
    return name


def rows(table: str) -> list[list[str]]:
    """The cells of the rows below a table's rule."""
    lines = table.splitlines()
    rule = next(number for number, line in enumerate(lines) if line.startswith("──"))
    return [line.split() for line in lines[rule + 1 :]]


def test_a_topic_from_its_creation_to_its_end(ottla: Ottla, name: str) -> None:
    said = ottla.ok("topic", "create", name, "--partitions", "3", "--config", "retention.ms=5")
    assert said == f"created topic {name} with 3 partition(s)\n"
    assert [name, "3", "no"] in rows(ottla.ok("topic", "list"))
    described = ottla.ok("topic", "describe", name)
    assert "configs: retention.ms=5" in described
    assert [row[0] for row in rows(described)] == ["0", "1", "2"]

    change = ("--partitions", "4", "--config", "segment.bytes=2000000", "--unset", "retention.ms")
    assert ottla.ok("topic", "alter", name, *change) == f"altered topic {name}\n"
    [value] = ottla.value("topic", "describe", name)
    assert value["configs"] == {"segment.bytes": "2000000"}
    assert [one["partition"] for one in value["partitions"]] == [0, 1, 2, 3]

    assert ottla.ok("topic", "delete", name) == f"deleted topic {name}\n"
    assert name not in {one["name"] for one in ottla.value("topic", "list")}


def test_json_says_what_happened(ottla: Ottla, name: str) -> None:
    made = ottla.value("topic", "create", name, "--if-not-exists")
    assert (made["name"], made["created"]) == (name, True)
    again = ottla.value("topic", "create", name, "--if-not-exists")
    assert again == {"name": name, "created": False}
    [listed] = [one for one in ottla.value("topic", "list") if one["name"] == name]
    assert listed["id"] == made["id"]
    assert len(made["id"]) == 22
    altered = ottla.value("topic", "alter", name, "--config", "retention.ms=1")
    assert altered == {"name": name, "altered": True}
    assert ottla.value("topic", "delete", name) == [{"name": name, "deleted": True}]


def test_a_topic_that_exists_is_a_failure_unless_that_is_fine(ottla: Ottla, topic: str) -> None:
    assert "TOPIC_ALREADY_EXISTS" in ottla.failure("topic", "create", topic)
    assert ottla.ok("topic", "create", topic, "--if-not-exists") == f"topic {topic} exists\n"


def test_what_can_be_deleted_is(ottla: Ottla, topic: str) -> None:
    result = ottla.run("topic", "delete", f"{topic}-missing", topic)
    assert result.exit_code == 1
    assert result.stdout == f"deleted topic {topic}\n"
    assert f"'{topic}-missing': UNKNOWN_TOPIC_OR_PARTITION" in result.stderr


def test_a_missing_topic_and_a_bad_setting_are_sentences(ottla: Ottla, topic: str) -> None:
    assert "find topic 'nope'" in ottla.failure("topic", "describe", "nope")
    assert "retention.ms" in ottla.failure("topic", "alter", topic, "--config", "retention.ms=x")
    assert "INVALID_PARTITIONS" in ottla.failure("topic", "alter", topic, "--partitions", "1")
    assert ottla.failure("topic", "create", "x" * 40_000).startswith("ottla: ")


def test_a_reset_is_shown_and_then_done(ottla: Ottla, topic: str) -> None:
    group = f"group-of-{topic}"
    plan = ("group", "reset", group, "--topic", topic, "--to-earliest")
    shown = ottla.ok(*plan)
    assert "nothing was changed; add --execute" in shown
    assert rows(shown)[:2] == [[topic, "0", "-", "0"], [topic, "1", "-", "0"]]
    assert "no offsets" in ottla.failure("group", "reset", group, "--to-latest")
    done = ottla.value(*plan, "--execute")
    assert done["executed"] is True
    moved = {"topic": topic, "partition": 0, "before": None, "after": 0}
    assert done["offsets"][0] == moved
    assert ottla.ok("group", "reset", group, "--shift-by", "-1", "--execute").endswith("done\n")


@pytest.mark.parametrize(
    "target", [("--to-latest",), ("--to-offset", "7"), ("--to-datetime", "2001-09-09T01:46:40Z")]
)
def test_every_target_ends_within_an_empty_log(
    ottla: Ottla, topic: str, target: tuple[str, ...]
) -> None:
    plan = ottla.value("group", "reset", f"group-of-{topic}", "--topic", topic, *target)
    assert [one["after"] for one in plan["offsets"]] == [0, 0]


def test_a_group_is_listed_described_and_deleted(ottla: Ottla, topic: str) -> None:
    group = f"group-of-{topic}"
    ottla.ok("group", "reset", group, "--topic", topic, "--to-earliest", "--execute")
    assert [group, "classic", "Empty", "-"] in rows(ottla.ok("group", "list", "--state", "Empty"))
    assert group not in {one["name"] for one in ottla.value("group", "list", "--type", "share")}
    described = ottla.ok("group", "describe", group)
    assert described.startswith(f"{group}  classic  Empty  0 member(s)")
    assert rows(described)[0] == [topic, "0", "0", "0", "0", "-", "-"]
    [value] = ottla.value("group", "describe", group)
    assert value["offsets"][1]["lag"] == 0
    assert value["members"] == []
    assert ottla.ok("group", "delete", group) == f"deleted group {group}\n"
    assert "GROUP_ID_NOT_FOUND" in ottla.failure("group", "describe", group)
    gone = ottla.run("group", "delete", group, "--json")
    assert json.loads(gone.stdout) == [{"name": group, "deleted": False}]
    assert gone.exit_code == 1


def test_a_share_group_from_its_first_offsets_to_its_end(ottla: Ottla, topic: str) -> None:
    group = f"group-of-{topic}"
    plan = ("share-group", "reset", group, "--topic", topic, "--to-earliest")
    shown = ottla.ok(*plan)
    assert "nothing was changed; add --execute" in shown
    assert rows(shown)[:2] == [[topic, "0", "-", "0"], [topic, "1", "-", "0"]]
    assert "no offsets" in ottla.failure("share-group", "reset", group, "--to-latest")
    assert group not in {one["name"] for one in ottla.value("share-group", "list")}
    done = ottla.value(*plan, "--execute")
    moved = {"topic": topic, "partition": 0, "before": None, "after": 0}
    assert (done["executed"], done["offsets"][0]) == (True, moved)

    assert [group, "Empty"] in rows(ottla.ok("share-group", "list", "--state", "Empty"))
    assert [group, "share", "Empty", "share"] in rows(ottla.ok("group", "list"))
    described = ottla.ok("share-group", "describe", group)
    assert described.startswith(f"{group}  share  Empty  0 member(s)")
    assert rows(described) == [[topic, str(index), *"00000"] for index in (0, 1)]
    [value] = ottla.value("share-group", "describe", group)
    nothing = {"start_offset": 0, "in_flight": 0, "delivered": 0, "lag": 0}
    assert value["offsets"][1] == {"topic": topic, "partition": 1, **nothing}

    assert ottla.ok("share-group", "delete", group) == f"deleted share group {group}\n"
    assert "GROUP_ID_NOT_FOUND" in ottla.failure("share-group", "describe", group)


def test_a_share_group_s_members_are_shown(ottla: Ottla, topic: str) -> None:
    group = f"group-of-{topic}"
    settings = {"bootstrap.servers": ottla.bootstrap, "group.id": group, "client.id": "worker"}
    with ShareConsumer(settings) as consumer:
        consumer.subscribe([topic])
        deadline = time.monotonic() + 30.0
        while not (members := members_of(ottla, group)) or not members[0]["partitions"]:
            assert time.monotonic() < deadline
            consumer.poll(0.1)
        [member] = members
        described = ottla.ok("share-group", "describe", group)
        assert "Stable  1 member(s)" in described
    assert member["client_id"] == "worker"
    assert member["topics"] == [topic]
    assert f"{topic}-0, {topic}-1" in described.splitlines()[-1]


def test_what_members_hold_and_what_is_delivered_are_shown(ottla: Ottla, topic: str) -> None:
    group = f"group-of-{topic}"
    ottla.ok("share-group", "reset", group, "--topic", topic, "--to-earliest", "--execute")
    producer = Producer({"bootstrap.servers": ottla.bootstrap})
    for number in range(5):
        producer.produce(topic, str(number), partition=0)
    producer.flush(30.0)
    settings = {
        "bootstrap.servers": ottla.bootstrap,
        "group.id": group,
        "share.acknowledgement.mode": "explicit",
    }
    with ShareConsumer(settings) as consumer:
        consumer.subscribe([topic])
        held: list[Any] = []
        deadline = time.monotonic() + 30.0
        while len(held) < 5:
            assert time.monotonic() < deadline
            held += consumer.poll(0.1)
        for message in held[2:4]:
            consumer.acknowledge(message)
        consumer.commit_sync(30.0)
        [value] = ottla.value("share-group", "describe", group)
        shown = rows(ottla.ok("share-group", "describe", group))[0]
        for message in (*held[:2], held[4]):
            consumer.acknowledge(message)
    counts = {"start_offset": 0, "in_flight": 3, "delivered": 2, "lag": 3}
    assert value["offsets"][0] == {"topic": topic, "partition": 0, **counts}
    assert shown == [topic, *"003231"]


def members_of(ottla: Ottla, group: str) -> list[Any]:
    known = {one["name"] for one in ottla.value("share-group", "list")}
    return ottla.value("share-group", "describe", group)[0]["members"] if group in known else []


def test_only_share_groups_are_deleted_as_such(ottla: Ottla, topic: str) -> None:
    group = f"group-of-{topic}"
    ottla.ok("group", "reset", group, "--topic", topic, "--to-earliest", "--execute")
    gone = ottla.run("share-group", "delete", group, "--json")
    assert (gone.exit_code, json.loads(gone.stdout)) == (1, [{"name": group, "deleted": False}])
    assert group in {one["name"] for one in ottla.value("group", "list")}


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("topic", "create", "t", "--config", "novalue"), "'novalue' is not KEY=VALUE"),
        (("topic", "create", "t", "--config", "=v"), "'=v' is not KEY=VALUE"),
        (("topic", "create", "t", "--partitions", "0"), "'--partitions'"),
        (("topic", "alter", "t"), "give --partitions, --config or --unset"),
        (("topic", "alter", "t", "--config", "k=v", "--unset", "k"), "'k' is set as well"),
        (("topic", "list", "--bootstrap", "nowhere:port"), "HOST:PORT"),
        (("topic", "list", "--bootstrap", ""), "names no broker"),
        (("group", "reset", "g"), "exactly one of"),
        (("group", "reset", "g", "--to-latest", "--to-earliest"), "exactly one of"),
        (("group", "reset", "g", "--to-datetime", "soon"), "'soon' is not a time"),
        (("share-group", "reset", "g"), "exactly one of"),
        (("topic", "describe"), "Missing argument"),
        (("topic", "fly"), "No such command 'fly'"),
    ],
)
def test_wrong_use_ends_with_status_2(args: tuple[str, ...], sentence: str) -> None:
    result = CliRunner().invoke(app, list(args))
    assert result.exit_code == 2
    assert sentence in " ".join(result.stderr.split())
    assert result.stdout == ""


@pytest.mark.parametrize(
    "command",
    [
        "topic create",
        "topic list",
        "topic describe",
        "topic alter",
        "topic delete",
        "group list",
        "group describe",
        "group reset",
        "group delete",
        "share-group list",
        "share-group describe",
        "share-group reset",
        "share-group delete",
    ],
)
def test_help_shows_examples(command: str) -> None:
    said = CliRunner().invoke(app, [*command.split(), "--help"])
    assert said.exit_code == 0
    assert f"Examples:\n      ottla {command}" in said.stdout


def python(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *args], capture_output=True, encoding="utf-8", check=False, timeout=60
    )


def test_no_broker_is_said_at_once_and_without_a_traceback() -> None:
    ended = python("-m", "ottla.cli", "topic", "list", "--bootstrap", "127.0.0.1:1")
    assert ended.returncode == 1
    assert ended.stdout == ""
    [line] = ended.stderr.splitlines()
    assert line.startswith("ottla: cannot connect to 127.0.0.1:1: connection refused")


def test_a_table_is_not_cut_on_its_way_to_another_program(ottla: Ottla) -> None:
    long_name = "a" * 200
    ottla.ok("topic", "create", long_name)
    ended = python("-m", "ottla.cli", "topic", "list", "--bootstrap", ottla.bootstrap)
    assert [long_name, "1", "no"] in rows(ended.stdout)
    ottla.ok("topic", "delete", long_name)


def test_commands_do_not_pay_for_each_other() -> None:
    heavy = "('asyncio', 'rich', 'ottla.client', 'ottla.broker', 'ottla.wire', 'ssl', 'numpy')"
    ended = python(
        "-c",
        f"import sys, ottla.cli.whole; print([one for one in {heavy} if one in sys.modules])",
    )
    assert ended.stdout == "[]\n", ended.stderr
    program = (
        "import atexit, sys; from ottla.cli import main; "
        "atexit.register(lambda: print([one for one in sys.modules if 'ottla.cli.' in one])); "
        "main()"
    )
    loaded = python("-c", program, "topic", "--help").stdout.splitlines()[-1]
    assert "ottla.cli.topic" in loaded
    assert "ottla.cli.broker" not in loaded


def test_the_version_is_the_package_s() -> None:
    import ottla as package

    assert CliRunner().invoke(app, ["--version"]).stdout == f"ottla {package.__version__}\n"
