"""The last minutes of a window, to see how a stall began.

Frames are kept of the windows whose own page somebody looks at: at most one a second, for five
minutes. A frame is a window as it is drawn on that page, two bytes a column, so 300 frames are 150
KiB; the partition that was looked at longest ago makes room.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.console import window
from ottla.console.window import Column, State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.client.admin.types import ShareWindow

COLUMNS: Final = 240
MOST_FRAMES: Final = 300
EVERY_MS: Final = 1_000
MOST_WINDOWS: Final = 16
"""150 KiB each."""
MOST_DELIVERIES: Final = 255

Key: TypeAlias = "tuple[str, str, int]"
"""Queue, topic, partition."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A window at a moment (monotonic milliseconds)."""

    at_ms: int
    start: int
    end: int
    log_end: int
    is_stalled: bool
    states: bytes
    deliveries: bytes
    """Of each column, at most 255."""

    def columns(self) -> tuple[Column, ...]:
        """As `window.columns` made them."""
        size, count = self.end - self.start, len(self.states)
        return tuple(
            Column(
                self.start + size * number // count,
                self.start + size * (number + 1) // count - 1,
                State(state),
                deliveries,
            )
            for number, (state, deliveries) in enumerate(
                zip(self.states, self.deliveries, strict=True)
            )
        )


def frame(one: ShareWindow, at_ms: int) -> Frame:
    """The window as it is now."""
    drawn = window.columns(one, COLUMNS)
    return Frame(
        at_ms,
        one.start,
        one.end,
        one.log_end,
        window.is_stalled(one),
        bytes(column.state for column in drawn),
        bytes(min(column.deliveries, MOST_DELIVERIES) for column in drawn),
    )


class Replay:
    """Frames of the windows that somebody looks at."""

    def __init__(self) -> None:
        self._frames: dict[Key, deque[Frame]] = {}

    def watch(self, key: Key) -> None:
        """Keep frames of this window from now on."""
        # The one that was looked at last is the last one.
        self._frames[key] = self._frames.pop(key, deque(maxlen=MOST_FRAMES))
        while len(self._frames) > MOST_WINDOWS:
            del self._frames[next(iter(self._frames))]

    def add(self, queue: str, windows: Sequence[ShareWindow], at_ms: int) -> None:
        """Take in the windows of a queue."""
        for one in windows:
            kept = self._frames.get((queue, one.topic, one.partition))
            if kept is not None and (not kept or at_ms - kept[-1].at_ms >= EVERY_MS):
                kept.append(frame(one, at_ms))

    def frames(self, key: Key) -> Sequence[Frame]:
        """The oldest first."""
        return tuple(self._frames.get(key, ()))
