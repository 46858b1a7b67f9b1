"""Keys of a terminal, one at a time, in cbreak mode; the terminal is restored whatever happens."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from types import TracebackType
    from typing import TextIO

UP, DOWN, ENTER, ESCAPE, BACKSPACE = "up", "down", "enter", "escape", "backspace"

_SEQUENCES: Final = {
    b"\x1b[A": UP,
    b"\x1b[B": DOWN,
    b"\x1bOA": UP,
    b"\x1bOB": DOWN,
}
_SINGLE: Final = {
    "\r": ENTER,
    "\n": ENTER,
    "\x1b": ESCAPE,
    "\x7f": BACKSPACE,
    "\x08": BACKSPACE,
}
LONGEST_READ: Final = 1024


def keys_of(typed: bytes) -> list[str]:
    """The keys in what a terminal sent; sequences that mean nothing here are left out."""
    found: list[str] = []
    while typed:
        if typed[:1] == b"\x1b" and len(typed) > 1:
            known = next((one for one in _SEQUENCES if typed.startswith(one)), None)
            if known is not None:
                found.append(_SEQUENCES[known])
            typed = typed[len(known) :] if known is not None else _after_sequence(typed)
            continue
        size = _character(typed)
        text = typed[:size].decode(errors="replace")
        typed = typed[size:]
        key = _SINGLE.get(text, text)
        if len(key) > 1 or key.isprintable():
            found.append(key)
    return found


def _after_sequence(typed: bytes) -> bytes:
    """What follows an escape sequence: it ends with a letter or a tilde."""
    for index in range(2, len(typed)):
        if 0x40 <= typed[index] <= 0x7E:
            return typed[index + 1 :]
    return b""


def _character(typed: bytes) -> int:
    """How many bytes the first character has."""
    first = typed[0]
    return 1 if first < 0xC0 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4


class Keys:
    """The keys that are typed, as they come."""

    def __init__(self, source: TextIO = sys.stdin) -> None:
        import asyncio

        self._fd = source.fileno()
        self._before: list[object] | None = None
        self._typed: asyncio.Queue[str] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> Keys:
        import termios
        import tty

        self._before = termios.tcgetattr(self._fd)
        tty.setcbreak(self._fd)
        self._loop.add_reader(self._fd, self._read)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        import termios

        self._loop.remove_reader(self._fd)
        if self._before is not None:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)  # type: ignore[arg-type]

    def _read(self) -> None:
        typed = os.read(self._fd, LONGEST_READ)
        if not typed:  # the terminal is gone
            self._loop.remove_reader(self._fd)
            self._typed.put_nowait("q")
        for key in keys_of(typed):
            self._typed.put_nowait(key)

    async def next(self, within: float) -> str | None:
        """The next key; None if there is none within these seconds."""
        import asyncio

        try:
            async with asyncio.timeout(within):
                return await self._typed.get()
        except TimeoutError:
            return None
