"""Where columns and batches get their memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import numpy.typing as npt

Number = TypeVar("Number", bound=np.integer)


def allocate(count: int, dtype: type[Number]) -> npt.NDArray[Number]:
    """Uninitialised memory from Arrow's pool, which keeps pages that the system would take back."""
    return np.frombuffer(pa.allocate_buffer(count * np.dtype(dtype).itemsize), dtype)
