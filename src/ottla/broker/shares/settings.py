"""A share group's settings, from its configuration and the broker's."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.metadata.config.values import resolve_group_config
from ottla.sharing.values import DeliverySettings

if TYPE_CHECKING:
    from ottla.broker.cluster import Cluster
    from ottla.broker.hosting.hosted import HostedPartition
    from ottla.broker.running.services import Lazy
    from ottla.broker.tiering.tiering import Tiering
    from ottla.broker.workers import Workers
    from ottla.clock import Clock
    from ottla.metadata.config.broker import BrokerConfig
    from ottla.metadata.image import MetadataImage

READ_COMMITTED: Final = "read_committed"
MAX_KNOWN: Final = 10_000  # groups remembered at once; a client may make up names
_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:([0-9.]+)S)?)?")


class DeadLetterTopic(NamedTuple):
    """Where a group's dead letters go, and whether they carry the records."""

    name: str
    copy_records: bool


class ShareGroupConfig(NamedTuple):
    """What fetching for a group looks at."""

    settings: DeliverySettings
    reads_committed: bool
    reset: str
    dead_letters: DeadLetterTopic | None
    session_grace: float
    """Seconds for which a disconnected member keeps its records."""


class ShareGroupConfigs:
    """The configuration of share groups, resolved once per image: it is looked at all the time."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._version = -1
        self._known: dict[str, ShareGroupConfig] = {}

    def of(self, group: str) -> ShareGroupConfig:
        image = self._cluster.image
        if image.version != self._version or len(self._known) > MAX_KNOWN:
            self._known.clear()
            self._version = image.version
        config = self._known.get(group)
        if config is None:
            config = self._known[group] = _resolve(image, group, self._cluster.config)
        return config

    async def newest(self, group: str) -> ShareGroupConfig:
        """As it was set last, on whichever node; an `ApiError` if the metadata store fails."""
        await self._cluster.refresh()
        return self.of(group)


def _resolve(image: MetadataImage, group: str, broker: BrokerConfig) -> ShareGroupConfig:
    config = resolve_group_config(image, group, broker)
    dead_letters = config.get_str("errors.deadletterqueue.topic.name")
    copy = config.get_bool("errors.deadletterqueue.copy.record.enable")
    return ShareGroupConfig(
        DeliverySettings(
            lock_duration_ms=config.get_int("share.record.lock.duration.ms"),
            delivery_count_limit=config.get_int("share.delivery.count.limit"),
            max_record_locks=config.get_int("share.partition.max.record.locks"),
            renew_enabled=config.get_bool("share.renew.acknowledge.enable"),
        ),
        config.get_str("share.isolation.level") == READ_COMMITTED,
        config.get_str("share.auto.offset.reset"),
        DeadLetterTopic(dead_letters, copy) if dead_letters else None,
        config.get_int("share.session.grace.ms") / 1000,
    )


async def resolve_start(
    reset: str, hosted: HostedPartition, tiering: Lazy[Tiering], workers: Workers, clock: Clock
) -> int:
    """The start offset of a new group, by its share.auto.offset.reset."""
    log = hosted.log
    if reset == "earliest":
        return log.log_start_offset
    if reset == "latest":
        return log.high_watermark
    since = clock.wall_ms() - duration_ms(reset.removeprefix("by_duration:"))
    if log.log_start_offset < log.local_start_offset:
        found = await tiering().reads.offset_for_timestamp(hosted, max(0, since))
    else:
        found = await workers.run(partial(log.offset_for_timestamp, max(0, since)))
    return log.high_watermark if found is None else min(found.offset, log.high_watermark)


def duration_ms(text: str) -> int:
    """An ISO 8601 duration of days and less."""
    found = _DURATION.fullmatch(text)
    assert found is not None, text  # the configuration was checked when it was set
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)
