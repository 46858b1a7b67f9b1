"""Regular expressions of consumer groups: RE2 syntax and linear time, never Python's `re`.

A pattern that backtracks could hold the event loop for ever; RE2 cannot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.coordination.groups.consumer import InvalidRegularExpression
from ottla.metadata.names import is_internal

if TYPE_CHECKING:
    from ottla.coordination.groups.topics import TopicsImage

MAX_PATTERN_LENGTH: Final = 4096  # a list of all topic names one by one would be a subscription


def matching_topics(pattern: str, topics: TopicsImage) -> frozenset[str]:
    """The topics whose whole name matches; the broker's own topics never do."""
    import re2

    if len(pattern) > MAX_PATTERN_LENGTH:
        raise InvalidRegularExpression(f"longer than {MAX_PATTERN_LENGTH} characters")
    options = re2.Options()
    options.log_errors = False  # a client's mistake is told to the client, not to stderr
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        raise InvalidRegularExpression(f"{pattern!r}: {error}") from error
    return frozenset(
        name for name in topics.topics_by_name if not is_internal(name) and compiled.fullmatch(name)
    )
