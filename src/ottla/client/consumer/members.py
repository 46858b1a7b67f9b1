"""Which machine speaks for a consumer, by the protocol of its group; its arguments are checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.client import arguments
from ottla.client.consumer.assignors import ASSIGNORS
from ottla.client.consumer.classic import ClassicMember
from ottla.client.consumer.modern import ModernMember
from ottla.client.errors import BadArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.client.consumer.machine import Member
    from ottla.client.consumer.types import Protocol

BROKERS_ASSIGNORS: Final = ("uniform", "range")
"""Those of Ottla and Kafka; a broker with others uses the first of its own if none is named."""


def member_of(
    protocol: Protocol,
    group: str,
    topics: Sequence[str],
    *,
    pattern: str | None,
    assignor: str | None,
    instance_id: str | None,
    rack: str | None,
    session_timeout: float,
    rebalance_timeout: float,
) -> Member:
    """The member for these settings; what cannot be is a `BadArgument`."""
    names = arguments.texts("topics", topics)
    arguments.optional_text("pattern", pattern, "a regular expression")
    arguments.optional_text("instance_id", instance_id)
    arguments.optional_text("rack", rack)
    arguments.optional_text("assignor", assignor)
    timeout_ms = int(rebalance_timeout * 1000)
    if protocol == "consumer":
        if pattern is not None and names:
            raise BadArgument("give topics or pattern, not both")
        if pattern is not None:
            _check_pattern(pattern)
        if assignor in ASSIGNORS.keys() - set(BROKERS_ASSIGNORS):
            raise BadArgument(f'assignor: {assignor!r} needs protocol="classic"')
        if assignor is not None:
            arguments.choice("assignor", assignor, BROKERS_ASSIGNORS)
        return ModernMember(
            group,
            names,
            pattern=pattern,
            instance_id=instance_id,
            rack=rack,
            assignor=assignor,
            rebalance_timeout_ms=timeout_ms,
        )
    if pattern is not None:
        raise BadArgument('pattern needs protocol="consumer": brokers match the names')
    if assignor is not None:
        arguments.choice("assignor", assignor, tuple(ASSIGNORS))
    return ClassicMember(
        group,
        names,
        assignors=(assignor or "cooperative-sticky",),
        instance_id=instance_id,
        session_timeout_ms=int(session_timeout * 1000),
        rebalance_timeout_ms=timeout_ms,
    )


def _check_pattern(pattern: str) -> None:
    """Refuse what brokers would refuse after the group was joined."""
    import re2

    options = re2.Options()
    options.log_errors = False  # the caller is told
    try:
        re2.compile(pattern, options)
    except re2.error as error:
        said = error.args[0]
        why = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        raise BadArgument(
            f"pattern: {pattern!r:.80} is no regular expression in RE2 syntax: {why:.80}; put a "
            "backslash before characters that are meant as they are, and use no lookarounds or "
            "backreferences"
        ) from None
