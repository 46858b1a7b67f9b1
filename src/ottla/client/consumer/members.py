"""Which machine speaks for a consumer, by the protocol of its group; its arguments are checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.client import arguments
from ottla.client.consumer.assignors import ASSIGNORS
from ottla.client.consumer.classic import ClassicMember
from ottla.client.consumer.modern import ModernMember
from ottla.client.errors import BadArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.client.consumer.machine import Member
    from ottla.client.consumer.types import Protocol


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
