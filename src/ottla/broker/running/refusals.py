"""What is said of a broker that cannot start, and the exit status."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.errors import CannotListen, ExposedListener
from ottla.broker.hosting.data import BrokenJournal, WrongDirectory
from ottla.log.directory import DirectoryLocked
from ottla.log.errors import LogError
from ottla.metadata.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from pathlib import Path

REFUSED: Final = 2
LOST: Final = 3  # acknowledged records may be lost if it went on


class Refusal(NamedTuple):
    text: str
    status: int = REFUSED


def refusal_of(error: Exception, directory: Path | None) -> Refusal | None:
    """None if the error is a fault of the broker."""
    match error:
        case BrokenJournal():
            return Refusal(str(error), LOST)
        case (
            CannotListen()
            | ConfigError()
            | DirectoryLocked()
            | ExposedListener()
            | WrongDirectory()
            | LogError()
            | StoreError()
        ):
            return Refusal(str(error))
        case OSError():
            return Refusal(told(error, directory))
    return None


def told(error: OSError, directory: Path | None) -> str:
    place = error.filename or directory
    if isinstance(error, FileExistsError):
        return f"{place} is not a directory; name one with --data-dir"
    return f"{error.strerror or error}: {place}"
