"""What `import ottla` costs and offers."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ottla
from ottla.client.admin.admin import Admin


def test_names_are_found_where_they_live() -> None:
    assert ottla.Admin is Admin
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        ottla.Nothing  # noqa: B018  # on purpose


def test_the_client_needs_neither_the_broker_nor_heavy_libraries() -> None:
    others = "('ottla.broker', 'ottla.log', 'ottla.metadata', 'numpy', 'pyarrow', 'uvloop')"
    code = f"import sys, ottla; ottla.Admin; print([m for m in {others} if m in sys.modules])"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=False, timeout=60
    )
    assert ended.stdout == "[]\n", ended.stderr
