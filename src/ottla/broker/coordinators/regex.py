"""Regular expressions of clients: RE2 syntax and linear time, never Python's `re`.

A pattern that backtracks could block the event loop for hours; RE2 takes linear time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from ottla.coordination.groups.consumer import InvalidRegularExpression
from ottla.metadata.names import is_internal

if TYPE_CHECKING:
    from ottla.coordination.groups.topics import TopicsImage

MAX_PATTERN_LENGTH: Final = 4096  # a list of all topic names one by one would be a subscription


class Pattern(Protocol):
    def fullmatch(self, text: str) -> object: ...


def compile_pattern(pattern: str) -> Pattern:
    """Compile a pattern for whole names; raises `InvalidRegularExpression`."""
    import re2

    if len(pattern) > MAX_PATTERN_LENGTH:
        raise InvalidRegularExpression(f"longer than {MAX_PATTERN_LENGTH} characters")
    options = re2.Options()
    options.log_errors = False  # report a client's mistake to the client, not to stderr
    try:
        compiled: Pattern = re2.compile(pattern, options)
    except re2.error as error:
        raise InvalidRegularExpression(f"{pattern!r}: {error}") from error
    return compiled


def matching_topics(pattern: str, topics: TopicsImage) -> frozenset[str]:
    """The topics whose whole name matches; the broker's own topics never do."""
    compiled = compile_pattern(pattern)
    return frozenset(
        name for name in topics.topics_by_name if not is_internal(name) and compiled.fullmatch(name)
    )
