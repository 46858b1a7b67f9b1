"""Redis entry ids as sequences, and back.

An id is `left-sub`: milliseconds (or nanoseconds) and a counter. A sequence is `left << bits | sub`
with 16 bits by default, which fits the 64 bits of a `.ss` file; with 64 bits nothing is lost.
An id that does not fit is a `SequenceOverflow`, never a wrong number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ottla.streams.errors import SequenceOverflow

SUB_MAX: Final = 2**64 - 1  # of the server
LEFT_BITS_MS: Final = 48  # until the year 10889
LEFT_BITS_NS: Final = 64
NS_PER_MS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class IdFormat:
    """How ids are read: `bits` for the counter, and whether the left part is nanoseconds."""

    bits: int = 16
    is_ns: bool = False

    def to_seq(self, native: str) -> int:
        """The sequence of an id; `109987797092401159` for `1678280595282-7`."""
        left, _, sub = native.partition("-")
        number = int(sub)
        high = int(left)
        if number >> self.bits or high >> (LEFT_BITS_NS if self.is_ns else LEFT_BITS_MS):
            raise SequenceOverflow(
                f"the id {native} does not fit a sequence with {self.bits} bits for the counter; "
                "connect with RedisOptions(seq_bits=64)",
                native,
            )
        return high << self.bits | number

    def to_id(self, seq: int) -> str:
        return f"{seq >> self.bits}-{seq & (1 << self.bits) - 1}"

    def predecessor(self, seq: int) -> str:
        """The greatest id before that of `seq`: reading after it begins with `seq` itself."""
        if seq <= 0:
            return "0-0"
        left, sub = seq >> self.bits, seq & (1 << self.bits) - 1
        if left > SUB_MAX:
            raise SequenceOverflow(f"the sequence {seq} is beyond the ids of Redis", str(seq))
        return f"{left}-{sub - 1}" if sub else f"{left - 1}-{SUB_MAX}"

    def after_time(self, timestamp_ns: int) -> str:
        """Reading after this id begins with the first entry of a later tick."""
        return f"{self.left_of(timestamp_ns)}-{SUB_MAX}"

    def left_of(self, timestamp_ns: int) -> int:
        return timestamp_ns if self.is_ns else timestamp_ns // NS_PER_MS

    def timestamp_ns(self, seq: int) -> int:
        left = seq >> self.bits
        return left if self.is_ns else left * NS_PER_MS
