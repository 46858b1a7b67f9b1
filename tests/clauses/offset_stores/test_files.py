"""Files: one for each offset, with a lock file beside it

The layout of LANCE is `Lance(name)`; its client and Ottla work on one directory. New programs use
the layout `V1`, which has names for ids.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Final

import pytest

from ottla.offsets import (
    Lance,
    OffsetConflict,
    OffsetCorrupt,
    OffsetKey,
    OffsetLockTimeout,
    OffsetStoreError,
    SyncLockFileOffsetStore,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KEY: Final = OffsetKey(consumer="100", stream="1")
DATA: Final = "topic-1-consumer-100.offset"
LOCK: Final = "topic-1-consumer-100.lock"
PATIENCE: Final = 60  # seconds

# A program that saves, for what several processes do.
SAVER: Final = """
import sys
from ottla.offsets import Lance, OffsetConflict, OffsetKey, SyncLockFileOffsetStore
store = SyncLockFileOffsetStore(sys.argv[1], Lance("client"))
key = OffsetKey(consumer="100", stream="1")
left = int(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
while left:
    stored = store.load(key)
    try:
        store.save(key, (stored or 0) + 1, expected=stored)
        left -= 1
    except OffsetConflict:
        pass
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the files of `store` are."""
    return tmp_path / "client"


@pytest.fixture
def store(tmp_path: Path) -> SyncLockFileOffsetStore:
    return SyncLockFileOffsetStore(tmp_path, Lance("client"))


def test_a_store_is_opened_with_a_directory_and_a_name(
    store: SyncLockFileOffsetStore, folder: Path
) -> None:
    """`LockFileOffsetStore::open(base_dir, consumer_name)` keeps files below both."""
    store.save(KEY, 12345)
    assert (folder / DATA).exists()


def test_the_directory_is_made_with_its_parents(tmp_path: Path) -> None:
    """The directory and those above it are created.

    Differs: the first save creates them, so that looking leaves no directories behind.
    """
    deep = tmp_path / "var" / "lib" / "offsets"
    store = SyncLockFileOffsetStore(deep, Lance("client"))
    assert not deep.exists()
    store.save(KEY, 1)
    assert (deep / "client" / DATA).exists()


def test_what_cannot_be_a_directory_is_refused_when_the_store_is_opened(tmp_path: Path) -> None:
    """Opening fails if the directory cannot be created."""
    (tmp_path / "file").write_text("")
    with pytest.raises(OffsetStoreError, match="is a file, name a directory"):
        SyncLockFileOffsetStore(tmp_path / "file" / "offsets", Lance("client"))


def test_a_file_holds_the_offset_as_a_line_of_text(
    store: SyncLockFileOffsetStore, folder: Path
) -> None:
    """`topic-{topic_id}-consumer-{consumer_id}.offset` holds a decimal number and a newline."""
    store.save(KEY, 12345)
    assert (folder / DATA).read_bytes() == b"12345\n"


def test_a_lock_file_lies_beside_it(store: SyncLockFileOffsetStore, folder: Path) -> None:
    """`topic-{topic_id}-consumer-{consumer_id}.lock` is the file that is locked."""
    store.save(KEY, 1)
    assert sorted(path.name for path in folder.iterdir()) == [LOCK, DATA]


def test_files_of_the_other_client_are_read(store: SyncLockFileOffsetStore, folder: Path) -> None:
    """Files that are there when a store is opened are loaded; space around a number is ignored."""
    folder.mkdir()
    (folder / DATA).write_bytes(b" 99999 \n")
    assert store.load(KEY) == 99999
    assert store.list_all() == {KEY: 99999}


def test_offsets_outlive_the_store(store: SyncLockFileOffsetStore, tmp_path: Path) -> None:
    """What was saved is there when the store is opened again."""
    store.save(KEY, 99999)
    store.close()
    assert SyncLockFileOffsetStore(tmp_path, Lance("client")).load(KEY) == 99999


def test_names_are_separate_stores(store: SyncLockFileOffsetStore, tmp_path: Path) -> None:
    """Each consumer name has a directory of its own."""
    store.save(KEY, 5)
    assert SyncLockFileOffsetStore(tmp_path, Lance("another")).list_all() == {}


def test_a_name_cannot_lead_out_of_the_directory() -> None:
    """The name is a directory below the base directory.

    Differs: a name that would lead elsewhere is refused; LANCE joins it as it is.
    """
    for name in ("", "..", "a/b"):
        with pytest.raises(ValueError, match="valid directory name"):
            Lance(name)


def test_other_files_in_the_directory_are_passed_over(
    store: SyncLockFileOffsetStore, folder: Path
) -> None:
    """A file whose name is not of the pattern is no offset: `invalid.offset`, an id of letters."""
    store.save(KEY, 5)
    for name in ("invalid.offset", "topic-abc-consumer-100.offset", "notes.txt"):
        (folder / name).write_text("1\n")
    assert store.list_all() == {KEY: 5}


def test_a_name_with_something_behind_the_ids_is_no_offset(
    store: SyncLockFileOffsetStore, folder: Path
) -> None:
    """File names are taken apart at their dashes.

    Differs: the whole name must match. LANCE ignores what follows the ids, so that two files could
    hold the same offset.
    """
    store.save(KEY, 5)
    (folder / "topic-1-consumer-2-old.offset").write_text("1\n")
    assert store.list_all() == {KEY: 5}


def test_ids_are_numbers_of_32_and_64_bits(store: SyncLockFileOffsetStore, folder: Path) -> None:
    """`topic_id` is a `u32`, `consumer_id` a `u64`: larger ones are refused, and no offset."""
    largest = OffsetKey(consumer=str(2**64 - 1), stream=str(2**32 - 1))
    store.save(largest, 1)
    assert store.load(largest) == 1
    for key in (OffsetKey("1", str(2**32)), OffsetKey(str(2**64), "1"), OffsetKey("a", "1")):
        with pytest.raises(ValueError, match="does not fit the LANCE layout"):
            store.save(key, 1)
    (folder / f"topic-{2**32}-consumer-1.offset").write_text("1\n")
    assert store.list_all() == {largest: 1}


def test_what_another_process_saves_is_seen_at_once(
    store: SyncLockFileOffsetStore, folder: Path
) -> None:
    """`load` and `list_all` answer from a cache that is filled when the store is opened.

    Differs: there is no cache, because another process may have saved, deleted or added since.
    """
    store.save(KEY, 5)
    (folder / DATA).write_bytes(b"6\n")
    (folder / "topic-2-consumer-100.offset").write_bytes(b"1\n")
    assert store.load(KEY) == 6
    assert store.list_all() == {KEY: 6, OffsetKey("100", "2"): 1}
    (folder / DATA).unlink()
    assert store.load(KEY) is None


def test_a_save_replaces_the_file_in_one_step(store: SyncLockFileOffsetStore) -> None:
    """The offset is written to a temporary file and renamed: a reader sees the old or the new."""
    store.save(KEY, 10**6)
    seen: set[int | None] = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.add(store.load(KEY))

    reader = threading.Thread(target=read)
    reader.start()
    for position in range(10**6 + 1, 10**6 + 40):
        store.save(KEY, position)
    done.set()
    reader.join()
    assert seen <= set(range(10**6, 10**6 + 40))


def test_a_temporary_file_that_was_left_behind_is_no_offset(
    store: SyncLockFileOffsetStore, folder: Path
) -> None:
    """The `.offset.tmp` of a process that died does not count, and the next save replaces it."""
    folder.mkdir()
    left = folder / f"{DATA}.tmp"
    left.write_text("77")
    assert (store.load(KEY), store.list_all()) == (None, {})
    store.save(KEY, 5)
    assert (store.load(KEY), left.exists()) == (5, False)


def test_the_data_is_synced_before_it_replaces_the_old(
    store: SyncLockFileOffsetStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The temporary file is synced before it is renamed.

    Differs: the directory is synced afterwards as well, or a power cut could undo the rename.
    """
    store.save(KEY, 1)
    calls: list[str] = []

    def watch(name: str, said: str) -> None:
        real: Callable[..., object] = getattr(os, name)

        def watched(*given: object, **options: object) -> object:
            calls.append(said)
            return real(*given, **options)

        monkeypatch.setattr(os, name, watched)

    watch("fsync", "sync")
    watch("replace", "rename")
    store.save(KEY, 2)
    assert calls == ["sync", "rename", "sync"]


def test_a_save_waits_for_the_lock_of_another_process(
    store: SyncLockFileOffsetStore, folder: Path
) -> None:
    """The lock file is locked with `flock` for each save, so that processes take turns."""
    store.save(KEY, 1)
    with (folder / LOCK).open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        saver = threading.Thread(target=store.save, args=(KEY, 2))
        saver.start()
        saver.join(0.2)
        assert saver.is_alive()
        assert store.load(KEY) == 1
        fcntl.flock(held, fcntl.LOCK_UN)
        saver.join(PATIENCE)
    assert store.load(KEY) == 2


def test_a_lock_that_is_not_released_is_an_error(tmp_path: Path, folder: Path) -> None:
    """A save waits for its lock for as long as it takes.

    Differs: after `lock_timeout`, 10 seconds by default, it raises `OffsetLockTimeout`.
    """
    store = SyncLockFileOffsetStore(tmp_path, Lance("client"), lock_timeout=0.05)
    store.save(KEY, 1)
    with (folder / LOCK).open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(OffsetLockTimeout):
            store.save(KEY, 2)
    assert store.load(KEY) == 1


def test_processes_lose_no_save(store: SyncLockFileOffsetStore, tmp_path: Path) -> None:
    """Concurrent access from several processes is safe: of two that count up, none is lost."""
    each = 20
    command = [sys.executable, "-c", SAVER, str(tmp_path), str(each)]
    others = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)
    ]
    for one in others:
        assert one.stdout is not None
        assert one.stdout.readline() == b"ready\n"
    for one in others:
        assert one.stdin is not None
        one.stdin.write(b"\n")
        one.stdin.flush()
    assert [one.wait(PATIENCE) for one in others] == [0, 0]
    for one in others:
        one.communicate()
    assert store.load(KEY) == 2 * each


def test_a_deleted_offset_has_no_file(store: SyncLockFileOffsetStore, folder: Path) -> None:
    """`delete` removes the file.

    Differs: the lock file stays. LANCE removes it, and then two processes can hold the lock: one
    the file that was removed, the other a new one.
    """
    store.save(KEY, 1)
    assert store.delete(KEY)
    assert sorted(path.name for path in folder.iterdir()) == [LOCK]
    assert not store.delete(KEY)


def test_a_lock_file_that_the_other_client_removed_has_one_holder(
    store: SyncLockFileOffsetStore, folder: Path
) -> None:
    """The lock is that of the file which has the name now.

    Differs: after it was granted, the lock is compared with the path; it is taken again if LANCE's
    `delete` has removed the file meanwhile.
    """
    store.save(KEY, 1)
    with (folder / LOCK).open() as removed:
        fcntl.flock(removed, fcntl.LOCK_EX)
        saver = threading.Thread(target=store.save, args=(KEY, 2))
        saver.start()
        saver.join(0.1)
        (folder / LOCK).unlink()
        with (folder / LOCK).open("w") as current:
            fcntl.flock(current, fcntl.LOCK_EX)
            fcntl.flock(removed, fcntl.LOCK_UN)
            saver.join(0.3)
            assert saver.is_alive()
        saver.join(PATIENCE)
    assert store.load(KEY) == 2


@pytest.mark.parametrize("content", [b"", b"abc\n", b"-1\n", b"1 2\n", b"\0\0\0", b"1.5\n"])
def test_a_damaged_file_is_an_error(
    store: SyncLockFileOffsetStore, folder: Path, content: bytes
) -> None:
    """A file that holds no number is an error of `load`.

    Differs: also of `list_all`, and of the first load. LANCE passes over it when a store is opened,
    and whoever then starts without an offset reads everything again.
    """
    folder.mkdir()
    (folder / DATA).write_bytes(content)
    with pytest.raises(OffsetCorrupt, match=DATA):
        store.load(KEY)
    with pytest.raises(OffsetCorrupt):
        store.list_all()
    with pytest.raises(OffsetCorrupt):
        store.save(KEY, 1)
    assert (folder / DATA).read_bytes() == content


def test_a_damaged_file_can_be_set_aside(tmp_path: Path, folder: Path) -> None:
    """A damaged file is skipped.

    Differs: only with `on_corrupt="quarantine"`; the file is kept under another name.
    """
    folder.mkdir()
    (folder / DATA).write_bytes(b"abc")
    store = SyncLockFileOffsetStore(tmp_path, Lance("client"), on_corrupt="quarantine")
    assert store.load(KEY) is None
    [evidence] = folder.glob("*.corrupt-*")
    assert evidence.read_bytes() == b"abc"


def test_input_and_output_errors_are_reported(store: SyncLockFileOffsetStore, folder: Path) -> None:
    """What the file system refuses is an error, and the old offset stays."""
    store.save(KEY, 1)
    (folder / DATA).unlink()
    (folder / DATA).mkdir()
    with pytest.raises(OffsetStoreError):
        store.load(KEY)
    with pytest.raises(OffsetStoreError):
        store.save(KEY, 2)


def test_the_base_directory_and_the_name_can_be_asked_for(
    store: SyncLockFileOffsetStore, tmp_path: Path
) -> None:
    """`base_dir` and `consumer_name` return what the store was opened with.

    Differs: `base_dir` is the directory that was given; LANCE returns the one of the name below it.
    The name is that of the layout.
    """
    assert store.base_dir == tmp_path
    assert isinstance(store.layout, Lance)
    assert store.layout.name == "client"


def test_without_ids_any_names_are_stored(tmp_path: Path) -> None:
    """Topics and consumers are numbers.

    Differs: in the default layout they are names of any characters, with a shard.
    """
    store = SyncLockFileOffsetStore(tmp_path)
    for key in (OffsetKey("../billing", "orders/€", 3), OffsetKey("Billing", "A"), KEY):
        store.save(key, 7)
        assert store.load(key) == 7
    assert len(store.list_all()) == 3


def test_a_store_can_be_held_by_one_consumer(tmp_path: Path) -> None:
    """A consumer name is for one instance.

    Differs: with `exclusive=True` a second one is refused, with `OffsetLockTimeout`.
    """
    with SyncLockFileOffsetStore(tmp_path, Lance("client"), exclusive=True) as first:
        first.save(KEY, 1)
        second = SyncLockFileOffsetStore(
            tmp_path, Lance("client"), exclusive=True, lock_timeout=0.05
        )
        with pytest.raises(OffsetLockTimeout):
            second.load(KEY)
    assert second.load(KEY) == 1
    second.close()


def test_a_conflict_between_processes_is_reported(tmp_path: Path) -> None:
    """Locks keep saves of one offset apart.

    Differs: `expected` is compared under that lock, so that of two stores that have read the same
    offset only one saves.
    """
    one, two = (SyncLockFileOffsetStore(tmp_path, Lance("client")) for _ in range(2))
    assert one.load(KEY) is two.load(KEY) is None
    one.save(KEY, 5, expected=None)
    with pytest.raises(OffsetConflict):
        two.save(KEY, 6, expected=None)
