"""Regular expressions of clients: RE2 syntax and linear time, never Python's `re`.

A pattern that backtracks could block the event loop for hours; RE2 takes linear time.

Where an authorizer is configured, a member's pattern matches what its principal may describe. A
group keeps matches by pattern, so the pattern that it is given there says whose it is: `scoped`
appends principal and address, and the group's records have it so. Who describes the group is shown
the pattern alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from ottla.broker.access.everything import EVERYTHING
from ottla.coordination.groups.consumer import InvalidRegularExpression
from ottla.metadata.names import is_internal
from ottla.metadata.security.acls import Operation, Resource

if TYPE_CHECKING:
    from ottla.broker.access.authorizer import Access, Authorizer
    from ottla.coordination.groups.topics import TopicsImage

_SCOPE: Final = "\0"  # between a pattern, a principal and an address: neither has one
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


def scoped(pattern: str, access: Access) -> str:
    """The pattern of a client with these rights, for its group. "" is no pattern."""
    if _SCOPE in pattern:
        raise InvalidRegularExpression("a pattern has no NUL characters")
    if access is EVERYTHING or not pattern:
        return pattern
    return _SCOPE.join((pattern, access.principal, access.host))


def unscoped(pattern: str | None) -> str | None:
    """The pattern as the client gave it."""
    return pattern and pattern.partition(_SCOPE)[0]


def matching_topics(
    authorizer: Authorizer | None, pattern: str, topics: TopicsImage
) -> frozenset[str]:
    """The topics whose whole name matches and that may be seen; the broker's own never do."""
    bare, _, scope = pattern.partition(_SCOPE)
    compiled = compile_pattern(bare)
    names = frozenset(
        name for name in topics.topics_by_name if not is_internal(name) and compiled.fullmatch(name)
    )
    if authorizer is None:
        return names
    principal, _, host = scope.partition(_SCOPE)
    may = authorizer.access(principal, host).may
    return frozenset(name for name in names if may(Operation.DESCRIBE, Resource.TOPIC, name))
