"""The partitioner for columns of keys: murmur2 and a stable grouping of rows, compiled.

Imported when columns are sent for the first time; needs the `arrow` extra.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.client.producer.partitioner import MASK_32, MULTIPLIER, POSITIVE, SEED
from ottla.wire.kernels.jit import byte_at, inlined, kernel

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ottla.wire.kernels.jit import I32, I64


@inlined
def _mixed(h: int) -> int:
    # The multiplier has 31 bits: the product of a 32-bit number stays below the sign bit.
    return (h * MULTIPLIER) & MASK_32


@inlined
def _little_endian(address: int, size: int) -> int:
    number = 0
    for byte in range(size):
        number |= byte_at(address + byte) << (8 * byte)
    return number


@kernel
def hash_keys(offsets: I64, data: int, valid: npt.NDArray[np.bool_], count: int, out: I32) -> None:
    """Write the partition of each key, out of `count`; rows without a key keep what `out` holds.

    `data` is the address of the bytes that the offsets count in.
    """
    for row in range(len(out)):
        if not valid[row]:
            continue
        start = offsets[row]
        length = offsets[row + 1] - start
        words = length >> 2
        h = SEED ^ (length & MASK_32)
        for word in range(words):
            k = _mixed(_little_endian(data + start + 4 * word, 4))
            h = _mixed(h) ^ _mixed(k ^ (k >> 24))
        rest = length & 3
        if rest:
            h = _mixed(h ^ _little_endian(data + start + 4 * words, rest))
        h = _mixed(h ^ (h >> 13))
        out[row] = ((h ^ (h >> 15)) & POSITIVE) % count


@kernel
def group_rows(partitions: I32, ends: I64, order: I64) -> None:
    """Write the rows in the order of their partitions, and where each partition's rows end.

    Rows of one partition keep their order. `ends` comes filled with zeros.
    """
    for row in range(len(partitions)):
        ends[partitions[row]] += 1
    total = 0
    for partition in range(len(ends)):
        count = ends[partition]
        ends[partition] = total
        total += count
    for row in range(len(partitions)):
        partition = partitions[row]
        order[ends[partition]] = row
        ends[partition] += 1
