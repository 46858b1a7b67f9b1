"""What the registry's machine is asked, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from ottla.registry.errors import RegistryError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.registry.state import State, Version
    from ottla.schemas.compatibility import Level
    from ottla.schemas.model import Schema


@dataclass(frozen=True, slots=True)
class Check:
    """A new schema must fit these versions, oldest first, at this level."""

    level: Level
    against: tuple[Version, ...]


@dataclass(frozen=True, slots=True)
class Register:
    """Add a schema to a subject. `schema.text` is canonical."""

    subject: str
    schema: Schema
    id: int | None = None
    """In IMPORT mode."""
    version: int | None = None
    passed: Check | None = None
    """What the schema has been found to fit."""


@dataclass(frozen=True, slots=True)
class DeleteVersion:
    subject: str
    version: int | None
    """None: the latest that is not deleted."""
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class DeleteSubject:
    subject: str
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class SetConfig:
    """Add to the settings of a subject, a context (`:.name:`) or all (None); None removes them."""

    subject: str | None
    values: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class SetMode:
    subject: str | None
    mode: str | None
    force: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """Read the state. What is read is committed when the answer leaves."""

    view: Callable[[State], Any]
    """Pure; may raise `RegistryError`."""


Request: TypeAlias = Register | DeleteVersion | DeleteSubject | SetConfig | SetMode | Look


@dataclass(frozen=True, slots=True)
class Registered:
    version: Version


@dataclass(frozen=True, slots=True)
class Deleted:
    versions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Done:
    value: Any = None
    """What `Look` has read; the settings or the mode that counted before a removal."""


Response: TypeAlias = Registered | Check | Deleted | Done | RegistryError
