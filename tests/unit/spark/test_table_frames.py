"""Arguments of frames over tables that are refused before anybody is asked."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.spark.errors import BadOption
from ottla.spark.tables.frames import stream

NOBODY: Any = None


@pytest.mark.parametrize("starting", ["zzz", "", '{"orders": {"0": 1}}'])
def test_a_start_that_does_not_exist_is_refused(starting: str) -> None:
    """Fault: the stream failed later, with a traceback of a Python worker."""
    with pytest.raises(BadOption, match="starting is earliest, latest or offsets by partition"):
        stream(NOBODY, "orders", bootstrap="127.0.0.1:1", starting=starting)
