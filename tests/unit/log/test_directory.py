"""The data directory: lock, identity, names."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from ottla.log.checkpoints import MetaProperties, TopicPartition
from ottla.log.directory import (
    DELETE_SUFFIX,
    STRAY_SUFFIX,
    DataDirectory,
    DirectoryLocked,
    parse_partition_name,
)
from ottla.log.os_storage import OsStorage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ottla.log.storage import Directory, Entry

TOPIC_ID = UUID(int=5)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[DataDirectory]:
    directory = DataDirectory(tmp_path / "data")
    yield directory
    directory.close()


def test_a_second_holder_is_told_who_the_first_is(directory: DataDirectory) -> None:
    with pytest.raises(DirectoryLocked, match=f"in use by process {os.getpid()}"):
        DataDirectory(directory.path)


def test_a_closed_directory_names_nobody(tmp_path: Path) -> None:
    """Fault: `kill_node` of one that others had taken over from killed the one that did."""
    directory = DataDirectory(tmp_path / "data")
    lock = tmp_path / "data" / ".lock"
    assert int(lock.read_text()) == os.getpid()
    size = lock.stat().st_size
    directory.close()
    assert lock.read_text().strip() == ""
    assert lock.stat().st_size == size, "on a full disk there would be no block for it"


def test_a_second_close_leaves_the_files_of_others(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    number, other = directory._lock_fd, os.open(tmp_path, os.O_RDONLY)
    directory.close()
    os.dup2(other, number)
    directory.close()
    os.close(number)  # it was still open
    os.close(other)


def test_identity(directory: DataDirectory) -> None:
    assert directory.meta() is None
    meta = MetaProperties("some-cluster", 1, UUID(int=9))
    directory.write_meta(meta)
    assert directory.meta() == meta


def test_partitions(directory: DataDirectory) -> None:
    orders, dashed = TopicPartition("orders", 3), TopicPartition("a-1.b", 0)
    assert not directory.create_partitions({orders: TOPIC_ID, dashed: TOPIC_ID})
    (directory.path / "old-0").mkdir()
    (directory.path / "file-0").touch()
    (directory.path / "lost+found").mkdir()
    old = TopicPartition("old", 0)
    assert directory.partitions() == [dashed, old, orders]
    assert [directory.topic_id(name) for name in (dashed, old)] == [TOPIC_ID, None]


@pytest.mark.parametrize(
    "name",
    ["", "orders", "orders-", "-0", "orders-01", "orders-x", "..-0", "a/b-0", "t-99999999999"],
)
def test_names_that_are_no_partitions(name: str, directory: DataDirectory) -> None:
    assert parse_partition_name(name) is None
    topic, _, partition = name.rpartition("-")
    if partition.isdecimal() and str(int(partition)) == partition:
        with pytest.raises(ValueError, match="cannot name"):
            directory.create_partitions({TopicPartition(topic, int(partition)): TOPIC_ID})


def created(directory: DataDirectory, name: TopicPartition) -> Path:
    assert not directory.create_partitions({name: TOPIC_ID})
    return directory.path_of(name)


def retired(directory: DataDirectory, name: TopicPartition, suffix: str = DELETE_SUFFIX) -> Path:
    (target,) = directory.retire([name], suffix).values()
    assert not isinstance(target, OSError)
    return target


class SomeFail(OsStorage):
    """Everything about one partition fails; syncs of directories are counted."""

    def __init__(self, part: str) -> None:
        self.part = part
        self.synced: list[Path | Directory] = []

    def mkdir(self, path: Path) -> None:
        if self.part in path.name:
            raise OSError("no room")
        super().mkdir(path)

    def rename(self, source: Path | Entry, target: Path | Entry) -> None:
        if self.part in source.name:
            raise OSError("no way")
        super().rename(source, target)

    def fsync_dir(self, path: Path | Directory) -> None:
        self.synced.append(path)
        super().fsync_dir(path)


def test_many_are_made_and_retired_with_one_sync_and_fail_alone(tmp_path: Path) -> None:
    storage = SomeFail("orders-7")
    directory = DataDirectory(tmp_path, storage)
    names = [TopicPartition("orders", index) for index in range(20)]
    assert directory.create_partitions(dict.fromkeys(names, TOPIC_ID)) == {names[7]: "no room"}
    assert storage.synced == [tmp_path]
    (tmp_path / "orders-7").mkdir()
    absent = TopicPartition("orders", 99)
    answer = directory.retire([*names, absent])
    assert set(answer) == set(names)
    assert [name for name in names if isinstance(answer[name], OSError)] == [names[7]]
    assert storage.synced == [tmp_path, tmp_path]
    assert directory.partitions() == [names[7]]
    directory.close()


def test_deleted_partitions_go_with_the_purge(directory: DataDirectory) -> None:
    orders = TopicPartition("orders", 3)
    (created(directory, orders) / "00.log").write_bytes(b"x")
    target = retired(directory, orders)
    assert re.fullmatch(r"orders-3\.[0-9a-f]{32}-delete", target.name)
    assert directory.partitions() == []
    assert directory.purge() == [target.name]
    assert not target.exists()
    assert directory.purge() == []


def test_a_purge_removes_what_others_put_into_a_directory(directory: DataDirectory) -> None:
    """A directory inside ended the start with an error."""
    orders = TopicPartition("orders", 3)
    inside = created(directory, orders) / "backup" / "old"
    inside.mkdir(parents=True)
    (inside / "00.log").write_bytes(b"x")
    outside = directory.path / "kept"
    outside.mkdir()
    (outside / "file").touch()
    (inside / "link").symlink_to(outside)
    target = retired(directory, orders)
    assert directory.purge() == [target.name]
    assert not target.exists()
    assert (outside / "file").exists()


def test_one_that_cannot_be_removed_does_not_keep_the_others(
    directory: DataDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    names = [TopicPartition("t", number) for number in range(2)]
    for name in names:
        created(directory, name)
    stuck, other = (retired(directory, name) for name in names)
    stuck.rename(stuck.with_name("elsewhere"))
    stuck.touch()  # no directory: what a purge of directories cannot remove
    directory.purge()
    assert not other.exists()
    assert f"{stuck.name} cannot be removed yet" in caplog.text


def test_strays_stay(directory: DataDirectory) -> None:
    orders = TopicPartition("orders", 3)
    created(directory, orders)
    target = retired(directory, orders, STRAY_SUFFIX)
    assert directory.purge() == []
    assert target.exists()
    assert directory.partitions() == []


def test_long_names_are_cut_to_what_a_file_system_takes(directory: DataDirectory) -> None:
    long = TopicPartition("t" * 249, 0)
    created(directory, long)
    target = retired(directory, long)
    assert len(target.name) == 255
    assert directory.purge() == [target.name]
