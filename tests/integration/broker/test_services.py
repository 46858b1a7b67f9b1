"""The registry of services of a running node."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ottla.broker.running.node import Node
from ottla.broker.running.services import Lazy
from ottla.broker.topics import create_topic
from ottla.metadata.config.broker import load_broker_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ottla.metadata.image import MetadataImage


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    config = load_broker_config(sets=["listeners=PLAINTEXT://127.0.0.1:0"])
    node = await Node.start(config, tmp_path, ephemeral=True)
    yield node
    await node.stop()


def lazies(node: Node) -> dict[str, Lazy[Any]]:
    return {name: one for name, one in vars(node.services).items() if isinstance(one, Lazy)}


async def test_a_service_is_made_once_and_only_when_asked_for(node: Node) -> None:
    await create_topic(node.cluster, "orders")
    assert {name for name, one in lazies(node).items() if one.made is not None} == set()
    assert node.services.groups() is node.services.groups()
    assert {name for name, one in lazies(node).items() if one.made is not None} == {"groups"}


async def test_a_service_that_fails_does_not_keep_others_from_following(
    node: Node, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Coordinators are told before the logs: their failure must not leave a deleted log open."""
    told: list[str] = []

    def fail(*_: object) -> None:
        told.append("groups")
        raise RuntimeError("a fault of the groups")

    async def stop() -> None:
        told.append("stopped")

    monkeypatch.setattr(
        node.services.groups, "made", SimpleNamespace(image_changed=fail, stop=stop)
    )
    follow = node.partitions.image_changed

    def noted(before: MetadataImage, after: MetadataImage) -> None:
        told.append("logs")
        follow(before, after)

    monkeypatch.setattr(node.partitions, "image_changed", noted)
    with caplog.at_level(logging.ERROR):
        await create_topic(node.cluster, "orders")
    assert told == ["groups", "logs"]
    assert "a fault of the groups" in caplog.text
