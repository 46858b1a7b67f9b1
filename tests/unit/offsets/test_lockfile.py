"""The lock-file store: bytes, names, corruption, locks. T65, T66 and T68 to T71."""

from __future__ import annotations

import errno
import os
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from ottla.offsets import (
    Durability,
    Lance,
    OffsetConflict,
    OffsetCorrupt,
    OffsetError,
    OffsetKey,
    OffsetLockTimeout,
    OffsetStoreError,
    OnCorrupt,
    SyncLockFileOffsetStore,
)
from ottla.offsets.files import OpenDirectory
from ottla.offsets.layouts import MAX_FILE_BYTES, V1, part
from tests.support import offsets_workers as workers
from tests.support.offsets_workers import KEY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ORDERS = OffsetKey("group", "orders")
KINDS = ["v1", "lance"]


def opened(
    directory: Path,
    kind: str = "v1",
    *,
    durability: Durability = Durability.FSYNC,
    lock_timeout: float = 10,
) -> SyncLockFileOffsetStore:
    layout = Lance("x") if kind == "lance" else None
    return SyncLockFileOffsetStore(
        directory, layout, durability=durability, lock_timeout=lock_timeout
    )


def data_file(directory: Path) -> Path:
    [path] = directory.glob("*/*.offset")
    return path


def test_t65_the_bytes_of_v1(tmp_path: Path) -> None:
    opened(tmp_path).save(ORDERS, 42)
    assert data_file(tmp_path).relative_to(tmp_path).as_posix() == "group/orders.0.offset"
    assert data_file(tmp_path).read_bytes() == b"v1 42 - orders 0 cd3f550b\n"
    assert opened(tmp_path).load(ORDERS) == 42
    assert (tmp_path / "group").stat().st_mode & 0o777 == 0o700
    opened(tmp_path).save(ORDERS, 43, epoch="e-1")
    first, second, rest = data_file(tmp_path).read_bytes().split(b"\n")
    assert (first, rest) == (b"v1 42 - orders 0 cd3f550b", b"")
    assert second.startswith(b"+v1 43 e-1 orders 0 ")


def test_t65_the_bytes_of_lance(tmp_path: Path) -> None:
    store = SyncLockFileOffsetStore(tmp_path, Lance("test-consumer"))
    key = OffsetKey("100", "1")
    store.save(key, 42)
    path = tmp_path / "test-consumer" / "topic-1-consumer-100.offset"
    assert path.read_bytes() == b"42\n"
    path.write_bytes(b"  12345 \n")
    assert SyncLockFileOffsetStore(tmp_path, Lance("test-consumer")).list_all() == {key: 12345}


def test_t65_lance_names() -> None:
    layout = Lance("x")
    assert layout.key("topic-1-consumer-100.offset") == OffsetKey("100", "1")
    assert layout.key("topic-4294967295-consumer-18446744073709551615.offset") is not None
    for wrong in (
        "invalid.offset",
        "topic-abc-consumer-100.offset",
        "topic-1-consumer-2-x.offset",
        "topic-01-consumer-2.offset",
        "topic-4294967296-consumer-1.offset",
        "topic-1-consumer-18446744073709551616.offset",
        "topic-1-consumer-2.offset.tmp",
    ):
        assert layout.key(wrong) is None
    for name in ("", ".", "..", "a/b"):
        with pytest.raises(ValueError, match="valid directory name"):
            Lance(name)


def test_t65_foreign_files_are_not_listed(tmp_path: Path) -> None:
    store = opened(tmp_path, "lance")
    store.save(KEY, 1)
    (tmp_path / "x" / "invalid.offset").write_bytes(b"7\n")
    (tmp_path / "x" / "topic-1-consumer-2.offset.tmp").write_bytes(b"7\n")
    (tmp_path / "lost+found").mkdir()
    assert store.list_all() == {KEY: 1}
    assert opened(tmp_path).list_all("nobody") == {}


class Trace:
    """The calls that matter for durability, by what they are called with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, str]] = []
        self._opened: dict[int, str] = {}
        monkeypatch.setattr(os, "open", self._open)
        for name in ("fsync", "replace", "unlink", "link"):
            monkeypatch.setattr(os, name, self._traced(name, getattr(os, name)))

    _real_open = staticmethod(os.open)

    def _open(self, path: Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        descriptor = self._real_open(path, flags, mode, dir_fd=dir_fd)
        self._opened[descriptor] = os.fspath(path)
        return descriptor

    def _traced(self, name: str, function: Callable[..., object]) -> Callable[..., object]:
        def call(*args: int | Path, **kwargs: int) -> object:
            what = args[-1]
            path = self._opened[what] if isinstance(what, int) else os.fspath(what)
            self.calls.append((name, path.rpartition("/")[2]))
            return function(*args, **kwargs)

        return call


def test_t68_data_is_synced_before_the_rename_and_the_directory_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path)
    store.save(OffsetKey("group", "other"), 1)
    trace = Trace(monkeypatch)
    store.save(ORDERS, 1)
    [sync, replace, directory] = trace.calls
    assert sync[0] == "fsync"
    assert sync[1].startswith(".orders.0.")
    assert (replace, directory) == (("replace", "orders.0.offset"), ("fsync", "group"))
    trace.calls.clear()
    store.save(ORDERS, 2)
    assert trace.calls == [("fsync", "group"), ("fsync", "orders.0.offset")]
    trace.calls.clear()
    store.save(ORDERS, 3)
    assert trace.calls == [("fsync", "orders.0.offset")]
    trace.calls.clear()
    assert store.save(ORDERS, 3).changed is False
    assert trace.calls == []
    store.delete(ORDERS)
    assert trace.calls == [("unlink", "orders.0.offset"), ("fsync", "group")]


def test_t68_a_group_commit_syncs_once_for_all_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path)
    keys = [OffsetKey("group", f"s{number}") for number in range(64)]
    store.save(keys[0], 0)
    trace = Trace(monkeypatch)
    store.save_many(dict.fromkeys(keys, 1))
    names = [name for name, _ in trace.calls]
    assert names == ["fsync", *["link"] * 63, *["replace"] * 64, "fsync"]
    trace.calls.clear()
    store.save_many(dict.fromkeys(keys, 2))
    assert trace.calls == [("fsync", "group"), ("fsync", "s0.0.offset")]
    trace.calls.clear()
    store.save_many(dict.fromkeys(keys, 3))
    assert trace.calls == [("fsync", "s0.0.offset")]


def test_t68_without_links_a_group_commit_writes_each_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_args: object, **_kwargs: object) -> None:
        raise PermissionError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", no_links)
    store = opened(tmp_path)
    keys = [OffsetKey("group", f"s{number}") for number in range(5)]
    store.save_many(dict.fromkeys(keys, 1))
    assert store.list_all() == dict.fromkeys(keys, 1)


def test_t68_a_new_directory_is_recorded_in_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = Trace(monkeypatch)
    opened(tmp_path / "a" / "b").save(ORDERS, 1)
    assert [call for call in trace.calls if call[0] == "fsync"][:3] == [
        ("fsync", tmp_path.name),
        ("fsync", "a"),
        ("fsync", "b"),
    ]


NAMES = ["..", ".", "a/b", "a" * 249, "Ž" * 300, "ž" * 300, "Orders", "orders", "a b", "%2F", "~"]


def test_t69_any_name_stays_inside_and_comes_back(tmp_path: Path) -> None:
    base = tmp_path / "base"
    keys = {OffsetKey(name, other) for name in NAMES for other in ("x", name)}
    store = opened(base, durability=Durability.RENAME)
    for number, key in enumerate(sorted(keys)):
        store.save(key, number)
    assert store.list_all() == {key: number for number, key in enumerate(sorted(keys))}
    assert store.list_all("Ž" * 300).keys() == {key for key in keys if key.consumer == "Ž" * 300}
    assert list(tmp_path.iterdir()) == [base]
    folded = [name.lower() for name in os.listdir(base)]  # noqa: PTH208  # names, not paths
    assert len(set(folded)) == len(NAMES)


def test_t69_quoting() -> None:
    assert part("a_b-1.Ž/") == "a_b-1%2E%C5%BD%2F"
    long = part("x" * 181)
    assert (len(long), long[:141]) == (173, "x" * 140 + "~")
    assert part("x" * 180) == "x" * 180


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800", "x" * 1025])
def test_t69_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"consumer (is|has)"):
        OffsetKey(name, "stream")
    with pytest.raises(ValueError, match=r"stream (is|has)"):
        OffsetKey("consumer", name)


def test_t69_a_long_name_that_is_lost_is_reported(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.save(OffsetKey("x" * 300, "s"), 1)
    [name_file] = tmp_path.glob("*/consumer.name")
    name_file.unlink()
    assert store.load(OffsetKey("x" * 300, "s")) == 1
    with pytest.raises(OffsetCorrupt, match="name is not known"):
        store.list_all()


def line(covered: bytes) -> bytes:
    return b"%b %08x\n" % (covered, zlib.crc32(covered))


CORRUPT = {
    "empty": b"",
    "zero-filled": b"\0" * 26,
    "no digits": b"abc\n",
    "sign": b"-1\n",
    "overflow": b"340282366920938463463374607431768211456\n",
    "bad checksum": line(b"v1 42 - 1 0").replace(b"42", b"43"),
    "extra field": line(b"v1 42 - 1 0 x"),
    "unknown version": line(b"v2 42 - 1 0"),
    "sign with checksum": line(b"v1 -42 - 1 0"),
    "overflow with checksum": line(b"v1 340282366920938463463374607431768211456 - 1 0"),
    "another key": line(b"v1 42 - 2 0"),
    "not ASCII": b"\xff42\n",
    "too much": b"1" * (MAX_FILE_BYTES + 1),
}


@pytest.mark.parametrize("what", CORRUPT)
@pytest.mark.parametrize("kind", KINDS)
def test_t70_corrupt_files_are_reported(tmp_path: Path, kind: str, what: str) -> None:
    store = opened(tmp_path, kind)
    store.save(KEY, 42)
    path = data_file(tmp_path)
    path.write_bytes(CORRUPT[what])
    for operation in (
        lambda: store.load(KEY),
        lambda: store.save(KEY, 50),
        lambda: store.save(KEY, 50, rewind=True),
        store.list_all,
    ):
        with pytest.raises(OffsetCorrupt) as raised:
            operation()
        assert raised.value.path == path
    assert path.read_bytes() == CORRUPT[what]
    assert store.delete(KEY) is True
    assert store.save(KEY, 1).previous is None


def test_t70_every_byte_counts(tmp_path: Path) -> None:
    """Any byte changed, any cut, any byte added: corrupt, never another position."""
    store = opened(tmp_path)
    keys = [OffsetKey("group", "orders", shard) for shard in range(2)]
    store.save_many({keys[0]: 1234567, keys[1]: 89}, epoch="epoch-1")
    path = tmp_path / "group" / "orders.0.offset"
    good = path.read_bytes()
    assert good.count(b"\n") == 2
    for index in range(len(good)):
        for value in (0, good[index] ^ 1, good[index] ^ 0x20, good[index] ^ 0x80, 0x20, 0x0A):
            bad = good[:index] + bytes([value]) + good[index + 1 :]
            if bad != good:
                _assert_corrupt(bad)
        line = good.index(b"\n") + 1
        if index != line:  # the own line alone is a whole file
            _assert_corrupt(good[:index])
        _assert_corrupt(good[:index] + b"1" + good[index:])
    path.write_bytes(good[:-1])
    with pytest.raises(OffsetCorrupt):
        store.load(keys[0])
    path.write_bytes(good)
    assert store.load(keys[0], epoch="epoch-1") == 1234567


def _assert_corrupt(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # Malformed, whatever the reason
        V1().decode("group", "orders.0", data)


def test_t70_a_key_that_cannot_be_is_corrupt_too(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.save(KEY, 42)
    (tmp_path / "1" / ".0.offset").write_bytes(line(b"v1 42 -  0"))
    with pytest.raises(OffsetCorrupt, match="stream is empty"):
        store.list_all()


def test_t70_quarantine_keeps_the_evidence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = SyncLockFileOffsetStore(tmp_path, on_corrupt=OnCorrupt.QUARANTINE)
    operations: list[Callable[[], int | None]] = [
        lambda: store.load(ORDERS),
        lambda: store.save(ORDERS, 1).previous,
        lambda: store.list_all().get(ORDERS),
    ]
    for operation in operations:
        store.delete(ORDERS)
        store.save(ORDERS, 42)
        data_file(tmp_path).write_bytes(b"rubbish")
        assert operation() is None
        [evidence] = tmp_path.glob("group/*.corrupt-*")
        assert evidence.read_bytes() == b"rubbish"
        assert "continuing without a position" in caplog.text
        evidence.unlink()


@pytest.mark.parametrize("call", ["write", "fsync", "replace", "link"])
def test_t70_a_full_disk_leaves_the_old_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    store = opened(tmp_path)
    other = OffsetKey("group", "other")
    for key in (ORDERS, other):
        store.save(key, 1)  # not together, so that they are when they are saved again

    def full(*_args: object, **_kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, call, full)
        with pytest.raises(OffsetStoreError, match="No space left"):
            store.save_many({ORDERS: 2, other: 2})
    assert store.list_all() == {ORDERS: 1, other: 1}
    assert list(tmp_path.glob("group/.*.tmp")) == []
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda _descriptor, data: len(data) - 1)
        with pytest.raises(OffsetStoreError, match="No space left"):
            store.save_many({ORDERS: 2, other: 2})
    assert store.load(ORDERS) == 1


def test_t70_a_read_only_directory_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may write anywhere, so the refusal is what the system says to others."""
    store = opened(tmp_path)
    store.save(ORDERS, 1)
    real = os.open

    def read_only(path: Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & os.O_CREAT:
            raise PermissionError(errno.EACCES, "Permission denied", os.fspath(path))
        return real(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(OffsetStoreError, match="Permission denied"):
        store.save(ORDERS, 2)
    assert store.load(ORDERS) == 1


def test_t71_a_lock_held_elsewhere_times_out(tmp_path: Path) -> None:
    store = opened(tmp_path, lock_timeout=0.05)
    store.save(ORDERS, 1)
    with workers.held_lock(tmp_path / "group" / "orders.0.lock"):
        for operation in (lambda: store.save(ORDERS, 2), lambda: store.delete(ORDERS)):
            with pytest.raises(OffsetLockTimeout, match="raise lock_timeout"):
                operation()
        assert store.load(ORDERS) == 1
        store.save(OffsetKey("group", "other"), 2)
    store.save(ORDERS, 2)


def test_t71_a_store_does_not_survive_a_fork(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    for operation in (
        lambda: store.load(KEY),
        lambda: store.save(KEY, 1),
        lambda: store.delete(KEY),
        store.list_all,
    ):
        with pytest.raises(OffsetError, match="open a new one in the child"):
            operation()


def test_an_exclusive_store_keeps_the_others_out(tmp_path: Path) -> None:
    opened(tmp_path).save(ORDERS, 1)
    other = opened(tmp_path, lock_timeout=0.05)
    with SyncLockFileOffsetStore(tmp_path, exclusive=True) as owner:
        assert owner.load(ORDERS) == 1
        owner.save(ORDERS, 2)
        with pytest.raises(OffsetLockTimeout):
            other.save(ORDERS, 3)
        assert other.load(ORDERS) == 2
    other.save(ORDERS, 3)


def test_threads_take_turns(tmp_path: Path) -> None:
    store = opened(tmp_path, durability=Durability.RENAME)
    done: list[int] = []

    def count() -> None:
        while len(done) < 100:
            value = store.load(ORDERS)
            try:
                store.save(ORDERS, (value or 0) + 1, expected=value)
            except OffsetConflict:
                continue
            done.append(1)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.load(ORDERS) == len(done)


def test_a_position_that_lance_cannot_read_is_refused(tmp_path: Path) -> None:
    store = SyncLockFileOffsetStore(tmp_path, Lance("client"))
    key = OffsetKey("7", "1")
    store.save(key, 2**64 - 1)
    with pytest.raises(ValueError, match=r"holds up to 2\^64-1"):
        store.save(key, 2**64)
    assert store.load(key) == 2**64 - 1
    assert list(tmp_path.rglob("*.tmp")) == []


def test_a_lock_on_a_file_that_was_deleted_meanwhile_does_not_count(tmp_path: Path) -> None:
    """LANCE's `delete` unlinks the lock file while another process waits for it."""
    directory = OpenDirectory(tmp_path, Durability.RENAME)
    first = directory.lock("x.lock", 1)
    waiting = ThreadPoolExecutor(1)
    second = waiting.submit(directory.lock, "x.lock", 10)
    (tmp_path / "x.lock").unlink()
    third = directory.lock("x.lock", 1)  # on a new file
    os.close(first)  # the second gets its lock, on the file that is gone, and tries again
    with pytest.raises(OffsetLockTimeout):
        directory.lock("x.lock", 0.2)
    assert not second.done()
    os.close(third)
    os.close(second.result(10))
    waiting.shutdown()
