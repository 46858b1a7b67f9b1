"""What the records of `_schemas` add up to.

`apply` is the only change, in operation and at replay. It refuses nothing: whatever stands in the
log, the last record of a key counts. All the rest is for looking; what is handed out is frozen.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from ottla.registry.names import DEFAULT_CONTEXT, Subject, beside, context_of, split
from ottla.registry.records import (
    ConfigRecord,
    ForeignKeyEnded,
    ModeRecord,
    Noop,
    SchemaRecord,
    SchemaTombstone,
    SubjectDeleted,
    guid_of,
    key_of,
)
from ottla.schemas.compatibility import Level

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ottla.registry.records import Known, Record
    from ottla.schemas.model import Schema

Place = tuple[str, int]
"""A subject and one of its versions."""
COMPATIBILITY: Final = "compatibilityLevel"
GROUP: Final = "compatibilityGroup"
NORMALIZE: Final = "normalize"
READWRITE: Final = "READWRITE"
READONLY: Final = "READONLY"
READONLY_OVERRIDE: Final = "READONLY_OVERRIDE"
IMPORT: Final = "IMPORT"
MODES: Final = (READWRITE, READONLY, READONLY_OVERRIDE, IMPORT)


@dataclass(frozen=True, slots=True)
class Version:
    subject: str
    version: int
    id: int
    schema: Schema
    guid: str
    """Of its record; another registry may have its own recipe."""
    entity: str
    """Equal for equal schemas; by our recipe."""
    deleted: bool = False
    highest: int = 0
    """Of its record: the highest version that the subject ever had, if that is another."""

    @property
    def place(self) -> Place:
        return self.subject, self.version

    def record(self, **changes: Any) -> SchemaRecord:
        """As it is written; with changes, as it is to be."""
        plain = SchemaRecord(
            self.subject, self.version, self.id, self.schema, self.deleted, self.guid, self.highest
        )
        return replace(plain, **changes)


@dataclass(slots=True)
class Versions:
    """Those of one subject."""

    by_number: dict[int, Version] = field(default_factory=dict)
    highest: int = 0
    """Of all that there ever were."""

    def all(self, *, deleted: bool = False) -> list[Version]:
        """Oldest first; soft-deleted ones only if asked for."""
        found = (one for one in self.by_number.values() if deleted or not one.deleted)
        return sorted(found, key=lambda one: one.version)


@dataclass(slots=True)
class Ids:
    """Those of one context."""

    holders: dict[int, dict[Place, Version]] = field(default_factory=dict)
    by_entity: dict[str, dict[int, None]] = field(default_factory=dict)
    """Usually one; another registry may have given a schema several."""
    highest: int = 0
    """Of all that there ever were."""


class State:
    def __init__(self) -> None:
        self.subjects: dict[str, Versions] = {}
        self.contexts: dict[str, Ids] = {DEFAULT_CONTEXT: Ids()}
        self.configs: dict[str | None, dict[str, Any]] = {}
        self.modes: dict[str | None, str] = {}
        self.referrers: dict[Place, dict[Place, None]] = {}
        """Who references a version."""
        self.guids: dict[str, dict[tuple[str, int], None]] = {}
        """Contexts and ids of a GUID."""
        self.highest_ids: dict[str, int] = {}
        """By context, as the last NOOP has them."""
        self.foreign_keys: dict[bytes, bytes] = {}
        """Keys that were written in another form, by ours."""

    # -- changes ----------------------------------------------------------------------------------

    def apply(self, record: Record) -> None:
        match record:
            case SchemaRecord():
                self._add(record)
            case SchemaTombstone(subject=subject, version=number):
                self._remove(subject, number)
            case SubjectDeleted(subject=subject, version=up_to):
                self._soft_delete(subject, up_to)
            case ConfigRecord(subject=subject, values=values):
                _put(self.configs, subject, None if values is None else dict(values))
            case ModeRecord(subject=subject, mode=mode):
                _put(self.modes, subject, mode)
            case Noop(highest_ids=highest):
                for context, number in highest.items():
                    self.highest_ids[context] = max(self.highest_ids.get(context, 0), number)
                    ids = self._ids(context)
                    ids.highest = max(ids.highest, number)
            case ForeignKeyEnded(key=key):
                for ours in [ours for ours, other in self.foreign_keys.items() if other == key]:
                    del self.foreign_keys[ours]

    def met(self, key: bytes, record: Known, *, ended: bool) -> None:
        """Remember in which form a key stands in the log."""
        ours = key_of(record)
        if key != ours and not ended:
            self.foreign_keys[ours] = key
        elif self.foreign_keys.get(ours) == key:
            del self.foreign_keys[ours]

    def _ids(self, context: str) -> Ids:
        return self.contexts.setdefault(context, Ids())

    def _add(self, record: SchemaRecord) -> None:
        versions = self.subjects.setdefault(record.subject, Versions())
        self._unlink(versions.by_number.get(record.version))
        entity = guid_of(record.schema)
        version = Version(
            record.subject,
            record.version,
            record.id,
            record.schema,
            record.guid or entity,
            entity,
            record.deleted,
            record.highest,
        )
        versions.by_number[record.version] = version
        versions.highest = max(versions.highest, record.version, record.highest)
        self._link(version)

    def _remove(self, subject: str, number: int) -> None:
        versions = self.subjects.setdefault(subject, Versions())
        self._unlink(versions.by_number.pop(number, None))
        versions.highest = max(versions.highest, number)

    def _soft_delete(self, subject: str, up_to: int) -> None:
        versions = self.subjects.setdefault(subject, Versions())
        versions.highest = max(versions.highest, up_to)
        for version in versions.all():
            if version.version <= up_to:
                self._unlink(version)
                gone = replace(version, deleted=True)
                versions.by_number[gone.version] = gone
                self._link(gone)

    def _link(self, version: Version) -> None:
        context = context_of(version.subject)
        ids = self._ids(context)
        ids.holders.setdefault(version.id, {})[version.place] = version
        ids.by_entity.setdefault(version.entity, {})[version.id] = None
        ids.highest = max(ids.highest, version.id)
        self.guids.setdefault(version.guid, {})[context, version.id] = None
        for place in referenced(version.subject, version.schema):
            self.referrers.setdefault(place, {})[version.place] = None

    def _unlink(self, version: Version | None) -> None:
        if version is None:
            return
        context = context_of(version.subject)
        ids = self._ids(context)
        holders = ids.holders[version.id]
        del holders[version.place]
        if not holders:
            del ids.holders[version.id]
        if not any(one.entity == version.entity for one in holders.values()):
            _drop(ids.by_entity, version.entity, version.id)
        if not any(one.guid == version.guid for one in holders.values()):
            _drop(self.guids, version.guid, (context, version.id))
        for place in referenced(version.subject, version.schema):
            _drop(self.referrers, place, version.place)

    # -- looking ----------------------------------------------------------------------------------

    def versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        """Oldest first; none for a subject that does not exist."""
        versions = self.subjects.get(subject)
        return [] if versions is None else versions.all(deleted=deleted)

    def version(self, subject: str, number: int) -> Version | None:
        versions = self.subjects.get(subject)
        return None if versions is None else versions.by_number.get(number)

    def highest(self, subject: str) -> int:
        versions = self.subjects.get(subject)
        return 0 if versions is None else versions.highest

    def by_id(self, context: str, number: int) -> list[Version]:
        """All versions with this id."""
        ids = self.contexts.get(context)
        return [] if ids is None else list(ids.holders.get(number, {}).values())

    def by_guid(self, guid: str) -> list[Version]:
        """All versions with this GUID, in every context."""
        return [
            one
            for context, number in self.guids.get(guid, {})
            for one in self.by_id(context, number)
            if one.guid == guid
        ]

    def id_of(self, context: str, entity: str) -> int | None:
        ids = self.contexts.get(context)
        return None if ids is None else min(ids.by_entity.get(entity, ()), default=None)

    def named(self, *, deleted: bool = False) -> Iterator[str]:
        """Subjects that have versions."""
        return (name for name in self.subjects if self.has(name, deleted=deleted))

    def has(self, subject: str, *, deleted: bool = False) -> bool:
        """Whether a subject has versions."""
        versions = self.subjects.get(subject)
        return versions is not None and any(
            deleted or not one.deleted for one in versions.by_number.values()
        )

    def referrers_of(self, place: Place, *, deleted: bool) -> list[Version]:
        """The versions that reference one; soft-deleted ones only if asked for."""
        places = self.referrers.get(place, ())
        found = (self.subjects[subject].by_number[number] for subject, number in places)
        return [one for one in found if deleted or not one.deleted]

    def config(self, subject: str, key: str) -> Any:
        """A setting as it counts for a subject: its own, its context's, that of all; or None."""
        for scope in scopes(subject):
            value = self.configs.get(scope, {}).get(key)
            if value is not None:
                return value
        return None

    def level(self, subject: str, default: Level) -> Level:
        try:
            return Level(self.config(subject, COMPATIBILITY))
        except ValueError:  # none, or one of another registry
            return default

    def mode(self, subject: str | None) -> str:
        """The mode as it counts for a subject."""
        if self.modes.get(None) == READONLY_OVERRIDE:
            return READONLY_OVERRIDE
        for scope in scopes(subject):
            if scope in self.modes:
                return self.modes[scope]
        return READWRITE


def scopes(subject: str | None) -> Iterable[str | None]:
    """Where settings of a subject may stand, the nearest first."""
    if subject is None:
        return (None,)
    context = context_of(subject)
    if context == DEFAULT_CONTEXT:
        return subject, None
    return subject, Subject(context, "").qualified, None


def referenced(subject: str, schema: Schema) -> list[Place]:
    """What a schema of this subject references."""
    return [(beside(subject, one.subject), one.version) for one in schema.references]


def is_in_scope(subject: str, scope: str | None) -> bool:
    """Whether a setting at `scope` concerns a subject."""
    if scope is None:
        return True
    context, name = split(scope)
    return context_of(subject) == context if not name else subject == scope


def _put(values: dict[str | None, Any], key: str | None, value: Any) -> None:
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value


def _drop(index: dict[Any, dict[Any, None]], key: Any, entry: Any) -> None:
    entries = index.get(key)
    if entries is not None:
        entries.pop(entry, None)
        if not entries:
            del index[key]
