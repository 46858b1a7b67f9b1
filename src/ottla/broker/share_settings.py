"""A share group's settings, from its configuration and the broker's."""

from __future__ import annotations

import re
import time
from functools import lru_cache
from typing import TYPE_CHECKING

from ottla.metadata.configs import resolve_group_config
from ottla.sharing.values import ShareSettings

if TYPE_CHECKING:
    from ottla.broker.node import Node
    from ottla.log.partition import PartitionLog
    from ottla.metadata.broker_config import BrokerConfig
    from ottla.metadata.configs import EffectiveConfig
    from ottla.metadata.image import MetadataImage

READ_COMMITTED = "read_committed"
_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:([0-9.]+)S)?)?")


def group_config(node: Node, group: str) -> EffectiveConfig:
    return _group_config(node.image, group, node.config)


# Looked up with every fetch; an image is replaced, never changed.
@lru_cache(maxsize=256)
def _group_config(image: MetadataImage, group: str, broker: BrokerConfig) -> EffectiveConfig:
    return resolve_group_config(image, group, broker)


def share_settings(node: Node, group: str) -> ShareSettings:
    return _share_settings(node.image, group, node.config)


@lru_cache(maxsize=256)
def _share_settings(image: MetadataImage, group: str, broker: BrokerConfig) -> ShareSettings:
    config = resolve_group_config(image, group, broker)
    return ShareSettings(
        lock_duration_ms=config.get_int("share.record.lock.duration.ms"),
        delivery_count_limit=config.get_int("share.delivery.count.limit"),
        max_record_locks=config.get_int("share.partition.max.record.locks"),
        renew_enabled=config.get_bool("share.renew.acknowledge.enable"),
    )


def reads_committed(node: Node, group: str) -> bool:
    return group_config(node, group).get_str("share.isolation.level") == READ_COMMITTED


def resolve_start(node: Node, group: str, log: PartitionLog) -> int:
    """Where a group begins that has no start offset: what its share.auto.offset.reset says."""
    reset = group_config(node, group).get_str("share.auto.offset.reset")
    if reset == "earliest":
        return log.log_start_offset
    if reset == "latest":
        return log.high_watermark
    since = time.time_ns() // 1_000_000 - duration_ms(reset.removeprefix("by_duration:"))
    found = log.offset_for_timestamp(max(0, since))
    return log.high_watermark if found is None else min(found.offset, log.high_watermark)


def duration_ms(text: str) -> int:
    """An ISO 8601 duration of days and less."""
    found = _DURATION.fullmatch(text)
    assert found is not None, text  # the configuration was checked when it was set
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)
