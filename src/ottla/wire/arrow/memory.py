"""Allocates memory for columns and batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import numpy.typing as npt

Number = TypeVar("Number", bound=np.integer)


def allocate(count: int, dtype: type[Number]) -> npt.NDArray[Number]:
    """Uninitialised memory from Arrow's pool, which keeps freed pages instead of returning them."""
    return np.frombuffer(pa.allocate_buffer(count * np.dtype(dtype).itemsize), dtype)
