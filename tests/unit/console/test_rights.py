"""Changes of rights, quotas and users as forms ask for them."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from ottla.cli.quota import KEYS
from ottla.client.admin.types import Acl, QuotaDescription, UserDescription
from ottla.console import rights
from ottla.console.commands import Commands
from ottla.console.missing import Missing
from ottla.console.problem import Refused

RULE = {
    "do": "add",
    "permission": "allow",
    "principal": "alice",
    "operation": "read",
    "kind": "topic",
    "resource": "orders*",
    "host": "",
}
QUOTA = {"do": "quota", "kind": "user", "name": "alice", "quota": "producer_byte_rate"}
COMMANDS = Commands("broker:9092")
USERS = [UserDescription("alice", {"SCRAM-SHA-512": 8192}), UserDescription("root", {})]
NOT_ALLOWED = Missing("not allowed")


def test_case_75_a_rule_of_a_form() -> None:
    change = rights.parse(RULE)
    assert change.acls == (Acl("topic", "orders", "read", "User:alice", pattern="prefixed"),)
    cluster = rights.parse({**RULE, "kind": "cluster", "resource": "", "operation": "describe"})
    assert cluster.acls == (Acl("cluster", "kafka-cluster", "describe", "User:alice"),)
    # A row says its pattern itself: a star at the end of a literal name is part of it.
    literal = rights.parse({**RULE, "do": "revoke", "pattern": "literal"})
    assert literal.acls == (Acl("topic", "orders*", "read", "User:alice"),)


@pytest.mark.parametrize(
    "wrong",
    [
        {"do": "everything"},
        {"principal": " "},
        {"principal": "a" * 501},
        {"principal": "a\u202eb\n"},
        {"operation": "reed"},
        {"permission": "perhaps"},
        {"kind": "planet"},
        {"resource": ""},
        {"pattern": "regex"},
        {"host": "a" * 501},
    ],
)
def test_case_75_what_is_no_rule_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(Refused) as refused:
        rights.parse({**RULE, **wrong})
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("form", "entity", "value"),
    [
        ({"value": "1e6"}, {"user": "alice"}, 1e6),
        ({"value": ""}, {"user": "alice"}, None),
        ({"name": "", "value": "5"}, {"user": None}, 5.0),
        ({"kind": "ip", "name": "10.0.0.7", "value": "5"}, {"ip": "10.0.0.7"}, 5.0),
        (
            {"kind": "user and client-id", "client": "batch", "value": "5"},
            {"user": "alice", "client-id": "batch"},
            5.0,
        ),
        ({"e:user": "bob", "e:client-id": ""}, {"user": "bob", "client-id": None}, None),
    ],
)
def test_case_75_quotas_of_forms_and_rows(
    form: dict[str, str], entity: dict[str, str | None], value: float | None
) -> None:
    change = rights.parse({**QUOTA, **form})
    assert dict(change.entity) == entity
    assert dict(change.values) == {"producer_byte_rate": value}


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "planet"},
        {"quota": "speed"},
        {"value": "-1"},
        {"value": "0"},
        {"value": "nan"},
        {"value": "inf"},
        {"value": "much"},
        {"value": "9" * 400},
        {"name": "a" * 501},
    ],
)
def test_case_75_what_is_no_quota_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(Refused):
        rights.parse({**QUOTA, **wrong})


def test_a_change_survives_its_form() -> None:
    for form in (RULE, {**QUOTA, "value": "7"}, QUOTA, {"do": "user", "user": "bob"}):
        change = rights.parse(form)
        assert rights.from_json(json.loads(json.dumps(rights.to_json(change)))) == change


def preview(form: dict[str, str], own: str | None = "root", **known: Any) -> rights.Preview:
    given = {"users": USERS, "acls": [], "quotas": [], **known}
    return rights.preview(rights.parse(form), own=own, **given)


def test_case_75_previews_say_what_changes() -> None:
    seen = preview(RULE)
    assert (seen.before, seen.after) == ((), ("allow User:alice read topic:orders*",))
    assert seen.notes == ()
    [again] = preview(RULE, acls=list(rights.parse(RULE).acls)).notes
    assert "exists already" in again
    deny = preview({**RULE, "permission": "deny", "principal": "*"}).notes
    assert "wins" in deny[0]
    assert "root" in deny[1], "it holds for the console's own user"
    assert "No user bob" in preview({**RULE, "principal": "bob"}).notes[0]
    assert preview({**RULE, "principal": "bob"}, users=NOT_ALLOWED).notes == ()
    quotas = [QuotaDescription({"user": "alice"}, {"producer_byte_rate": 1e6})]
    changed = preview({**QUOTA, "value": "2000000.5"}, quotas=quotas)
    assert changed.before == ("user alice: producer_byte_rate = 1,000,000",)
    assert changed.after == ("user alice: producer_byte_rate = 2,000,000.5",)
    assert preview(QUOTA, quotas=quotas).after == ()
    acls = [Acl("topic", "t", "read", "User:alice")]
    gone = preview({"do": "user", "user": "alice"}, acls=acls)
    assert gone.before == ("alice (SCRAM-SHA-512)",)
    assert gone.notes[1].startswith("1 rule(s) of it stay")


@pytest.mark.parametrize(
    ("form", "status"),
    [
        ({**RULE, "do": "revoke"}, 409),
        (QUOTA, 409),
        ({"do": "user", "user": "nobody"}, 404),
        ({"do": "user", "user": "root"}, 409),
    ],
)
def test_case_75_what_is_not_there_or_locks_out_is_refused(
    form: dict[str, str], status: int
) -> None:
    with pytest.raises(Refused) as refused:
        preview(form)
    assert refused.value.status == status


def test_case_29_commands_are_twins_of_changes() -> None:
    def words(form: dict[str, str]) -> list[str]:
        line = shlex.split(COMMANDS.rights(rights.parse(form)))
        at = line.index("--bootstrap")
        return [*line[:at], *line[at + 2 :]]

    assert rights.QUOTAS == KEYS
    assert words(RULE) == shlex.split("ottla acl allow User:alice read on 'topic:orders*'")
    revoke = {**RULE, "do": "revoke", "host": "10.0.0.7", "permission": "deny"}
    assert words(revoke)[:3] == ["ottla", "acl", "revoke"]
    assert words(revoke)[3:5] == ["--host", "10.0.0.7"]
    assert words({**QUOTA, "value": "1e6"})[1:] == ["quota", "set", "user=alice", "produce=1000000"]
    named = words({**QUOTA, "name": "CN=a,O=b"})
    assert named[1:] == ["quota", "delete", 'user="CN=a,O=b"', "produce"]
    assert words({"do": "user", "user": "-x"})[-2:] == ["--", "-x"]


def test_audit_lines_say_what_and_no_values() -> None:
    change = rights.parse({**QUOTA, "value": "12345"})
    assert change.resource == "quota user alice producer_byte_rate"
    assert rights.parse(RULE).resource == "acl allow User:alice read topic:orders*"
