"""What is read of the registry's state, as the JSON that clients are given. Pure.

`Sees` says whether the caller may know of a subject. One that it may not know of is left out of
lists, and of what is found by id or GUID; a schema that stands in no other subject is not there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ottla.registry.errors import Code, RegistryError
from ottla.registry.names import DEFAULT_CONTEXT, beside, context_of
from ottla.registry.records import guid_of
from ottla.registry.requests import Check
from ottla.registry.state import COMPATIBILITY, GROUP, scopes
from ottla.schemas.compatibility import Level
from ottla.schemas.model import InvalidSchema, Kind
from ottla.schemas.parsing import resolve

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.registry.state import Place, State, Version
    from ottla.schemas.model import Reference, Schema

Sees = Callable[[str], bool]


def schema_json(schema: Schema) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if schema.kind is not Kind.AVRO:
        found["schemaType"] = schema.kind.value
    if schema.references:
        found["references"] = [
            {"name": one.name, "subject": one.subject, "version": one.version}
            for one in schema.references
        ]
    if schema.metadata is not None:
        found["metadata"] = schema.metadata
    if schema.rules is not None:
        found["ruleSet"] = schema.rules
    return {**found, "schema": schema.text}


def version_json(version: Version) -> dict[str, Any]:
    return {
        "subject": version.subject,
        "version": version.version,
        "id": version.id,
        "guid": version.guid,
        **schema_json(version.schema),
    }


# -- subjects and their versions ------------------------------------------------------------------


def subjects(
    state: State, sees: Sees, *, prefix: str = "", deleted: bool = False, only: bool = False
) -> list[str]:
    """Names in order; `only` those that are soft-deleted whole."""
    names = list(state.subjects)
    return sorted(among(state, names, sees, prefix=prefix, deleted=deleted, only=only))


def among(
    state: State,
    names: Iterable[str],
    sees: Sees,
    *,
    prefix: str = "",
    deleted: bool = False,
    only: bool = False,
) -> list[str]:
    """Those of the names that are listed; `only` those that are soft-deleted whole."""
    return [
        name
        for name in names
        if name.startswith(prefix)
        and state.has(name, deleted=deleted or only)
        and not (only and state.has(name))
        and sees(name)
    ]


def contexts(state: State, sees: Sees) -> list[str]:
    found = {context_of(name) for name in state.named(deleted=True) if sees(name)}
    return sorted(found | {DEFAULT_CONTEXT})


def existing(state: State, subject: str, *, deleted: bool = False) -> list[Version]:
    """The versions of a subject, oldest first; refused if there are none."""
    found = state.versions(subject, deleted=deleted)
    if not found:
        raise RegistryError(Code.NO_SUBJECT, f"there is no subject {subject}")
    return found


def version(state: State, subject: str, number: int | None, *, deleted: bool = False) -> Version:
    """One version; None is the latest."""
    found = existing(state, subject, deleted=deleted)
    if number is None:
        return found[-1]
    for one in found:
        if one.version == number:
            return one
    raise RegistryError(Code.NO_VERSION, f"{subject} has no version {number}")


def with_properties(
    state: State, subject: str, properties: Mapping[str, str], *, deleted: bool = False
) -> Version:
    """The latest version whose metadata have these properties."""
    for one in reversed(existing(state, subject, deleted=deleted)):
        if all(_property(one.schema, name) == value for name, value in properties.items()):
            return one
    raise RegistryError(Code.NO_VERSION, f"no version of {subject} has the properties asked for")


def same(state: State, subject: str, schema: Schema, *, deleted: bool = False) -> Version | None:
    """The newest version of a subject with this very schema; live ones come first."""
    entity = guid_of(schema)
    found = [one for one in state.versions(subject, deleted=deleted) if one.entity == entity]
    return max(found, key=lambda one: (not one.deleted, one.version), default=None)


def referenced_by(state: State, sees: Sees, place: Place, *, deleted: bool = False) -> list[int]:
    """The ids of schemas that reference a version."""
    version(state, *place, deleted=deleted)
    found = state.referrers_of(place, deleted=deleted)
    return sorted({one.id for one in found if sees(one.subject)})


def listing(
    state: State, sees: Sees, *, prefix: str = "", deleted: bool = False, latest_only: bool = False
) -> list[Version]:
    found: list[Version] = []
    for name in subjects(state, sees, prefix=prefix, deleted=deleted):
        versions = state.versions(name, deleted=deleted)
        found += versions[-1:] if latest_only else versions
    return found


# -- by id and GUID -------------------------------------------------------------------------------


def by_id(
    state: State, sees: Sees, number: int, *, context: str = DEFAULT_CONTEXT
) -> list[Version]:
    """The versions with an id, in order of subjects; soft-deleted ones included."""
    found = [one for one in state.by_id(context, number) if sees(one.subject)]
    if not found:
        raise RegistryError(Code.NO_SCHEMA, f"there is no schema with the id {number}")
    return sorted(found, key=lambda one: one.place)


def by_guid(state: State, sees: Sees, guid: str) -> list[Version]:
    found = [one for one in state.by_guid(guid.lower()) if sees(one.subject)]
    if not found:
        raise RegistryError(Code.NO_SCHEMA, f"there is no schema with the GUID {guid[:80]}")
    return sorted(found, key=lambda one: one.place)


# -- settings -------------------------------------------------------------------------------------


def config(
    state: State, subject: str | None, default: Level, *, inherited: bool = False
) -> dict[str, Any]:
    """Own settings; `inherited`: with those of the context and of all where there are none."""
    found: dict[str, Any] = {}
    where = list(scopes(subject)) if inherited or subject is None else [subject]
    for scope in reversed(where):
        found |= state.configs.get(scope, {})
    if not found and subject is not None and not inherited:
        raise RegistryError(Code.NO_CONFIG, f"{subject} has no configuration of its own")
    if subject is None or inherited:
        found.setdefault(COMPATIBILITY, default.value)
    return found


def mode(state: State, subject: str | None, *, inherited: bool = False) -> str:
    if subject is None or inherited:
        return state.mode(subject)
    own = state.modes.get(subject)
    if own is None:
        raise RegistryError(Code.NO_MODE, f"{subject} has no mode of its own")
    return own


def must_fit(state: State, subject: str, schema: Schema, default: Level) -> Check:
    """What a new version of a subject has to be compatible with."""
    level = state.level(subject, default)
    if level is Level.NONE:
        return Check(level, ())
    versions = state.versions(subject)
    group = state.config(subject, GROUP)
    if group is not None:
        own = _property(schema, group)
        versions = [one for one in versions if _property(one.schema, group) == own]
    return Check(level, tuple(versions if level.is_transitive else versions[-1:]))


def _property(schema: Schema, name: str) -> object:
    properties = schema.metadata.get("properties") if isinstance(schema.metadata, dict) else None
    return properties.get(name) if isinstance(properties, dict) else None


# -- references -----------------------------------------------------------------------------------


def resolved(state: State, subject: str, schema: Schema) -> dict[str, str]:
    """The text of each reference by its name, of references' references as well."""

    def find(reference: Reference) -> Schema | None:
        target = state.version(reference.subject, reference.version)
        return None if target is None else qualified(reference.subject, target.schema)

    try:
        return resolve(qualified(subject, schema), find)
    except InvalidSchema as error:
        raise RegistryError(Code.INVALID_SCHEMA, str(error)) from error


def qualified(subject: str, schema: Schema) -> Schema:
    """With references that say which context they mean."""
    if not schema.references:
        return schema
    references = (replace(one, subject=beside(subject, one.subject)) for one in schema.references)
    return replace(schema, references=tuple(references))


def page(found: Iterable[Any], offset: int, limit: int | None) -> list[Any]:
    """A part of a list; `limit` None is all of it."""
    every = list(found)
    return every[offset:] if limit is None else every[offset : offset + limit]
