"""What an embedded broker says of arguments and uses that are wrong: errors of ours, a sentence."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from ottla import EmbeddedBroker, errors
from ottla.log.directory import hold_lock

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("arguments", "kind", "says"),
    [
        ({"config": {"nosuch": "1"}}, errors.UnknownConfig, "unknown configuration key in config"),
        ({"config": {"log.segment.bytes": "x"}}, errors.InvalidConfig, "in log.segment.bytes"),
        ({"config": 3}, errors.WrongType, "config: expected values by key"),
        ({"data_dir": 3}, errors.WrongType, "data_dir: expected a path"),
    ],
)
def test_a_wrong_argument(
    arguments: dict[str, Any], kind: type[errors.OttlaError], says: str
) -> None:
    with pytest.raises(kind, match=says) as told:
        EmbeddedBroker(**arguments)
    assert isinstance(told.value, errors.OttlaError)


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(errors.CannotOpenDirectory, match="give a directory"):
        EmbeddedBroker(tmp_path / "file" / "x").start()


def test_outside_of_its_block() -> None:
    broker = EmbeddedBroker()
    for _ in "before", "after":
        with pytest.raises(errors.BrokerNotRunning, match="with block"):
            broker.create_topic("t")
        with pytest.raises(errors.BrokerNotRunning, match="with block"):
            _ = broker.bootstrap
        with broker:
            broker.create_topic("t")


@pytest.mark.parametrize("nodes", [1, 2])
def test_what_a_supervisor_has_although_none_of_its_nodes_runs(tmp_path: Path, nodes: int) -> None:
    supervisor = hold_lock(tmp_path / ".supervisor.lock", "the directory")
    with pytest.raises(errors.DirectoryLocked, match=f"in use by process {os.getpid()}"):
        EmbeddedBroker(tmp_path, nodes=nodes).start()
    os.close(supervisor)
    with EmbeddedBroker(tmp_path, nodes=nodes) as broker:
        broker.create_topic("t")


def test_what_another_broker_has(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as first:
        with pytest.raises(errors.DirectoryLocked, match="in use by process"):
            EmbeddedBroker(tmp_path).start()
        with pytest.raises(errors.CannotListen, match="port 0 picks one"):
            EmbeddedBroker(port=int(first.bootstrap.partition(":")[2])).start()
