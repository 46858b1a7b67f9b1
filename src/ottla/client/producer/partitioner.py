"""Which partition a record goes to: the choices of Kafka's own producer.

- A key decides by its murmur2 hash, so that every Kafka client sends it to the same partition.
- Records without a key stick to one partition until `batch_size` bytes have gone there, then move
  on at random (KIP-794): few full batches are cheaper than many small ones.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SEED: Final = 0x9747B28C
MULTIPLIER: Final = 0x5BD1E995
MASK_32: Final = 0xFFFFFFFF
POSITIVE: Final = 0x7FFFFFFF


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2, as an unsigned number."""
    words, rest = divmod(len(data), 4)
    h = SEED ^ len(data)
    for word in struct.unpack_from(f"<{words}I", data):
        k = word * MULTIPLIER & MASK_32
        k = (k ^ k >> 24) * MULTIPLIER & MASK_32
        h = h * MULTIPLIER & MASK_32 ^ k
    if rest:
        h = (h ^ int.from_bytes(data[-rest:], "little")) * MULTIPLIER & MASK_32
    h = (h ^ h >> 13) * MULTIPLIER & MASK_32
    return h ^ h >> 15


def partition_of_key(key: bytes, partitions: int) -> int:
    """The partition of a topic with this many partitions."""
    return (murmur2(key) & POSITIVE) % partitions


class StickyPartitioner:
    """Partitions for records without a key. `random` gives numbers from [0, 1)."""

    __slots__ = ("_at", "_random", "_stick_bytes")

    def __init__(self, stick_bytes: int, random: Callable[[], float]) -> None:
        self._stick_bytes = stick_bytes
        self._random = random
        self._at: dict[str, tuple[int, int]] = {}

    def pick(self, topic: str, candidates: Sequence[int], size: int) -> int:
        """The partition for `size` more bytes: the same as before, or another of the candidates."""
        partition, left = self._at.get(topic, (-1, 0))
        if left <= 0 or partition not in candidates:
            others = [one for one in candidates if one != partition] or candidates
            partition, left = others[int(self._random() * len(others))], self._stick_bytes
        self._at[topic] = partition, left - size
        return partition
