"""One decision of the group coordinator while it is being made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordination.groups.records import Record
from ottla.coordination.machine import Decision

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.clock import Now
    from ottla.coordination.groups.keys import Key
    from ottla.coordination.groups.messages import Response
    from ottla.coordination.groups.records import Value
    from ottla.coordination.machine import Effect, Token


class Turn:
    """Collects records, replies and effects of one request; records are applied at once.

    Deadlines use `now_ms`, which is monotonic; `wall_ms` only stamps records.
    """

    __slots__ = ("_apply", "decision", "now_ms", "wall_ms")

    def __init__(self, now: Now, apply: Callable[[Record], None]) -> None:
        self.now_ms, self.wall_ms = now
        self.decision: Decision[Record, Response] = Decision()
        self._apply = apply

    def emit(self, key: Key, value: Value | None) -> None:
        record = Record(key, value)
        self._apply(record)
        self.decision.records.append(record)

    def reply(self, token: Token, response: Response) -> None:
        self.decision.reply(token, response)

    def effect(self, effect: Effect) -> None:
        self.decision.effects.append(effect)
