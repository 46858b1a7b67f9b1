"""Changes of schemas: what a form asks for, what it would do, and doing it.

As with `rights`, a change travels from its preview to the handler that makes it as JSON, signed.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from ottla.console.problem import Refused
from ottla.console.text import name as shown
from ottla.console.views.schemas import DiffLine, difference, pretty_text
from ottla.schemas.model import Kind, Reference, Schema
from ottla.schemas.registry_client import RegistryRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.schemas.registry_client import SchemaRegistry

LEVELS: Final = (
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
    "NONE",
)
MAX_NAME: Final = 500
"""Characters of a subject."""
MAX_SCHEMA: Final = 200_000
"""Characters: the preview carries the schema back, escaped, in a form of 2 MiB."""
MAX_REFERENCES: Final = 50
Do: TypeAlias = Literal["register", "level", "delete"]


@dataclass(frozen=True, slots=True)
class Change:
    """One change; the subject is empty for the level of all."""

    do: Do
    subject: str
    kind: str = ""
    text: str = ""
    references: tuple[tuple[str, str, int], ...] = ()
    level: str = ""
    """Empty: remove the subject's own."""
    version: int | None = None
    """What to delete; None: all versions."""

    @property
    def resource(self) -> str:
        """What audit lines say; without the schema."""
        of = f"subject {self.subject}" if self.subject else "all subjects"
        if self.do == "level":
            return f"compatibility of {of}"
        return f"{of} version {self.version}" if self.version is not None else of

    @property
    def operation(self) -> str:
        return {"register": "Write", "level": "AlterConfigs", "delete": "Delete"}[self.do]

    @property
    def schema(self) -> Schema:
        references = tuple(Reference(*one) for one in self.references)
        return Schema(Kind(self.kind.upper()), self.text, references)


def to_json(change: Change) -> Any:
    return asdict(change)


def from_json(found: Any) -> Change:
    """Of what was signed here."""
    references = tuple((name, subject, version) for name, subject, version in found["references"])
    return Change(**{**found, "references": references})


def parse(form: Mapping[str, str]) -> Change:
    """What a form asks for; raises `Refused` with what to write instead."""
    do = form.get("do", "")
    subject = form.get("subject", "").strip()
    if len(subject) > MAX_NAME or not subject.isprintable() or (not subject and do != "level"):
        raise Refused(400, f"Name the subject, with at most {MAX_NAME} printable characters.")
    if do == "register":
        return _register(subject, form)
    if do == "level":
        level = form.get("level", "")
        if level not in LEVELS and not (subject and not level):
            raise Refused(400, f"A level is one of {', '.join(LEVELS)}.")
        return Change("level", subject, level=level)
    if do == "delete":
        return _delete(subject, form)
    raise Refused(400, "The form asks for no change that is known; load the page again.")


def _register(subject: str, form: Mapping[str, str]) -> Change:
    kind, text = form.get("kind", "").lower(), form.get("schema", "").replace("\r\n", "\n")
    if kind.upper() not in Kind.__members__:
        raise Refused(400, "A schema is avro, json or protobuf.")
    if not text.strip() or len(text) > MAX_SCHEMA:
        raise Refused(400, f"Write the schema, with at most {MAX_SCHEMA:,} characters.")
    references = []
    for line in filter(None, (one.strip() for one in form.get("references", "").splitlines())):
        name, _, place = line.partition("=")
        of, _, version = place.rpartition(":")
        if not (name and of and version.isdecimal() and 0 < len(version) < 10):
            raise Refused(400, "A reference is a line such as shop.proto=shop:1.")
        references.append((name, of, int(version)))
    if len(references) > MAX_REFERENCES:
        raise Refused(400, f"At most {MAX_REFERENCES} references.")
    return Change("register", subject, kind, text, tuple(references))


def _delete(subject: str, form: Mapping[str, str]) -> Change:
    if form.get("name", "").strip() != subject:
        raise Refused(400, "Type the subject's name to delete it; the name that came is another.")
    version = form.get("version", "").strip()
    if version and not (version.isdecimal() and 0 < len(version) < 10):
        raise Refused(400, "A version is a number; leave it empty to delete all of them.")
    return Change("delete", subject, version=int(version) if version else None)


@dataclass(frozen=True, slots=True)
class Preview:
    """What a change would do; `allowed` is whether the registry would take it."""

    title: str
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    difference: tuple[DiffLine, ...] = ()
    allowed: bool = True


async def preview(registry: SchemaRegistry, change: Change) -> Preview:
    """Asks the registry; changes nothing. Raises what the registry says."""
    if change.do == "register":
        return await _register_preview(registry, change)
    if change.do == "level":
        of = shown(change.subject) if change.subject else "all subjects without their own"
        before = await registry.config(change.subject or None)
        after = change.level or f"{await registry.config()}, as for all"
        return Preview("Set the compatibility", (f"{of}: {before}",), (f"{of}: {after}",))
    versions = await registry.versions(change.subject)
    if change.version is not None and change.version not in versions:
        raise Refused(404, f"{shown(change.subject)} has no version {change.version}.")
    gone = versions if change.version is None else [change.version]
    return Preview(
        "Delete a version" if change.version is not None else "Delete a subject",
        tuple(f"{change.subject} version {one}" for one in gone),
        notes=("Records that were written with it can still be read: it is found by its id.",),
    )


async def _register_preview(registry: SchemaRegistry, change: Change) -> Preview:
    empty = Preview("Register a schema", after=(pretty_text(change.text),))
    try:
        latest = await registry.latest(change.subject)
    except RegistryRefused as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        await _valid(registry, change)
        return replace(empty, notes=("The subject is new.",))
    try:
        same = await registry.look_up(change.subject, change.schema)
    except RegistryRefused as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
    else:
        words = f"The subject has this schema as version {same.version}: nothing would change."
        return replace(empty, notes=(words,))
    found = await registry.check(change.subject, change.schema)
    before, after = pretty_text(latest.schema.text), pretty_text(change.text)
    lines = await asyncio.to_thread(difference, before, after)
    if found.is_compatible:
        words = f"It may follow version {latest.version}."
        return Preview(empty.title, notes=(words,), difference=lines)
    why = found.messages or ("the registry does not say why",)
    notes = (f"It may not follow the versions of {shown(change.subject)}:", *why)
    return Preview(empty.title, notes=notes, difference=lines, allowed=False)


async def _valid(registry: SchemaRegistry, change: Change) -> None:
    """Raise if it is no schema. Some registries do not check one for a subject that is new."""
    try:
        await registry.check(change.subject, change.schema)
    except RegistryRefused as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise


async def apply(registry: SchemaRegistry, change: Change) -> None:
    """Do it."""
    if change.do == "register":
        await registry.register(change.subject, change.schema)
    elif change.do == "level":
        await registry.set_config(change.level or None, change.subject or None)
    else:
        await registry.delete(change.subject, change.version)
