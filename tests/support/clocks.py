"""A clock whose wall time a test sets, as an administrator or a time server would."""

from __future__ import annotations

from ottla.clock import Clock

HOUR_MS = 3_600_000


class SteppedClock(Clock):
    """Monotonic time is the machine's; wall time is `ahead_ms` ahead of it."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def step(self, ms: int) -> None:
        """Set the wall clock, forward or back."""
        self.ahead_ms += ms

    def wall(self) -> float:
        return self.wall_ns() / 1e9

    def wall_ns(self) -> int:
        return super().wall_ns() + self.ahead_ms * 1_000_000

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms


class ManualClock(SteppedClock):
    """Stands still until the test moves it; monotonic time begins at `ms`, wall time too."""

    def __init__(self, ms: int = 0) -> None:
        super().__init__()
        self.ms = ms

    def advance(self, ms: int) -> None:
        self.ms += ms

    def wall_ns(self) -> int:
        return self.wall_ms() * 1_000_000

    def wall_ms(self) -> int:
        return self.ms + self.ahead_ms

    def monotonic(self) -> float:
        return self.ms / 1000

    def monotonic_ms(self) -> int:
        return self.ms

    def boot(self) -> float:
        return self.ms / 1000
