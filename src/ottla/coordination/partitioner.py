"""Which partition of an internal topic an id belongs to.

The same rule as in Kafka, so that another broker finds offsets and transactions in the same
partitions: Java's String.hashCode over UTF-16 units, its absolute value (0 for the smallest int),
modulo the number of partitions.
"""

from __future__ import annotations

from functools import lru_cache


def java_string_hash(text: str) -> int:
    """String.hashCode as a signed 32-bit int."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


@lru_cache(maxsize=10_000)
def partition_for(identifier: str, partitions: int) -> int:
    """The partition of `__consumer_offsets` or `__transaction_state` that owns an id."""
    value = java_string_hash(identifier)
    return 0 if value == -(1 << 31) else abs(value) % partitions
