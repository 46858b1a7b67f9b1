"""What the registry refuses, by the codes of Confluent's API."""

from __future__ import annotations

from enum import IntEnum

from ottla.errors import OttlaError


class Code(IntEnum):
    """`error_code` of an answer; its first three digits are the HTTP status."""

    BAD_REQUEST = 400
    NOT_AUTHENTICATED = 401
    NOT_FOUND = 404
    INCOMPATIBLE = 409
    WRONG_MEDIA_TYPE = 415
    NOT_ALLOWED = 40301
    NO_SUBJECT = 40401
    NO_VERSION = 40402
    NO_SCHEMA = 40403
    SUBJECT_SOFT_DELETED = 40404
    SUBJECT_NOT_SOFT_DELETED = 40405
    VERSION_SOFT_DELETED = 40406
    VERSION_NOT_SOFT_DELETED = 40407
    NO_CONFIG = 40408
    NO_MODE = 40409
    INVALID_SCHEMA = 42201
    INVALID_VERSION = 42202
    INVALID_LEVEL = 42203
    INVALID_MODE = 42204
    NOT_PERMITTED = 42205
    REFERENCED = 42206
    INVALID_SUBJECT = 42208
    SCHEMA_TOO_LARGE = 42209
    STORE = 50001
    TIMEOUT = 50002
    NO_LEADER = 50003

    @property
    def status(self) -> int:
        return self if self < 1_000 else self // 100


class RegistryError(OttlaError):
    """A request that is refused; nothing was changed."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return self.message


class LedElsewhere(RegistryError):
    """Another node decides, which was not known when the request came; nothing was done."""
