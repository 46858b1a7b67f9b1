"""Directories of several nodes: a partition's is in one place, whoever dies when."""

from __future__ import annotations

import os
import random
import threading
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from ottla.broker.membership.places import Places, node_path, node_paths
from ottla.cluster.handover import NOTE, Note
from ottla.log.checkpoints import TopicPartition
from ottla.log.directory import DataDirectory
from ottla.log.os_storage import OsStorage
from tests.support.dying_storage import DyingStorage, Killed

if TYPE_CHECKING:
    from pathlib import Path

NAME = TopicPartition("orders", 0)
ID = UUID(int=7)
OTHER_ID = UUID(int=8)
NOTED = Note(ID, 3, 10, 10, 4, 2, clean=True)
RELEASE = ["write", "sync", "rename", "sync directory"]  # the note
RELEASE += ["rename", "sync directory", "sync directory"]


def places(root: Path, node_id: int, storage: OsStorage | None = None) -> Places:
    storage = storage or OsStorage()
    node_path(root, node_id).mkdir(exist_ok=True)
    return Places(root, node_id, storage)


def make(root: Path, node_id: int, topic_id: UUID = ID) -> Path:
    directory = DataDirectory(node_path(root, node_id))
    try:
        assert not directory.create_partitions({NAME: topic_id})
        path = directory.path_of(NAME)
    finally:
        directory.close()
    (path / "00000000000000000000.log").write_bytes(b"records")
    return path


def everywhere(root: Path) -> list[Path]:
    """All directories of the partition below the root."""
    return sorted(
        path
        for parent in (*node_paths(root).values(), root / "handover")
        for path in parent.glob("orders-0*")
    )


def test_a_release_and_an_adoption_keep_the_files(tmp_path: Path) -> None:
    first, second = places(tmp_path, 1), places(tmp_path, 2)
    segment = make(tmp_path, 1) / "00000000000000000000.log"
    inode = segment.stat().st_ino
    assert not first.release(first.own, {NAME: NOTED})
    assert [*first.on_their_way()] == [(ID, 0)]
    assert second.seek({NAME: ID}).adopted == {NAME: NOTED}
    assert everywhere(tmp_path) == [tmp_path / "node.2" / "orders-0"]
    found = tmp_path / "node.2" / "orders-0" / segment.name
    assert (found.stat().st_ino, found.read_bytes()) == (inode, b"records")
    assert second.seek({NAME: ID}) == ({}, {}, {})  # it is not another node's


def test_a_sibling_that_has_it_is_named(tmp_path: Path) -> None:
    second = places(tmp_path, 2)
    make(tmp_path, 1)
    assert second.seek({NAME: ID}) == ({}, {NAME: 1}, {})


def test_one_of_a_deleted_topic_of_that_name_is_not_it(tmp_path: Path) -> None:
    second = places(tmp_path, 2)
    make(tmp_path, 1, OTHER_ID)
    assert second.seek({NAME: ID}) == ({}, {}, {})


def test_one_without_an_id_may_be_it(tmp_path: Path) -> None:
    """A crash came between the directory and its `partition.metadata`."""
    second = places(tmp_path, 2)
    (tmp_path / "orders-0").mkdir()
    assert second.seek({NAME: ID}) == ({}, {NAME: 1}, {})


def test_one_without_a_note_is_not_adopted(tmp_path: Path) -> None:
    first, second = places(tmp_path, 1), places(tmp_path, 2)
    make(tmp_path, 1)
    first.release(first.own, {NAME: NOTED})
    (entry,) = everywhere(tmp_path)
    (entry / NOTE).write_bytes(b"{}")
    assert "format" in second.seek({NAME: ID}).damaged[NAME]
    (entry / NOTE).unlink()
    assert NOTE in second.seek({NAME: ID}).damaged[NAME]
    assert everywhere(tmp_path) == [entry]


@pytest.mark.parametrize("where", ["sibling", "handover"])
def test_case_12_no_empty_log_beside_one_that_exists(tmp_path: Path, where: str) -> None:
    first, second = places(tmp_path, 1), places(tmp_path, 2)
    make(tmp_path, 1)
    if where == "handover":
        first.release(first.own, {NAME: NOTED})
    directory = DataDirectory(second.own)
    try:
        new = TopicPartition("orders", 1)
        assert second.create(directory, {NAME: ID, new: ID}) == ({}, [NAME])
        assert second.create(directory, {new: ID}) == ({}, [])
    finally:
        directory.close()
    assert [path.name for path in second.own.iterdir() if path.is_dir()] == ["orders-1"]


def test_a_topic_named_as_a_node_is_no_node(tmp_path: Path) -> None:
    places(tmp_path, 2)
    (tmp_path / "node-3").mkdir()  # partition 3 of a topic `node`
    assert node_paths(tmp_path) == {1: tmp_path, 2: tmp_path / "node.2"}


def test_a_long_name_fits(tmp_path: Path) -> None:
    name = TopicPartition("t" * 249, 1000)
    first, second = places(tmp_path, 1), places(tmp_path, 2)
    directory = DataDirectory(tmp_path)
    assert not directory.create_partitions({name: ID})
    directory.close()
    assert not first.release(first.own, {name: NOTED})
    assert second.seek({name: ID}).adopted == {name: NOTED}


@pytest.mark.parametrize("step", range(len(RELEASE)))
def test_case_10_the_old_leader_dies_at_each_point(tmp_path: Path, step: int) -> None:
    make(tmp_path, 1)
    second = places(tmp_path, 2)
    storage = DyingStorage(step)
    dying = places(tmp_path, 1, storage)
    with pytest.raises(Killed):
        dying.release(dying.own, {NAME: NOTED})
    assert storage.calls == RELEASE[:step]
    (left,) = everywhere(tmp_path)
    if left.parent == tmp_path:  # its next start releases it
        again = places(tmp_path, 1)
        assert not again.release(again.own, {NAME: NOTED})
    assert second.seek({NAME: ID}).adopted == {NAME: NOTED}
    assert everywhere(tmp_path) == [tmp_path / "node.2" / "orders-0"]


def test_the_points_of_a_release_are_all(tmp_path: Path) -> None:
    make(tmp_path, 1)
    storage = DyingStorage()
    first = places(tmp_path, 1, storage)
    first.release(first.own, {NAME: NOTED})
    assert storage.calls == RELEASE


@pytest.mark.parametrize("step", range(3))
def test_case_11_the_new_leader_dies_at_each_point(tmp_path: Path, step: int) -> None:
    make(tmp_path, 1)
    first = places(tmp_path, 1)
    first.release(first.own, {NAME: NOTED})
    storage = DyingStorage(step)
    dying = places(tmp_path, 2, storage)
    with pytest.raises(Killed):
        dying.seek({NAME: ID})
    (left,) = everywhere(tmp_path)
    assert left.parent == tmp_path / ("node.2" if step else "handover")
    assert (left / NOTE).read_bytes() == NOTED.encode()  # its next start reads the offsets there
    if not step:
        assert places(tmp_path, 2).seek({NAME: ID}).adopted == {NAME: NOTED}


def test_case_12_nodes_that_move_and_make_at_once_keep_one(tmp_path: Path) -> None:
    """Each node in its thread adopts, makes or releases; there is never a second directory."""
    seed = random.randrange(1 << 30)
    rounds = 150
    failures: list[str] = []

    def run(node_id: int) -> None:
        chance = random.Random(seed + node_id)
        own = places(tmp_path, node_id)
        path = own.own / "orders-0"
        directory = DataDirectory(own.own)
        try:
            for _ in range(rounds):
                if path.is_dir():
                    if own.release(own.own, {NAME: NOTED}):
                        failures.append("a release failed")
                elif chance.random() < 0.5:
                    own.seek({NAME: ID})
                else:
                    own.create(directory, {NAME: ID})
                with own._moves(2):  # exclusively
                    found = everywhere(tmp_path)
                if len(found) > 1:
                    failures.append(f"seed {seed}: {found}")
        finally:
            directory.close()

    threads = [threading.Thread(target=run, args=(node_id,)) for node_id in (1, 2, 3)]
    for node_id in (1, 2, 3):
        os.makedirs(node_path(tmp_path, node_id), exist_ok=True)  # noqa: PTH103
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(everywhere(tmp_path)) == 1
