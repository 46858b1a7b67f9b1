"""How a handler says no."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
