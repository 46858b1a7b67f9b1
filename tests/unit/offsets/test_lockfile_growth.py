"""Files of the lock-file store that grow by a line with each save: T67 and T70."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from ottla.offsets import Durability, OffsetCorrupt, OffsetKey, SyncLockFileOffsetStore
from ottla.offsets.layouts import MAX_GROWN_BYTES

if TYPE_CHECKING:
    from pathlib import Path

ORDERS = OffsetKey("group", "orders")


def data_file(directory: Path) -> Path:
    return directory / "group" / "orders.0.offset"


def test_a_file_grows_by_lines_up_to_a_sector(tmp_path: Path) -> None:
    store = SyncLockFileOffsetStore(tmp_path)
    lengths = []
    for position in range(100):
        store.save(ORDERS, position)
        data = data_file(tmp_path).read_bytes()
        assert len(data) <= MAX_GROWN_BYTES
        lengths.append(data.count(b"\n"))
        assert SyncLockFileOffsetStore(tmp_path).load(ORDERS) == position
    assert max(lengths) > 10
    assert lengths.count(1) > 2, "and is replaced when it is full"
    # A file with other names, of a group commit or a backup, is never written to.
    os.link(data_file(tmp_path), tmp_path / "backup")
    kept = (tmp_path / "backup").read_bytes()
    store.save(ORDERS, 100)
    assert (tmp_path / "backup").read_bytes() == kept
    assert data_file(tmp_path).read_bytes().count(b"\n") == 1


@pytest.mark.parametrize("rest", ["short", "zeros"])
@pytest.mark.parametrize("lines", [1, 2, 5])
def test_t67_a_line_cut_at_every_byte_does_not_count(tmp_path: Path, lines: int, rest: str) -> None:
    """A power cut leaves the beginning of a line, with or without zeros up to its end."""
    store = SyncLockFileOffsetStore(tmp_path, durability=Durability.RENAME)
    for position in range(lines):
        store.save(ORDERS, position)
    path = data_file(tmp_path)
    before = path.read_bytes()
    store.save(ORDERS, 1000)
    after = path.read_bytes()
    assert after.startswith(before)
    for cut in range(len(before), len(after)):
        zeros = bytes(len(after) - cut) if rest == "zeros" else b""
        path.write_bytes(after[:cut] + zeros)
        assert store.load(ORDERS) == lines - 1
        assert store.list_all() == {ORDERS: lines - 1}
        assert store.save(ORDERS, 2000).previous == lines - 1
        assert store.load(ORDERS) == 2000
    # Anything else behind a line, or a cut in the first one, is not what a power cut leaves.
    for bad in (before + b"v", before + b"\0+v1", before + b"+v1\n", before[:20], after + after):
        path.write_bytes(bad)
        with pytest.raises(OffsetCorrupt):
            store.load(ORDERS)


@pytest.mark.parametrize("call", ["pwrite", "fsync"])
def test_t70_a_line_that_could_not_be_added_leaves_the_old_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    store = SyncLockFileOffsetStore(tmp_path)
    for position in (1, 2):
        store.save(ORDERS, position)
    kept = data_file(tmp_path).read_bytes()

    def full(*_args: object, **_kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, call, full)
        with pytest.raises(OSError, match="No space left"):
            store.save(ORDERS, 3)
    assert data_file(tmp_path).read_bytes() == kept
    assert store.save(ORDERS, 3).previous == 2
