"""Files of the lock-file store that grow by a line with each save: T67 and T70."""

from __future__ import annotations

import errno
import itertools
import os
from typing import TYPE_CHECKING

import pytest

from ottla.offsets import (
    Durability,
    OffsetCorrupt,
    OffsetKey,
    OffsetStoreError,
    SyncLockFileOffsetStore,
)
from ottla.offsets.layouts import MAX_GROWN_BYTES, MAX_GROWN_GROUP_BYTES, SECTOR_BYTES

if TYPE_CHECKING:
    from pathlib import Path

ORDERS = OffsetKey("group", "orders")
GROUP = [OffsetKey("group", "orders", shard) for shard in range(64)]


def data_file(directory: Path) -> Path:
    return directory / "group" / "orders.0.offset"


def test_a_file_grows_by_lines_up_to_a_page(tmp_path: Path) -> None:
    store = SyncLockFileOffsetStore(tmp_path, durability=Durability.RENAME)
    lengths = []
    for position in range(400):
        store.save(ORDERS, position)
        data = data_file(tmp_path).read_bytes()
        assert len(data) <= MAX_GROWN_BYTES
        lengths.append(data.count(b"\n"))
        assert SyncLockFileOffsetStore(tmp_path).load(ORDERS) == position
    assert max(lengths) > 100
    assert lengths.count(1) > 2, "and is replaced when it is full"
    # A file with other names, of a group commit or a backup, is never written to.
    os.link(data_file(tmp_path), tmp_path / "backup")
    kept = (tmp_path / "backup").read_bytes()
    store.save(ORDERS, 400)
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
        with pytest.raises(OffsetStoreError, match="No space left"):
            store.save(ORDERS, 3)
    assert data_file(tmp_path).read_bytes() == kept
    assert store.save(ORDERS, 3).previous == 2


def test_a_group_grows_by_blocks_up_to_its_limit(tmp_path: Path) -> None:
    store = SyncLockFileOffsetStore(tmp_path, durability=Durability.RENAME)
    lengths = []
    for position in range(40):
        store.save_many(dict.fromkeys(GROUP, position))
        assert data_file(tmp_path).stat().st_nlink == len(GROUP)
        data = data_file(tmp_path).read_bytes()
        assert len(data) <= MAX_GROWN_GROUP_BYTES
        lengths.append(data.count(b"\n") // len(GROUP))
        other = SyncLockFileOffsetStore(tmp_path)
        assert other.list_all() == dict.fromkeys(GROUP, position)
    assert max(lengths) > 10
    assert lengths.count(1) > 1, "and is replaced when it is full"


def test_a_group_is_only_added_to_by_who_holds_all_its_locks(tmp_path: Path) -> None:
    """Its file has a name for each key: some of them, others besides, or a backup are not it."""
    store = SyncLockFileOffsetStore(tmp_path, durability=Durability.RENAME)
    two, three, four = GROUP[:2], GROUP[:3], GROUP[:4]
    model = dict.fromkeys(three, 0)
    store.save_many(model)
    inode = data_file(tmp_path).stat().st_ino

    def saved(keys: list[OffsetKey], position: int) -> bool:
        """Save; True if the file they had was added to."""
        nonlocal inode
        store.save_many(dict.fromkeys(keys, position))
        model.update(dict.fromkeys(keys, position))
        assert SyncLockFileOffsetStore(tmp_path).list_all() == model
        before, inode = inode, data_file(tmp_path).stat().st_ino
        return inode == before

    assert saved(three, 1)
    assert saved(three[::-1], 2), "in any order"
    assert not saved(two, 3)
    assert not saved(three, 4)
    assert not saved(four, 5)
    assert not saved(three, 6)
    assert not saved(four, 7)
    assert saved(four, 8)
    store.delete(GROUP[3])
    del model[GROUP[3]]
    assert not saved(three, 9), "the line of a deleted key stays, its name is gone"
    assert saved(three, 10)
    os.link(data_file(tmp_path), tmp_path / "backup")
    assert not saved(three, 11)
    # What is stored already is written again beside what is not, so that a group stays one.
    model[GROUP[0]] = 12
    infos = store.save_many(model)
    assert [info.changed for info in infos] == [True, False, False]
    assert data_file(tmp_path).stat().st_nlink == 3
    assert SyncLockFileOffsetStore(tmp_path).list_all() == model


def test_t67_a_block_cut_at_every_byte_does_not_count(tmp_path: Path) -> None:
    """Not for any of its keys: each has the value it had before."""
    store = SyncLockFileOffsetStore(tmp_path, durability=Durability.RENAME)
    keys = GROUP[:3]
    for blocks in (0, 2):
        for position in range(blocks + 1):
            store.save_many(dict.fromkeys(keys, position), rewind=True)
        path = data_file(tmp_path)
        before = path.read_bytes()
        store.save_many(dict.fromkeys(keys, 1000))
        after = path.read_bytes()
        assert after.startswith(before)
        for cut in range(len(before) + 1, len(after)):
            for rest in (b"", bytes(len(after) - cut)):
                path.write_bytes(after[:cut] + rest)
                assert [store.load(key) for key in keys] == [blocks] * 3
        # Nothing is added to what is cut off.
        assert store.save_many(dict.fromkeys(keys, 2000))[0].previous == blocks
        assert store.list_all() == dict.fromkeys(keys, 2000)
        assert path.read_bytes().count(b"\n") == 3
        line = after[len(before) :].partition(b"\n")[0] + b"\n"
        damaged = line.replace(b"1000", b"1001")
        for bad in (
            *(before + rest for rest in (b"v", b"\n", damaged, b"+v1\n", line + b"v")),
            *(before + rest for rest in (line * 3, line * 4, bytes(9) + 4 * line)),
            after[:20],
            after + after,
        ):
            path.write_bytes(bad)
            with pytest.raises(OffsetCorrupt):
                store.load(keys[0])
        for key in keys:
            store.delete(key)


@pytest.mark.parametrize("keys", [GROUP[:1], GROUP], ids=["one key", "a group"])
def test_t67_a_block_may_lack_any_of_its_sectors(tmp_path: Path, keys: list[OffsetKey]) -> None:
    """A disk writes the sectors of a block in any order; what is not written is zeros."""
    store = SyncLockFileOffsetStore(tmp_path, durability=Durability.RENAME)
    path = data_file(tmp_path)
    before = after = b""
    position = 0
    while not (before and len(before) // SECTOR_BYTES < (len(after) - 1) // SECTOR_BYTES):
        position += 1
        store.save_many(dict.fromkeys(keys, position))
        before, after = after, path.read_bytes()
    first = -(-len(before) // SECTOR_BYTES) * SECTOR_BYTES
    edges = [len(before), *range(first, len(after), SECTOR_BYTES)]
    sectors = list(itertools.pairwise([*edges, len(after)]))
    for written in itertools.product([True, False], repeat=len(sectors)):
        parts = [
            after[start:end] if is_written else bytes(end - start)
            for (start, end), is_written in zip(sectors, written, strict=True)
        ]
        path.write_bytes(before + b"".join(parts))
        expected = position if all(written) else position - 1
        assert store.list_all() == dict.fromkeys(keys, expected)
    assert store.save_many(dict.fromkeys(keys, position))[0].previous == position - 1
    assert store.list_all() == dict.fromkeys(keys, position)


def test_t70_the_last_block_is_checked_to_the_byte(tmp_path: Path) -> None:
    store = SyncLockFileOffsetStore(tmp_path, durability=Durability.RENAME)
    keys = GROUP[:2]
    for position in (1, 2):
        store.save_many(dict.fromkeys(keys, position), epoch="epoch-1")
    path = data_file(tmp_path)
    good = path.read_bytes()
    start = good.index(b"\n+") + 1
    for index in range(start, len(good) - 1):
        path.write_bytes(good[:index] + bytes([good[index] ^ 1]) + good[index + 1 :])
        with pytest.raises(OffsetCorrupt):
            store.load(keys[0])


@pytest.mark.parametrize("call", ["pwrite", "fsync"])
def test_t70_a_block_that_could_not_be_added_leaves_the_old_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    store = SyncLockFileOffsetStore(tmp_path)
    for position in (1, 2):
        store.save_many(dict.fromkeys(GROUP, position))
    kept = data_file(tmp_path).read_bytes()

    def full(*_args: object, **_kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, call, full)
        with pytest.raises(OffsetStoreError, match="No space left"):
            store.save_many(dict.fromkeys(GROUP, 3))
    assert data_file(tmp_path).read_bytes() == kept
    assert store.list_all() == dict.fromkeys(GROUP, 2)
