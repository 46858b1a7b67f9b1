"""Decisions of the registry: ids, versions, deletes, references, modes, levels, contexts."""

from __future__ import annotations

import pytest

from ottla.registry.errors import Code
from ottla.registry.requests import (
    Check,
    Deleted,
    DeleteSubject,
    DeleteVersion,
    Done,
    Look,
    Register,
    Registered,
    SetConfig,
    SetMode,
)
from ottla.registry.routes import merged
from ottla.registry.state import COMPATIBILITY, GROUP, State
from ottla.registry.views import by_guid, by_id, must_fit, referenced_by, subjects, version
from ottla.schemas.compatibility import Level
from ottla.schemas.model import Reference
from tests.support.schema_registry import Driver, avro, content

INT, LONG, STRING = '"int"', '"long"', '"string"'


@pytest.fixture
def registry() -> Driver:
    return Driver()


def everyone(_: str) -> bool:
    return True


# -- ids and versions -----------------------------------------------------------------------------


def test_case_1_the_same_schema_again_has_its_id_and_writes_nothing(registry: Driver) -> None:
    first = registry.register("a", STRING)
    assert (first.id, first.version) == (1, 1)
    written = list(registry.log)
    assert registry.register("a", STRING) == first
    assert registry.log == written


def test_case_2_a_schema_has_one_id_in_all_subjects(registry: Driver) -> None:
    assert registry.register("a", STRING).id == registry.register("b", STRING).id == 1
    assert registry.register("b", INT).id == 2
    found = by_id(registry.state, everyone, 1)
    assert [one.subject for one in found] == ["a", "b"]


@pytest.mark.parametrize(
    "other",
    [
        avro(STRING, metadata={"properties": {"owner": "me"}}),
        avro(STRING, Reference("x", "base", 1)),
    ],
)
def test_metadata_and_references_make_another_schema(registry: Driver, other: object) -> None:
    registry.register("base", INT)
    assert registry.register("a", STRING).id == 2
    assert registry.register("a", other).id == 3  # type: ignore[arg-type]


def test_case_15_contexts_have_ids_of_their_own(registry: Driver) -> None:
    registry.register("x", INT)
    assert registry.register(":.a:x", STRING).id == 1
    assert registry.register(":.b:x", LONG).id == 1
    assert registry.register(":.b:x", STRING).id == 2
    assert [one.subject for one in by_id(registry.state, everyone, 1, context=".a")] == [":.a:x"]


def test_equal_schemas_have_equal_guids_in_every_context(registry: Driver) -> None:
    first, second = registry.register("x", STRING), registry.register(":.a:x", STRING)
    assert first.guid == second.guid
    found = by_guid(registry.state, everyone, first.guid.upper())
    assert [one.subject for one in found] == [":.a:x", "x"]


def test_ids_end_with_an_error_not_with_another_id(registry: Driver) -> None:
    registry.ask(SetMode(None, "IMPORT"), Done)
    registry.register("a", STRING, 2**31 - 1, 1)
    registry.ask(SetMode(None, "READWRITE"), Done)
    assert "all ids" in registry.refused(Register("b", avro(INT)), Code.STORE)


# -- compatibility --------------------------------------------------------------------------------


def test_a_new_schema_is_first_to_be_compared(registry: Driver) -> None:
    first = registry.register("a", INT)
    check = registry.ask(Register("a", avro(LONG)), Check)
    assert check == Check(Level.BACKWARD, (first,))
    assert registry.ask(Register("a", avro(LONG), passed=check), Registered).version.version == 2


def test_a_check_of_a_subject_that_has_changed_does_not_count(registry: Driver) -> None:
    registry.register("a", INT)
    old = registry.ask(Register("a", avro(LONG)), Check)
    second = registry.register("a", STRING)
    assert registry.ask(Register("a", avro(LONG), passed=old), Check).against == (second,)
    registry.ask(SetConfig("a", {COMPATIBILITY: "FULL"}), Done)
    assert registry.ask(Register("a", avro(LONG), passed=old), Check).level is Level.FULL


@pytest.mark.parametrize("level", Level)
def test_the_level_says_with_which_versions(registry: Driver, level: Level) -> None:
    registry.ask(SetConfig(None, {COMPATIBILITY: level}), Done)
    versions = [registry.register("a", text) for text in (INT, LONG, STRING)]
    registry.ask(DeleteVersion("a", 3), Deleted)
    expected = versions[:2] if level.is_transitive else versions[1:2]
    found = must_fit(registry.state, "a", avro('"double"'), Level.BACKWARD)
    assert found == Check(level, () if level is Level.NONE else tuple(expected))


def test_a_group_compares_versions_of_the_same_property(registry: Driver) -> None:
    def schema(text: str, major: str) -> object:
        return avro(text, metadata={"properties": {"major": major}})

    registry.ask(SetConfig("a", {GROUP: "major"}), Done)
    first = registry.register("a", schema(INT, "1"))  # type: ignore[arg-type]
    registry.register("a", schema(LONG, "2"))  # type: ignore[arg-type]
    check = registry.ask(Register("a", schema(STRING, "1")), Check)  # type: ignore[arg-type]
    assert check.against == (first,)
    assert registry.register("a", schema(STRING, "3")).version == 3  # type: ignore[arg-type]


# -- deleting -------------------------------------------------------------------------------------


def test_case_10_a_soft_deleted_version_is_still_there_by_id(registry: Driver) -> None:
    registry.register("a", INT)
    registry.register("a", LONG)
    assert registry.ask(DeleteVersion("a", None), Deleted).versions == (2,)
    assert version(registry.state, "a", None).version == 1
    assert [one.version for one in registry.state.versions("a", deleted=True)] == [1, 2]
    assert by_id(registry.state, everyone, 2)[0].schema.text == LONG


def test_what_was_soft_deleted_comes_back_as_a_new_version_with_its_id(registry: Driver) -> None:
    registry.register("a", INT)
    registry.register("a", LONG)
    registry.ask(DeleteVersion("a", 2), Deleted)
    back = registry.register("a", LONG)
    assert (back.version, back.id) == (3, 2)


def test_case_11_a_hard_delete_comes_after_a_soft_one(registry: Driver) -> None:
    registry.register("a", INT)
    registry.register("a", LONG)
    registry.refused(DeleteVersion("a", 2, permanent=True), Code.VERSION_NOT_SOFT_DELETED)
    registry.refused(DeleteSubject("a", permanent=True), Code.SUBJECT_NOT_SOFT_DELETED)
    registry.ask(DeleteVersion("a", 2), Deleted)
    registry.refused(DeleteVersion("a", 2), Code.VERSION_SOFT_DELETED)
    registry.ask(DeleteVersion("a", 2, permanent=True), Deleted)
    assert (b'{"keytype":"SCHEMA","subject":"a","version":2,"magic":1}', None) in registry.log
    assert registry.register("a", STRING).version == 3


def test_case_11_after_compaction_no_number_is_given_again(registry: Driver) -> None:
    registry.register("a", INT)
    registry.register("a", LONG)
    registry.ask(DeleteVersion("a", 2), Deleted)
    registry.ask(DeleteVersion("a", 2, permanent=True), Deleted)
    registry = Driver(registry.compacted())
    again = registry.register("a", STRING)
    assert (again.version, again.id) == (3, 3)


def test_a_subject_that_is_gone_goes_on_with_higher_numbers(registry: Driver) -> None:
    registry.register("a", INT)
    registry.register("a", LONG)
    assert registry.ask(DeleteSubject("a"), Deleted).versions == (1, 2)
    registry.refused(DeleteSubject("a"), Code.SUBJECT_SOFT_DELETED)
    assert registry.ask(DeleteSubject("a", permanent=True), Deleted).versions == (1, 2)
    registry.refused(DeleteSubject("a"), Code.NO_SUBJECT)
    registry = Driver(registry.compacted())
    assert not registry.state.versions("a", deleted=True)
    again = registry.register("a", INT)
    assert (again.version, again.id) == (3, 3)


def test_deleting_a_subject_removes_its_settings(registry: Driver) -> None:
    registry.register("a", INT)
    registry.ask(SetConfig("a", {COMPATIBILITY: "NONE"}), Done)
    registry.ask(SetMode("a", "READWRITE"), Done)
    registry.ask(DeleteSubject("a"), Deleted)
    assert not registry.state.configs
    assert not registry.state.modes
    assert subjects(registry.state, everyone) == []
    assert subjects(registry.state, everyone, only=True) == ["a"]


@pytest.mark.parametrize("permanent", [False, True])
def test_what_is_not_there_is_not_deleted(registry: Driver, *, permanent: bool) -> None:
    registry.refused(DeleteSubject("a", permanent=permanent), Code.NO_SUBJECT)
    registry.refused(DeleteVersion("a", 1, permanent=permanent), Code.NO_SUBJECT)
    registry.register("a", INT)
    registry.refused(DeleteVersion("a", 2, permanent=permanent), Code.NO_VERSION)


# -- references -----------------------------------------------------------------------------------


def test_case_12_a_version_that_others_reference_is_not_deleted(registry: Driver) -> None:
    registry.register("base", INT)
    user = registry.register("a", avro(LONG, Reference("base", "base", 1)))
    assert referenced_by(registry.state, everyone, ("base", 1)) == [user.id]
    assert "a version 1" in registry.refused(DeleteVersion("base", 1), Code.REFERENCED)
    registry.refused(DeleteSubject("base"), Code.REFERENCED)
    registry.ask(DeleteSubject("a"), Deleted)
    registry.ask(DeleteSubject("base"), Deleted)
    registry.refused(DeleteSubject("base", permanent=True), Code.REFERENCED)
    registry.ask(DeleteSubject("a", permanent=True), Deleted)
    registry.ask(DeleteSubject("base", permanent=True), Deleted)


def test_a_subject_whose_versions_reference_each_other_is_deleted(registry: Driver) -> None:
    registry.register("a", INT)
    registry.register("a", avro(LONG, Reference("a", "a", 1)))
    registry.ask(DeleteSubject("a"), Deleted)
    registry.ask(DeleteSubject("a", permanent=True), Deleted)


def test_case_13_a_reference_to_a_missing_version_is_refused(registry: Driver) -> None:
    registry.register("base", INT)
    for subject, number in (("base", 2), ("other", 1)):
        schema = avro(LONG, Reference("x", subject, number))
        assert subject in registry.refused(Register("a", schema), Code.INVALID_SCHEMA)


def test_a_reference_means_a_subject_of_the_same_context(registry: Driver) -> None:
    registry.register("base", INT)
    schema = avro(LONG, Reference("x", "base", 1))
    registry.refused(Register(":.a:user", schema), Code.INVALID_SCHEMA)
    registry.register(":.a:base", INT)
    registry.register(":.a:user", schema)
    registry.ask(DeleteSubject("base"), Deleted)
    registry.refused(DeleteSubject(":.a:base"), Code.REFERENCED)


# -- modes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", [None, "a"])
def test_case_14_read_only_refuses_changes_and_not_what_exists(
    registry: Driver, scope: str | None
) -> None:
    first = registry.register("a", INT)
    registry.ask(SetMode(scope, "READONLY"), Done)
    registry.refused(Register("a", avro(LONG)), Code.NOT_PERMITTED)
    assert registry.register("a", INT) == first
    registry.refused(DeleteVersion("a", 1), Code.NOT_PERMITTED)
    registry.refused(DeleteSubject("a"), Code.NOT_PERMITTED)
    registry.refused(SetConfig("a", {COMPATIBILITY: "NONE"}), Code.NOT_PERMITTED)
    registry.ask(SetMode(scope, None), Done)
    registry.register("a", LONG)


def test_case_14_override_beats_what_a_subject_says(registry: Driver) -> None:
    registry.ask(SetMode("a", "READWRITE"), Done)
    registry.ask(SetMode(None, "READONLY"), Done)
    registry.register("a", INT)
    registry.ask(SetMode(None, "READONLY_OVERRIDE"), Done)
    assert "READONLY_OVERRIDE" in registry.refused(Register("a", avro(LONG)), Code.NOT_PERMITTED)


def test_case_14_import_takes_id_and_version(registry: Driver) -> None:
    registry.refused(Register("a", avro(INT), 7, 3), Code.NOT_PERMITTED)
    registry.ask(SetMode("a", "IMPORT"), Done)
    registry.refused(Register("a", avro(INT)), Code.NOT_PERMITTED)
    found = registry.register("a", INT, 7, 3)
    assert (found.id, found.version) == (7, 3)
    assert registry.register("a", LONG, 9).version == 4
    assert "another schema" in registry.refused(Register("a", avro(STRING), 7), Code.NOT_PERMITTED)
    registry.refused(Register("a", avro(STRING), 8, 3), Code.NOT_PERMITTED)
    registry.ask(SetMode("a", "READWRITE"), Done)
    assert registry.register("b", STRING).id == 10


def test_case_14_import_on_versions_needs_force(registry: Driver) -> None:
    registry.register("a", INT)
    registry.ask(SetMode("b", "IMPORT"), Done)
    for scope in ("a", None):
        registry.refused(SetMode(scope, "IMPORT"), Code.NOT_PERMITTED)
        registry.ask(SetMode(scope, "IMPORT", force=True), Done)


def test_a_version_is_chosen_in_import_mode_alone(registry: Driver) -> None:
    assert "IMPORT" in registry.refused(Register("a", avro(INT), None, 2), Code.INVALID_SCHEMA)
    assert registry.register("a", INT, None, 1).version == 1


# -- settings -------------------------------------------------------------------------------------


def test_a_level_is_that_of_the_subject_its_context_or_all(registry: Driver) -> None:
    def level(subject: str) -> Level:
        return registry.state.level(subject, Level.BACKWARD)

    assert level(":.a:x") is Level.BACKWARD
    registry.ask(SetConfig(None, {COMPATIBILITY: "FULL"}), Done)
    assert level("x") is level(":.a:x") is Level.FULL
    registry.ask(SetConfig(":.a:", {COMPATIBILITY: "NONE"}), Done)
    assert (level("x"), level(":.a:x")) == (Level.FULL, Level.NONE)
    registry.ask(SetConfig(":.a:x", {COMPATIBILITY: "FORWARD"}), Done)
    assert level(":.a:x") is Level.FORWARD
    registry.ask(SetConfig(":.a:x", None), Done)
    assert level(":.a:x") is Level.NONE
    registry.refused(SetConfig(":.a:x", None), Code.NO_CONFIG)


def test_a_setting_leaves_the_others(registry: Driver) -> None:
    registry.ask(SetConfig("a", {COMPATIBILITY: "FULL"}), Done)
    registry.ask(SetConfig("a", {"normalize": True}), Done)
    assert registry.state.configs == {"a": {COMPATIBILITY: "FULL", "normalize": True}}


def test_a_mode_that_is_not_there_is_not_removed(registry: Driver) -> None:
    registry.refused(SetMode("a", None), Code.NO_MODE)
    assert registry.ask(SetMode(None, None), Done).value == "READWRITE"


def test_looking_answers_what_a_function_reads(registry: Driver) -> None:
    registry.register("a", INT)

    def view(state: State) -> list[str]:
        return subjects(state, everyone)

    assert registry.ask(Look(view), Done).value == ["a"]
    assert content(registry.replayed().state) == content(registry.state)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 8, 9])
async def test_case_24_a_long_listing_is_sorted_in_turns(count: int) -> None:
    names = [f"{number * 7 % 101:03}" for number in range(100)]
    parts = [sorted(names[at::count]) for at in range(count)]
    assert await merged(parts) == (sorted(names) if count else [])
