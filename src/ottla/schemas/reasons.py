"""Why a record has no row."""

from __future__ import annotations

from enum import IntEnum


class Reason(IntEnum):
    """Codes of kernels and of `Decoded.reasons`; `label` is what a dead-letter table stores."""

    OK = 0
    NOT_FRAMED = 1
    UNKNOWN_SCHEMA = 2
    MALFORMED = 3
    TRAILING_BYTES = 4
    OUT_OF_RANGE = 5
    SCHEMA_CONFLICT = 6
    TOO_LARGE = 7
    BAD_KEY = 8

    @property
    def label(self) -> str:
        return self.name.lower()
