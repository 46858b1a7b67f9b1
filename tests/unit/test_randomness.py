"""One module draws random numbers, and nobody can make it repeat them."""

from __future__ import annotations

import random
import re
from pathlib import Path

import ottla
from ottla.randomness import RANDOM

SOURCES = Path(ottla.__file__).parent
IMPORTS_RANDOM = re.compile(r"^\s*(import random\b|from random import\b)", re.MULTILINE)
# The demo's orders come from a generator of their own, whose seed is an argument.
MAY_IMPORT_IT = {"randomness.py", "demo/orders.py"}


def test_no_other_module_imports_random() -> None:
    found = {
        path.relative_to(SOURCES).as_posix()
        for path in SOURCES.rglob("*.py")
        if IMPORTS_RANDOM.search(path.read_text())
    }
    assert found == MAY_IMPORT_IT


def test_draws_neither_follow_nor_change_the_global_generator() -> None:
    before = random.getstate()
    try:
        random.seed(0)
        seeded = random.getstate()
        first = RANDOM.getrandbits(128)
        assert random.getstate() == seeded
        assert RANDOM.getrandbits(128) != first
    finally:
        random.setstate(before)
