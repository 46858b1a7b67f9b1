"""Names for topics, groups and ids on a broker that other tests and other workers use, too."""

from __future__ import annotations

import os
from itertools import count

_WORKER = os.environ.get("PYTEST_XDIST_WORKER", "main")
_numbers = count(1)


def fresh(prefix: str) -> str:
    """A name that nothing else of this run has."""
    return f"{prefix}-{_WORKER}-{next(_numbers)}"
