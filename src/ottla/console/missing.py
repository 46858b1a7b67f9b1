"""A figure that is not known, with the reason. It is shown in place of the figure, never as zero.

Missing("not allowed: needs Describe on group 'billing'")
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from ottla.client.errors import AuthorizationFailed, KafkaError, UnsupportedApi
from ottla.console.text import visible
from ottla.redaction import redact
from ottla.wire.error_codes import ErrorCode

T = TypeVar("T")

LONGEST_REASON: Final = 300  # characters; some brokers answer with stack traces


@dataclass(frozen=True, slots=True)
class Missing:
    """Why there is no figure."""

    reason: str

    def __str__(self) -> str:
        return self.reason


Known: TypeAlias = T | Missing

NOT_ASKED: Final = Missing("not asked for yet")
NOT_KEPT: Final = Missing("not kept: more series than the history has room for")


def missing(error: Exception, needs: str) -> Missing:
    """The reason for an error; `needs` names the right, such as "Describe on group 'billing'"."""
    if isinstance(error, AuthorizationFailed):
        return Missing(f"not allowed: needs {visible(needs)}")
    unsupported = isinstance(error, KafkaError) and error.code == ErrorCode.UNSUPPORTED_VERSION
    if unsupported or isinstance(error, UnsupportedApi):
        return Missing("the cluster does not serve this")
    said = visible(" ".join(redact(error).split()))
    return Missing(said if len(said) <= LONGEST_REASON else said[: LONGEST_REASON - 1] + "…")


def known(value: T | Missing, default: T) -> T:
    """The value, or this default: for sorting and adding up, never for showing."""
    return default if isinstance(value, Missing) else value
