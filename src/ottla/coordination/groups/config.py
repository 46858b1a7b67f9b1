"""The settings of the group coordinator, with Kafka's defaults."""

from __future__ import annotations

from dataclasses import dataclass

MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """Settings of a share group: `share.*` of the group, else `group.share.*` of the broker."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """Settings of a consumer group: `consumer.*` of the group, else `group.consumer.*`."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Each field is followed by Kafka's name for it, or by its reason where Kafka has none."""

    min_session_timeout_ms: int = 6_000
    """group.min.session.timeout.ms"""
    max_session_timeout_ms: int = 30 * MINUTE_MS
    """group.max.session.timeout.ms"""
    initial_rebalance_delay_ms: int = 3_000
    """group.initial.rebalance.delay.ms"""
    max_size: int = 2**31 - 1
    """group.max.size"""
    max_pending_members: int = 10_000
    """Most unused member ids per group; each costs memory until its client joins."""
    consumer: ConsumerSettings = ConsumerSettings()
    """Of groups without settings of their own."""
    consumer_max_size: int = 2**31 - 1
    """group.consumer.max.size"""
    consumer_assign_at_once: int = 1_000
    """Members and partitions of a group up to which each change computes a new target at once: a
    few milliseconds. Kafka has a fixed interval instead, which small groups have to wait for, too.
    """
    consumer_assign_per_ms: int = 25
    """Members and partitions of a larger group for which a millisecond passes between two targets:
    what is computed takes less than a tenth of that, however many members come at once."""
    regex_refresh_interval_ms: int = 10_000
    """How soon a regular expression is matched again after new topics appeared."""
    offset_metadata_max_bytes: int = 4096
    """offset.metadata.max.bytes"""
    offsets_retention_ms: int = 10_080 * MINUTE_MS
    """offsets.retention.minutes"""
    offsets_retention_check_interval_ms: int = 10 * MINUTE_MS
    """offsets.retention.check.interval.ms"""
    share: ShareSettings = ShareSettings()
    """Of groups without settings of their own."""
    share_max_size: int = 200
    """group.share.max.size"""
    share_initialize_retry_interval_ms: int = 30_000
    """group.share.initialize.retry.interval.ms"""
    share_makes_member_ids: bool = True
    """Whether a member may join with an empty id and is given one; Kafka refuses it."""
