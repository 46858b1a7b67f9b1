"""The data directory: lock, identity, names."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from ottla.log.checkpoints import MetaProperties, TopicPartition
from ottla.log.directory import (
    STRAY_SUFFIX,
    DataDirectory,
    DirectoryLocked,
    PartitionDirectory,
    parse_partition_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPIC_ID = UUID(int=5)
UNIQUE = UUID(int=0xABC)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[DataDirectory]:
    directory = DataDirectory(tmp_path / "data")
    yield directory
    directory.close()


def test_a_second_holder_is_told_who_the_first_is(directory: DataDirectory) -> None:
    with pytest.raises(DirectoryLocked, match=f"in use by process {os.getpid()}"):
        DataDirectory(directory.path)


def test_the_lock_ends_with_its_holder(tmp_path: Path) -> None:
    script = "import sys, pathlib; from ottla.log.directory import DataDirectory\n"
    script += "DataDirectory(pathlib.Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)
    DataDirectory(tmp_path).close()
    DataDirectory(tmp_path).close()


def test_identity(directory: DataDirectory) -> None:
    assert directory.meta() is None
    meta = MetaProperties("some-cluster", 1, UUID(int=9))
    directory.write_meta(meta)
    assert directory.meta() == meta


def test_partitions(directory: DataDirectory) -> None:
    orders = directory.create_partition("orders", 3, TOPIC_ID)
    dashed = directory.create_partition("a-1.b", 0, TOPIC_ID)
    (directory.path / "old-0").mkdir()
    (directory.path / "file-0").touch()
    (directory.path / "lost+found").mkdir()
    assert directory.partitions() == [
        PartitionDirectory(TopicPartition("a-1.b", 0), dashed, TOPIC_ID),
        PartitionDirectory(TopicPartition("old", 0), directory.path / "old-0", None),
        PartitionDirectory(TopicPartition("orders", 3), orders, TOPIC_ID),
    ]


@pytest.mark.parametrize(
    "name",
    ["", "orders", "orders-", "-0", "orders-01", "orders-x", "..-0", "a/b-0", "t-99999999999"],
)
def test_names_that_are_no_partitions(name: str, directory: DataDirectory) -> None:
    assert parse_partition_name(name) is None
    topic, _, partition = name.rpartition("-")
    if partition.isdecimal() and str(int(partition)) == partition:
        with pytest.raises(ValueError, match="cannot name"):
            directory.create_partition(topic, int(partition), TOPIC_ID)


def test_deleted_partitions_go_with_the_purge(directory: DataDirectory) -> None:
    path = directory.create_partition("orders", 3, TOPIC_ID)
    (path / "00.log").write_bytes(b"x")
    target = directory.retire(path, UNIQUE)
    assert target.name == f"orders-3.{UNIQUE.hex}-delete"
    assert directory.partitions() == []
    assert directory.purge() == [target.name]
    assert not target.exists()
    assert directory.purge() == []


def test_a_deleted_partition_with_a_subdirectory_goes_too(directory: DataDirectory) -> None:
    path = directory.create_partition("orders", 3, TOPIC_ID)
    (path / "lost+found").mkdir()
    (path / "lost+found" / "x").write_bytes(b"x")
    target = directory.retire(path, UNIQUE)
    directory.purge()
    assert not target.exists()


def test_one_that_cannot_be_removed_does_not_keep_the_others(
    directory: DataDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    stuck, other = (
        directory.retire(directory.create_partition("t", number, TOPIC_ID), UNIQUE)
        for number in range(2)
    )
    stuck.rename(stuck.with_name("elsewhere"))
    stuck.touch()  # no directory: what a purge of directories cannot remove
    directory.purge()
    assert not other.exists()
    assert f"{stuck.name} cannot be removed yet" in caplog.text


def test_strays_stay(directory: DataDirectory) -> None:
    target = directory.retire(
        directory.create_partition("orders", 3, TOPIC_ID), UNIQUE, STRAY_SUFFIX
    )
    assert directory.purge() == []
    assert target.exists()
    assert directory.partitions() == []


def test_long_names_are_cut_to_what_a_file_system_takes(directory: DataDirectory) -> None:
    path = directory.create_partition("t" * 249, 0, TOPIC_ID)
    target = directory.retire(path, UNIQUE)
    assert len(target.name) == 255
    assert directory.purge() == [target.name]
