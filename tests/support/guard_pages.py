"""Memory that ends where the process may not go: one byte too far kills it.

Run as a program, it decodes mutated batches from such memory into such memory:
`python -m tests.support.guard_pages SEED COUNT`, or reads past the end on purpose with `past-end`.
"""

from __future__ import annotations

import ctypes
import mmap
import random
import sys
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ottla.wire.arrow import arrow_to_batches, batches_to_arrow, memory
from ottla.wire.columns import COLUMNS
from ottla.wire.errors import WireError
from ottla.wire.kernels.validate import address_of, validate_records
from tests.support.plain_records import mutated, random_batch

if TYPE_CHECKING:
    import numpy.typing as npt

Number = TypeVar("Number", bound=np.integer)

PROT_NONE = 0


def guarded(size: int) -> memoryview:
    """`size` bytes whose end is the end of the last page that can be touched."""
    pages = -(-size // mmap.PAGESIZE) + 1
    memory = memoryview(mmap.mmap(-1, pages * mmap.PAGESIZE))
    wall = (pages - 1) * mmap.PAGESIZE
    address = ctypes.c_void_p(address_of(memory) + wall)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(address, ctypes.c_size_t(mmap.PAGESIZE), PROT_NONE):
        raise OSError(ctypes.get_errno(), "mprotect")
    return memory[wall - size : wall]


def guarded_copy(data: bytes) -> memoryview:
    copy = guarded(len(data))
    copy[:] = data
    return copy


def guarded_array(count: int, dtype: type[Number]) -> npt.NDArray[Number]:
    return np.frombuffer(guarded(count * np.dtype(dtype).itemsize), dtype)


def main(seed: str, count: int) -> None:
    memory.allocate = guarded_array
    rng = random.Random(seed)
    refused = 0
    for index in range(count):
        sound = index % 10 == 0
        data = guarded_copy(random_batch(rng) if sound else mutated(rng))
        try:
            batch = batches_to_arrow(data, "t", 0, columns=COLUMNS)
        except WireError:
            refused += 1
        else:
            arrow_to_batches(batch, now_ms=0, key="key", headers="headers", timestamp="timestamp")
        try:
            validate_records(data[61:], int.from_bytes(data[57:61], "big", signed=True))
        except WireError:
            refused += 1
    print(f"{count} decoded, {refused} refusals")


if __name__ == "__main__":
    if sys.argv[1] == "past-end":
        ctypes.string_at(address_of(guarded_copy(b"four")), 5)
    else:
        main(sys.argv[1], int(sys.argv[2]))
