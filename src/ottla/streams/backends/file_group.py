"""A group of consumers of one file in one process: one shared reader, messages in turn."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, ClassVar

from ottla.streams.dispatch import Member, Roster

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ottla.streams.ss.reader import SsReader
    from ottla.streams.types import Message, Reset


class FileGroup:
    """The group of this name on this file."""

    _groups: ClassVar[dict[tuple[str, str], FileGroup]] = {}

    def __init__(self, key: tuple[str, str]):
        self._key = key
        self.roster = Roster()
        self.start: tuple[Reset, bool] | None = None
        self.reader: SsReader | None = None
        self.lock = asyncio.Lock()
        self._wakers: dict[Member, Callable[[], None]] = {}

    @classmethod
    def of(cls, path: str, name: str) -> FileGroup:
        """The group, made on first use."""
        key = (os.path.realpath(path), name)
        return cls._groups.setdefault(key, cls(key))

    def join(self, member: Member, wake: Callable[[], None]) -> None:
        """Add a member; `wake` is called when it has messages."""
        self.roster.join(member)
        self._wakers[member] = wake

    def leave(self, member: Member) -> SsReader | None:
        """A member goes; the last one gets the reader to close."""
        self.roster.leave(member)
        del self._wakers[member]
        if self.roster.members:
            self._wake_all()
            return None
        self._groups.pop(self._key, None)
        return self.reader

    async def read(
        self, member: Member, limit: int, read: Callable[[int], Awaitable[list[Message]]]
    ) -> list[Message]:
        """Messages of a member; if it has none, it reads for the group."""
        if not member.queue:
            async with self.lock:
                full = any(one.is_full for one in self.roster.members)
                if not member.queue and not full:
                    self.roster.dispatch(await read(limit))
                    self._wake_all()
        return [member.queue.popleft() for _ in range(min(limit, len(member.queue)))]

    def _wake_all(self) -> None:
        for member, wake in self._wakers.items():
            if member.queue:
                wake()
