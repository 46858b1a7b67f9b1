"""How a handler says no, and a node that cannot start."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Self

from ottla.errors import OttlaError

if TYPE_CHECKING:
    from ottla.wire.error_codes import ErrorCode


class ApiError(OttlaError):
    """A refusal that a handler answers with this code, and with the text where there is room."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return self.message or self.code.name


class CannotListen(OttlaError, OSError):
    """An address that cannot be resolved, is not one of this machine, or is in use."""

    @classmethod
    def because(cls, error: OSError, where: str, option: str = "--listen HOST:0") -> Self:
        """`option` is what picks a free port on the command line."""
        if error.errno == errno.EADDRINUSE:
            return cls(
                f"{where}: the address is in use; choose another, port 0 picks one "
                f"(on the command line: {option})"
            )
        return cls(f"{where}: {error.strerror or error}")


class ExposedListener(OttlaError, ValueError):
    """A listener would let anyone on the network in; the text says what to do."""


class CannotOpenDirectory(OttlaError, OSError):
    """The data directory cannot be made or opened."""


class BrokerNotRunning(OttlaError, RuntimeError):
    """An embedded broker was used before it was started or after it was stopped."""
