"""Errors of offset stores.

Each message says what to do. A save that raises has changed nothing, except `PostCommitHookError`,
which comes after a successful save. Arguments are positional, so that an error survives pickling on
its way back from a worker process.

Errors of a driver or the system in an operation of a store (`sqlite3.Error`, `psycopg.Error`,
`OSError`) are raised as `OffsetStoreError`; the driver's own error is its cause. On a connection of
the caller the driver's errors are not wrapped, because the caller
handles them for its own statements already.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

from ottla.errors import OttlaError
from ottla.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ottla.offsets.types import CommitInfo, OffsetKey

P = ParamSpec("P")
T = TypeVar("T")


class OffsetError(OttlaError):
    """A position could not be loaded, saved or deleted."""


class InvalidOffsetArgument(OffsetError, ValueError):
    """An argument that a store cannot take; nothing was stored."""


class InvalidOffsetType(InvalidOffsetArgument, TypeError):
    """An argument of the wrong type; nothing was stored."""


class OffsetStoreError(OffsetError):
    """The store could not be reached, read or written; the stored position is unchanged."""


class OffsetRegression(OffsetError):
    """The new position is lower than the stored one."""

    def __init__(self, key: OffsetKey, stored: int, position: int) -> None:
        super().__init__(key, stored, position)
        self.key = key
        self.stored = stored
        self.position = position

    def __str__(self) -> str:
        return (
            f"{self.key} is at {self.stored} and would go back to {self.position}; "
            "pass rewind=True if that is meant"
        )


class OffsetConflict(OffsetError):
    """Another worker saved this key and took over: stop, or load the position again."""

    def __init__(self, key: OffsetKey, expected: object, found: object) -> None:
        super().__init__(key, expected, found)
        self.key = key
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        return (
            f"{self.key} should be at {self.expected} but is at {self.found}: another worker "
            "has saved it, so stop this one or load the position again"
        )


class StaleOffset(OffsetError):
    """The stream was recreated after this position was saved: the epochs differ."""

    def __init__(self, key: OffsetKey, stored: str, epoch: str) -> None:
        super().__init__(key, stored, epoch)
        self.key = key
        self.stored = stored
        self.epoch = epoch

    def __str__(self) -> str:
        return (
            f"{self.key} was saved for epoch {self.stored} of the stream, which is now "
            f"{self.epoch}; delete the position, or save with rewind=True"
        )


class OffsetCorrupt(OffsetError):
    """The stored data is damaged. It is reported, and never treated as "no position"."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"{self.path} does not hold a position: {self.reason}; "
            "restore it, delete the key, or open the store with on_corrupt=QUARANTINE"
        )


class OffsetLockTimeout(OffsetError):
    """Another process holds the lock of the key."""

    def __init__(self, path: Path, seconds: float) -> None:
        super().__init__(path, seconds)
        self.path = path
        self.seconds = seconds

    def __str__(self) -> str:
        return (
            f"{self.path} was locked by another process for {self.seconds:g} s; "
            "stop it or raise lock_timeout"
        )


class NotInTransaction(OffsetError):
    """The connection commits each statement, so the position would not be saved with your data."""


class PostCommitHookError(ExceptionGroup[Exception], OffsetError):
    """Hooks failed after the save: `committed` is True, nothing needs to be processed again."""

    committed = True
    infos: tuple[CommitInfo, ...] = ()
    """The saves for which a hook failed."""

    @classmethod
    def of(cls, failures: Sequence[Exception], infos: Sequence[CommitInfo]) -> PostCommitHookError:
        """Internal: make the error from the failures of hooks."""
        error = cls("the position is saved, but hooks failed after it", failures)
        error.infos = tuple(infos)
        return error

    def derive(self, excs: Sequence[Exception]) -> PostCommitHookError:  # type: ignore[override]  # the group is of Exceptions only
        """Internal: a part of the group, for `except*`."""
        return PostCommitHookError.of(excs, self.infos)

    @property
    def info(self) -> CommitInfo:
        """The first of `infos`; the only one after `save`."""
        return self.infos[0]


class _Store(Protocol):
    @property
    def _name(self) -> str: ...
    def _driver_errors(self) -> tuple[type[Exception], ...]: ...


S = TypeVar("S", bound=_Store)


def wrapped(
    operation: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[S, P], T]:
    """An operation of a store whose driver's errors become `OffsetStoreError`s."""

    @wraps(operation)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return operation(self, *args, **kwargs)
        except OffsetError:
            raise
        except Exception as error:
            if not isinstance(error, self._driver_errors()):
                raise
            told = redact(error)
            # A driver's message that holds a password must not be printed as the cause either.
            cause = error if told == str(error) else None
            raise OffsetStoreError(f"{self._name}: {told.strip()}") from cause

    return call
