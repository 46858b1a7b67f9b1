"""How many columns a schema may have, and how deep they may be."""

from __future__ import annotations

from typing import Final

MAX_LEAVES: Final = 2_000
"""Most columns without nested ones: each has buffers and Parquet statistics of its own."""
MAX_DEPTH: Final = 16
"""Deepest column: as deep as Spark's and Iceberg's readers are tested by their projects."""
