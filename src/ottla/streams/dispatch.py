"""Who of a group gets a message: members of a stream in join order, `sequence % count`. Pure.

This is how the File and Stdio backends balance load inside one process.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from ottla.streams.types import MEBIBYTE, payload_bytes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ottla.streams.types import Message

MAX_QUEUED: Final = 10_000
MAX_QUEUED_BYTES: Final = 16 * MEBIBYTE
"""Messages read ahead of the slowest consumer before reading waits."""


class Member:
    """One consumer of a group and what was dispatched to it."""

    __slots__ = ("queue", "streams")

    def __init__(self, streams: Collection[str]):
        self.streams = frozenset(streams)
        self.queue: deque[Message] = deque()

    @property
    def is_full(self) -> bool:
        """Whether nobody should read on for this member before it has taken something."""
        queue = self.queue
        return len(queue) >= MAX_QUEUED or payload_bytes(queue) >= MAX_QUEUED_BYTES


class Roster:
    """The members of one group, in join order."""

    def __init__(self) -> None:
        self.members: list[Member] = []

    def join(self, member: Member) -> None:
        """A member comes."""
        self.members.append(member)

    def leave(self, member: Member) -> None:
        """A member goes; what was queued for it goes to the others."""
        self.members.remove(member)
        self.dispatch(member.queue)
        member.queue.clear()

    def dispatch(self, messages: Iterable[Message]) -> None:
        """Queue each message with the member whose turn it is; nobody's stream is dropped."""
        turns: dict[str, list[Member]] = {}
        for message in messages:
            members = turns.get(message.stream)
            if members is None:
                members = [m for m in self.members if message.stream in m.streams]
                turns[message.stream] = members
            if members:
                members[message.seq % len(members)].queue.append(message)
