"""Distribute messages in a group: member `sequence % count` in join order. Pure.

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
    """One consumer of a group and its queued messages."""

    __slots__ = ("queue", "streams")

    def __init__(self, streams: Collection[str]):
        self.streams = frozenset(streams)
        self.queue: deque[Message] = deque()

    @property
    def is_full(self) -> bool:
        """Whether reading must wait until this member takes messages."""
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
        """Remove a member; its queued messages go to the others."""
        self.members.remove(member)
        self.dispatch(member.queue)
        member.queue.clear()

    def dispatch(self, messages: Iterable[Message]) -> None:
        """Queue each message for its member; messages of unsubscribed streams are dropped."""
        turns: dict[str, list[Member]] = {}
        for message in messages:
            members = turns.get(message.stream)
            if members is None:
                members = [m for m in self.members if message.stream in m.streams]
                turns[message.stream] = members
            if members:
                members[message.seq % len(members)].queue.append(message)
