"""How closely the batches of one connection are looked into; `validate` says what for."""

from __future__ import annotations

from math import inf
from typing import Final

BATCH_CREDIT_NS: Final = 1_000
BYTES_PER_CREDIT_NS: Final = 8
"""A twentieth of the CPU of a produce request: 37 us, which partitions share, and 2 ns a byte."""
MAX_CREDIT_NS: Final = 1_000_000
"""What a quiet time may save up."""


class Scrutiny:
    """How many batches of one connection are looked into.

    Looking may take a twentieth of the CPU that serving takes: each batch earns credit, a look is
    paid for with the time it took, and a batch is looked into whenever the credit is not below
    zero. So the first batch of a connection always is, and a client with a wrong encoder is
    refused at once.
    A connection that was refused once has no credit to spare: all of its batches are looked into.
    """

    __slots__ = ("_credit_ns",)

    def __init__(self) -> None:
        self._credit_ns: float = 0

    def wants(self, size: int) -> bool:
        """Whether to look into a batch of `size` bytes, which earns its credit here."""
        wanted = self._credit_ns >= 0
        earned = BATCH_CREDIT_NS + size // BYTES_PER_CREDIT_NS
        if self._credit_ns < MAX_CREDIT_NS:
            self._credit_ns = min(self._credit_ns + earned, MAX_CREDIT_NS)
        return wanted

    def took(self, nanoseconds: int) -> None:
        self._credit_ns -= nanoseconds

    def distrust(self) -> None:
        self._credit_ns = inf
