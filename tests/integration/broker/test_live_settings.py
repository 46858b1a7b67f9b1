"""Broker settings that can be altered while the broker runs: each is followed by somebody."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import ottla.broker.tiering
from ottla.broker.hosting.cleaner import Cleaner
from ottla.broker.running.node import Node
from ottla.broker.running.settings import LIVE, Settings
from ottla.broker.topics import create_topic
from ottla.cluster.placement import DRAIN_KEY
from ottla.log.config import LogConfig
from ottla.metadata.changes.configs import SetConfigs
from ottla.metadata.config.broker import load_broker_config
from ottla.metadata.config.broker_keys import BROKER_CONFIGS
from ottla.metadata.config.types import Between, ConfigType, EachOf, OneOf
from ottla.metadata.config.values import TOPIC_CONFIGS, resolve_topic_config
from ottla.metadata.errors import InvalidConfig
from ottla.metadata.image import MetadataImage, ResourceType
from tests.support.log_batches import batch_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ottla.metadata.config.types import ConfigDef

PATIENCE: Final = 30
HOUR_MS: Final = 3_600_000
DYNAMIC: Final = {key for key, definition in BROKER_CONFIGS.items() if definition.dynamic}
OF_TOPICS: Final = {
    synonym.key: topic_key
    for topic_key, definition in TOPIC_CONFIGS.items()
    for synonym in definition.synonyms
}


def of_tier() -> set[str]:
    """The keys that tiered storage asks for as they are at the moment."""
    found: set[str] = set()
    for path in Path(ottla.broker.tiering.__path__[0]).glob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            match call:
                case ast.Call(
                    func=ast.Attribute(attr="setting" | "_pool"),
                    args=[ast.Constant(value=str() as key), *_],
                ):
                    found.add(key)
    return found


def another_value(definition: ConfigDef) -> str:
    """A valid value that is not the default."""
    rule, default = definition.rule, definition.default
    match rule:
        case OneOf(choices) | EachOf(choices):
            return next(choice for choice in choices if choice != default)
        case Between(low, high):
            return str(high if default == str(low) else low)
    if definition.type is ConfigType.BOOLEAN:
        return "true" if default == "false" else "false"
    return "7654321"


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    sets = ["listeners=PLAINTEXT://127.0.0.1:0", f"log.cleaner.backoff.ms={HOUR_MS}"]
    node = await Node.start(load_broker_config(sets=sets), tmp_path, ephemeral=True)
    yield node
    await node.stop()


async def alter(node: Node, key: str, value: str | None) -> None:
    await node.cluster.change(SetConfigs(ResourceType.BROKER, "", {key: value}))


def values_of(settings: Settings) -> dict[str, Any]:
    return {name: value for name, value in vars(settings).items() if not name.startswith("_")}


def test_every_live_key_has_a_follower() -> None:
    followed = LIVE | OF_TOPICS.keys() | of_tier() | {DRAIN_KEY}  # the last by `decide_balance`
    assert DYNAMIC - followed == set(), "live, and nobody acts on a change"
    fixed = {key for key in LIVE | of_tier() if not BROKER_CONFIGS[key].dynamic}
    assert fixed == set(), "read again, though clients are told that they cannot be altered"


@pytest.mark.parametrize("key", sorted(LIVE))
async def test_a_live_setting_is_read_again(node: Node, key: str) -> None:
    before = values_of(node.settings)
    await alter(node, key, "1234")
    after = values_of(node.settings)
    assert len([name for name in after if after[name] != before[name]]) == 1
    await alter(node, key, None)
    assert values_of(node.settings) == before


@pytest.mark.parametrize("key", sorted(DYNAMIC & OF_TOPICS.keys()))
async def test_a_default_of_topics_changes_open_logs(node: Node, key: str) -> None:
    topic_key = OF_TOPICS[key]
    await create_topic(node.cluster, "orders")
    log = (await node.partitions.open("orders", 0, write=True)).log
    told = resolve_topic_config(node.cluster.image, "orders", node.config)[topic_key].value
    before = log.config
    await alter(node, key, another_value(BROKER_CONFIGS[key]))
    assert resolve_topic_config(node.cluster.image, "orders", node.config)[topic_key].value != told
    if hasattr(LogConfig, topic_key.replace(".", "_")):
        assert log.config != before


async def test_altered_settings_count_from_the_start_of_the_next_run(tmp_path: Path) -> None:
    config = load_broker_config(sets=["listeners=PLAINTEXT://127.0.0.1:0"])
    node = await Node.start(config, tmp_path)
    await alter(node, "max.connections", "17")
    await node.stop()
    again = await Node.start(config, tmp_path)
    await again.stop()
    assert again.settings.max_connections == 17


LIMITS: Final = ["max.connections", "max.connections.per.ip"]


@pytest.mark.parametrize("key", LIMITS)
def test_a_broker_that_nobody_could_reach_does_not_start(key: str) -> None:
    with pytest.raises(InvalidConfig, match=f"{key}: expected 1 or above"):
        load_broker_config(sets=[f"{key}=0"])


def test_a_zero_stored_before_it_was_refused_leaves_room_for_one() -> None:
    settings = Settings(load_broker_config())
    settings.adopt(MetadataImage(broker_configs={"": dict.fromkeys(LIMITS, "0")}))
    assert (settings.max_connections, settings.max_connections_per_ip) == (1, 1)


async def test_the_compactor_is_woken_by_a_shorter_pause(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = asyncio.Event()

    async def look(*_: object) -> bool:
        looked.set()
        return False

    monkeypatch.setattr(Cleaner, "compact_dirtiest", look)
    await alter(node, "log.cleaner.backoff.ms", "0")
    await asyncio.wait_for(looked.wait(), PATIENCE)


async def test_producers_expire_by_the_altered_time(node: Node) -> None:
    await create_topic(node.cluster, "orders")
    hosted = await node.partitions.open("orders", 0, write=True)
    old = node.clock.wall_ms() - HOUR_MS
    batch = batch_of(b"1", producer_id=7, epoch=0, sequence=0, timestamps=[old])
    hosted.log.append(batch, leader_epoch=hosted.leader_epoch, now_ms=old)
    await node.jobs._expire_producers()
    assert [producer.producer_id for producer in hosted.log.producers()] == [7]
    await alter(node, "producer.id.expiration.ms", "1000")
    await node.jobs._expire_producers()
    assert not list(hosted.log.producers())
