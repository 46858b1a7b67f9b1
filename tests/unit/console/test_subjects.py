"""Changes of schemas as forms ask for them, against a registry that is a value."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from ottla.console import subjects
from ottla.console.commands import Commands
from ottla.console.problem import Refused
from ottla.schemas.model import Kind, Schema
from ottla.schemas.registry_client import Compatibility, RegisteredSchema, RegistryRefused

REGISTER = {"do": "register", "subject": "orders-value", "kind": "avro", "schema": '"string"'}
NOT_FOUND = RegistryRefused(404, 40401, "Subject not found")


class Registry:
    """Has one subject with one version."""

    url = "http://registry"

    def __init__(self, messages: tuple[str, ...] = ()) -> None:
        self.messages = messages
        self.checked = 0

    async def latest(self, subject: str) -> RegisteredSchema:
        if subject != "orders-value":
            raise NOT_FOUND
        return RegisteredSchema(subject, 3, 7, Schema(Kind.AVRO, '"long"'))

    async def look_up(self, subject: str, schema: Schema) -> RegisteredSchema:
        if schema.text != '"long"':
            raise NOT_FOUND
        return await self.latest(subject)

    async def check(self, _: str, __: Schema) -> Compatibility:
        self.checked += 1
        return Compatibility(not self.messages, self.messages)

    async def versions(self, _: str) -> list[int]:
        return [2, 3]

    async def config(self, subject: str | None = None) -> str:
        return "BACKWARD" if subject is None else "FULL"


async def preview(form: dict[str, str], registry: Registry | None = None) -> subjects.Preview:
    found: Any = registry or Registry()
    return await subjects.preview(found, subjects.parse(form))


async def test_case_74_a_version_is_checked_and_compared() -> None:
    seen = await preview(REGISTER)
    assert seen.allowed
    assert seen.notes == ("It may follow version 3.",)
    assert [(one.sign, one.text) for one in seen.difference] == [
        ("-", '"long"'),
        ("+", '"string"'),
    ]
    refused = await preview(REGISTER, Registry(("READER_FIELD_MISSING at /",)))
    assert not refused.allowed
    assert refused.notes[1] == "READER_FIELD_MISSING at /"
    same = await preview({**REGISTER, "schema": '"long"'})
    assert "as version 3: nothing would change" in same.notes[0]
    registry = Registry()
    assert (await preview({**REGISTER, "subject": "new"}, registry)).notes == (
        "The subject is new.",
    )
    assert registry.checked == 1, "whether it is a schema"


async def test_case_74_levels_and_deletions() -> None:
    level = {"do": "level", "subject": "orders-value", "level": "NONE"}
    seen = await preview(level)
    assert (seen.before, seen.after) == (("orders-value: FULL",), ("orders-value: NONE",))
    unset = await preview({**level, "level": ""})
    assert unset.after == ("orders-value: BACKWARD, as for all",)
    all_of_them = await preview({"do": "level", "level": "FULL"})
    assert all_of_them.before == ("all subjects without their own: BACKWARD",)
    gone = {"do": "delete", "subject": "s", "name": "s"}
    assert (await preview(gone)).before == ("s version 2", "s version 3")
    assert (await preview({**gone, "version": "3"})).before == ("s version 3",)
    with pytest.raises(Refused, match="no version 9"):
        await preview({**gone, "version": "9"})


@pytest.mark.parametrize(
    "wrong",
    [
        {"do": "everything"},
        {"subject": ""},
        {"subject": "a" * 501},
        {"subject": "a\nb"},
        {"kind": "xml"},
        {"schema": "  "},
        {"schema": "x" * (subjects.MAX_SCHEMA + 1)},
        {"references": "no equals"},
        {"references": "a=b:c"},
        {"references": "\n".join(f"a{one}=b:1" for one in range(51))},
        {"do": "level", "level": "SOME"},
        {"do": "level", "subject": "", "level": ""},
        {"do": "delete", "name": "another"},
        {"do": "delete", "name": "orders-value", "version": "newest"},
    ],
)
def test_case_74_what_makes_no_sense_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(Refused) as refused:
        subjects.parse({**REGISTER, **wrong})
    assert refused.value.status == 400


def test_a_change_survives_its_form() -> None:
    for form in (
        {**REGISTER, "references": "shop.proto=shop:1\r\nb=c:d:2"},
        {"do": "level", "level": "FULL"},
        {"do": "delete", "subject": "s", "name": "s", "version": "2"},
    ):
        change = subjects.parse(form)
        assert subjects.from_json(json.loads(json.dumps(subjects.to_json(change)))) == change


def test_case_29_commands_are_twins_of_changes() -> None:
    def words(form: dict[str, str]) -> str:
        line = Commands("b:1").subject(subjects.parse(form))
        return line.replace(" --bootstrap b:1", "")

    referring = {**REGISTER, "references": "shop.proto=shop:1"}
    assert words(referring) == (
        "ottla registry add --kind avro --reference shop.proto=shop:1 orders-value FILE"
    )
    level = {"do": "level", "subject": "s", "level": "FULL"}
    assert words(level) == "ottla registry config --set FULL s"
    assert words({**level, "level": ""}) == "ottla registry config --unset s"
    gone = {"do": "delete", "subject": "s", "name": "s", "version": "2"}
    assert shlex.split(words(gone)) == ["ottla", "registry", "delete", "s", "2"]


def test_audit_lines_have_no_schema() -> None:
    change = subjects.parse(REGISTER)
    assert (change.operation, change.resource) == ("Write", "subject orders-value")
