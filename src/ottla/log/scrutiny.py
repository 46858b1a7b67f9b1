"""How closely the batches of one connection are looked into; `validate` says what for."""

from __future__ import annotations

from typing import Final

BATCH_CREDIT_NS: Final = 300
BYTES_PER_CREDIT_NS: Final = 64
"""Below a hundredth of the CPU of a produce request: 38 us, and 1 ns a byte."""
MIN_SKIPPED: Final = 63
"""Code that runs once in many requests runs cold, and costs more than its own time shows."""
MAX_SKIPPED: Final = 4095
"""However long a look took: it may have been the first one, which loads the codec."""


class Scrutiny:
    """How many batches of one connection are looked into.

    The first one is, so a client with a wrong encoder is refused at once. A look is paid for by
    the batches after it: as many are skipped as it takes until looking is about a hundredth of the
    CPU of serving. A connection that was refused once is not trusted again: all of its batches are
    looked into.
    """

    __slots__ = ("_skip", "_trusted")

    def __init__(self) -> None:
        self._skip = 0
        self._trusted = True

    def wants(self) -> bool:
        """Whether to look into the next batch."""
        if self._skip:
            self._skip -= 1
            return False
        return True

    def took(self, nanoseconds: int, size: int) -> None:
        """Note the cost of checking a batch of `size` bytes."""
        if self._trusted:
            credit = BATCH_CREDIT_NS + size // BYTES_PER_CREDIT_NS
            self._skip = min(max(nanoseconds // credit, MIN_SKIPPED), MAX_SKIPPED)

    def distrust(self) -> None:
        self._trusted = False
        self._skip = 0
