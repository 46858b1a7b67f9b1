"""The worker's process gives back what it has freed."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

CODE = """
import mmap
import numpy as np
import pyarrow as pa
from ottla.tables.memory import LARGE_BYTES, give_back

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE

def filled(size):
    buffer = pa.allocate_buffer(size)
    np.frombuffer(buffer, np.uint8)[:] = 1
    return buffer

give_back()
assert pa.default_memory_pool().backend_name == "system"
before = resident()
buffers = [filled(2 * LARGE_BYTES) for _ in range(50)]
assert resident() - before > 90 * LARGE_BYTES
kept = buffers[::10]
del buffers
assert resident() - before < 30 * LARGE_BYTES
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is of glibc")
def test_large_buffers_go_back_to_the_system() -> None:
    run = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
