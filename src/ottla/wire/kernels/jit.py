"""Compiles kernels, and defines their basic operations on addresses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

import numba
from llvmlite import ir  # type: ignore[import-untyped]  # it ships no types
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    I64: TypeAlias = npt.NDArray[np.int64]
    I32: TypeAlias = npt.NDArray[np.int32]
    U8: TypeAlias = npt.NDArray[np.uint8]

F = TypeVar("F", bound=Callable[..., object])

INT32_MAX: Final = 0x7FFFFFFF

_WORD: Final = 8
_SHORT: Final = 4 * _WORD


def kernel(function: F) -> F:
    """Compile on first call; without a writable cache directory, once per process."""
    try:
        return cast("F", numba.njit(cache=True, nogil=True)(function))
    except RuntimeError:  # "no locator available": neither the package nor the home is writable
        return cast("F", numba.njit(nogil=True)(function))


def inlined(function: F) -> F:
    """A function that is inlined into kernels; LLVM alone would keep calls, which cost more than a
    varint.

    Parts take and return numbers only: an array as an argument costs two atomic operations.
    """
    return cast("F", numba.njit(nogil=True, forceinline=True)(function))


# Numba passes the arguments of code generators and has no types for them.
@intrinsic
def _byte_at(_typing: Any, address: Any) -> Any:
    """The byte at `address`."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        byte = builder.load(builder.inttoptr(arguments[0], cgutils.voidptr_t))
        return builder.zext(byte, cgutils.intp_t)

    return types.int64(types.int64), generate


@intrinsic
def _load_i64(_typing: Any, array: Any, index: Any) -> Any:
    """array[index] of the int64 array at the address `array`."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        start, at = arguments
        slots = builder.inttoptr(start, cgutils.intp_t.as_pointer())
        return builder.load(builder.gep(slots, [at]), align=1)

    return types.int64(types.int64, types.int64), generate


def _store(width: int) -> Any:
    @intrinsic
    def store(_typing: Any, array: Any, index: Any, value: Any) -> Any:
        """array[index] = value, for the array of integers at the address `array`."""

        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            start, at, number = arguments
            kind = ir.IntType(width)
            slot = builder.gep(builder.inttoptr(start, kind.as_pointer()), [at])
            builder.store(builder.trunc(number, kind), slot, align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), generate

    return store


@intrinsic
def _memcpy_intrinsic(_typing: Any, target: Any, source: Any, size: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        to, from_, length = arguments
        pointer = cgutils.voidptr_t
        cgutils.raw_memcpy(  # type: ignore[no-untyped-call]  # numba's own helper
            builder, builder.inttoptr(to, pointer), builder.inttoptr(from_, pointer), length, 1
        )
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def _copy_word_intrinsic(_typing: Any, target: Any, source: Any) -> Any:
    """Eight bytes, at any alignment."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        to, from_ = (builder.inttoptr(a, cgutils.intp_t.as_pointer()) for a in arguments)
        builder.store(builder.load(from_, align=1), to, align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


# The intrinsics as kernels call them, without numba's first parameter.
byte_at = cast("Callable[[int], int]", _byte_at)
load_i64 = cast("Callable[[int, int], int]", _load_i64)
store_i8 = cast("Callable[[int, int, int], None]", _store(8))
store_i32 = cast("Callable[[int, int, int], None]", _store(32))
store_i64 = cast("Callable[[int, int, int], None]", _store(64))
_memcpy = cast("Callable[[int, int, int], None]", _memcpy_intrinsic)
_copy_word = cast("Callable[[int, int], None]", _copy_word_intrinsic)


@inlined
def copy_bytes(target: int, source: int, size: int) -> None:
    """memcpy. A call is expensive for short sizes, so those are copied by overlapping words."""
    if size > _SHORT or size < _WORD:
        _memcpy(target, source, size)
        return
    last = size - _WORD
    _copy_word(target, source)
    if size > 2 * _WORD:
        _copy_word(target + _WORD, source + _WORD)
        _copy_word(target + last - _WORD, source + last - _WORD)
    _copy_word(target + last, source + last)


@kernel
def gather(sources: I64, ends: I32, rows: int, target: int) -> None:
    """Lay the `rows` pieces end to end at `target`; piece i is ends[i + 1] - ends[i] long."""
    for row in range(rows):
        copy_bytes(target + ends[row], sources[row], ends[row + 1] - ends[row])
