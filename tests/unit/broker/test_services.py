"""The registry of services: what handlers ask for exists, and order holds when one fails."""

from __future__ import annotations

import ast
import inspect
import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ottla.broker.running.node import Node
from ottla.broker.running.services import Lazy, Services
from ottla.broker.serving.apis import SERVED, handler_of, services_of
from ottla.broker.topics import create_topic
from ottla.metadata.config.broker import load_broker_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ottla.metadata.image import MetadataImage


def declared() -> dict[str, str]:
    """Service by service, the type as `Services` writes it down."""
    tree = ast.parse(inspect.getsource(Services))
    return {
        node.target.attr: ast.unparse(node.annotation)
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute)
    }


@pytest.mark.parametrize("api_key", SERVED)
def test_handlers_ask_for_services_that_there_are(api_key: int) -> None:
    """The dispatcher looks services up by name, where mypy does not see it."""
    handler = handler_of(api_key)
    parameters = inspect.signature(handler).parameters
    asked = {name: parameters[name].annotation for name in services_of(handler)}
    assert asked == {name: declared()[name] for name in asked}


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
