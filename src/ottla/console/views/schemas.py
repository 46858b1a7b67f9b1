"""Subjects of the schema registry, and one of them with its versions side by side."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.console.missing import Known, Missing
from ottla.console.views.frame import Frame, frame
from ottla.console.views.table import ALL, Query, Table, chosen, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.console.attention import Attention
    from ottla.console.look import Look
    from ottla.schemas.registry_client import RegisteredSchema

SUFFIXES: Final = ("-value", "-key")
"""How a subject names its topic, unless producers were told otherwise."""
MOST_LINES: Final = 2_000
"""Lines of a difference that are shown."""


@dataclass(frozen=True, slots=True)
class SubjectRow:
    """A subject; `topic` is empty if no topic has its name."""

    name: str
    topic: str


@dataclass(frozen=True, slots=True)
class SchemasPage:
    """All subjects."""

    frame: Frame
    url: str
    level: Known[str]
    """Compatibility that is checked where a subject does not say otherwise."""
    mode: Known[str]
    subjects: Known[Table[SubjectRow]]


@dataclass(frozen=True, slots=True)
class VersionRow:
    """One version of a subject."""

    version: int
    id: int
    kind: str
    references: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of two versions: `sign` is `+`, `-` or a space."""

    sign: str
    text: str


@dataclass(frozen=True, slots=True)
class SchemaPage:
    """A subject. `difference` compares the shown version with the one before it."""

    frame: Frame
    name: str
    topic: str
    level: Known[str]
    versions: Known[tuple[VersionRow, ...]]
    shown: int | None
    text: str
    before: int | None
    difference: tuple[DiffLine, ...]


def topic_of(subject: str, topics: Sequence[str] | dict[str, object]) -> str:
    """The topic that a subject is named for; empty if there is none."""
    for suffix in SUFFIXES:
        name = subject.removesuffix(suffix)
        if name != subject and name in topics:
            return name
    return ""


def page(
    look: Look,
    attention: Attention,
    url: str,
    subjects: Sequence[str] | Missing,
    level: Known[str],
    mode: Known[str],
    query: Query = ALL,
) -> SchemasPage:
    """The subjects that the query asks for."""
    around = frame(look, attention)
    if isinstance(subjects, Missing):
        return SchemasPage(around, url, level, mode, subjects)
    topics = dict.fromkeys(look.data.topics)
    rows = [SubjectRow(one, topic_of(one, topics)) for one in chosen(subjects, query.contains)]
    return SchemasPage(around, url, level, mode, table(rows, query, "name", lambda one: one.name))


def subject_page(
    look: Look,
    attention: Attention,
    name: str,
    versions: Sequence[RegisteredSchema] | Missing,
    level: Known[str],
    wanted: int | None = None,
) -> SchemaPage:
    """One subject; the version that is wanted, or the newest, and what it changed."""
    around = frame(look, attention)
    topic = topic_of(name, dict.fromkeys(look.data.topics))
    if isinstance(versions, Missing) or not versions:
        known = versions if isinstance(versions, Missing) else ()
        return SchemaPage(around, name, topic, level, known, None, "", None, ())
    ordered = sorted(versions, key=lambda one: one.version)
    numbers = [one.version for one in ordered]
    at = numbers.index(wanted) if wanted in numbers else len(ordered) - 1
    text = pretty_text(ordered[at].schema.text)
    before = ordered[at - 1] if at else None
    return SchemaPage(
        around,
        name,
        topic,
        level,
        tuple(
            VersionRow(
                one.version,
                one.id,
                one.schema.kind.value,
                tuple(f"{ref.name}: {ref.subject} {ref.version}" for ref in one.schema.references),
            )
            for one in reversed(ordered)
        ),
        numbers[at],
        text,
        None if before is None else before.version,
        () if before is None else difference(pretty_text(before.schema.text), text),
    )


def pretty_text(text: str) -> str:
    """A schema's text; JSON with one entry a line."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def difference(before: str, after: str) -> tuple[DiffLine, ...]:
    """All lines of both, each marked; a long text is cut."""
    lines = difflib.unified_diff(
        before.splitlines()[:MOST_LINES],
        after.splitlines()[:MOST_LINES],
        n=MOST_LINES,
        lineterm="",
    )
    return tuple(DiffLine(one[0], one[1:]) for one in list(lines)[2:] if not one.startswith("@@"))
