"""Kafka 4's topic and group keys, as a table.

Defaults of topic keys come from the broker keys named as synonyms, first one first; the default
here is what holds when no broker key is set either. Group keys likewise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.metadata.config.table_keys import TABLE_CONFIGS
from ottla.metadata.config.types import (
    INT_MAX,
    LONG_MAX,
    AtLeast,
    Between,
    BrokerSynonym,
    ConfigDef,
    ConfigType,
    EachOf,
    Matching,
    OneOf,
    Rule,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS
MIB: Final = 1024 * 1024

MIN_SEGMENT_BYTES: Final = MIB
VALIDATIONS: Final = ("all", "sampled", "none")
COMPRESSION_TYPES: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
CLEANUP_POLICIES: Final = EachOf(("compact", "delete"), most=2)
TIMESTAMP_TYPES: Final = OneOf(("CreateTime", "LogAppendTime"))
GZIP_LEVELS: Final = Between(-1, 9)
LZ4_LEVELS: Final = Between(1, 17)
ZSTD_LEVELS: Final = Between(-131072, 22)

_THROTTLED: Final = Matching(r"\*|[0-9]+:[0-9]+", "0:1,1:2 (partition:broker) or *")
_OFFSET_RESET: Final = Matching(
    r"latest|earliest|by_duration:P(?=.)([0-9]+D)?(T(?=.)([0-9]+H)?([0-9]+M)?([0-9.]+S)?)?",
    "latest, earliest or by_duration:PT1H30M",
)

_INT, _LONG, _BOOL = ConfigType.INT, ConfigType.LONG, ConfigType.BOOLEAN
_TEXT, _LIST, _DOUBLE = ConfigType.STRING, ConfigType.LIST, ConfigType.DOUBLE


def table(definitions: Iterable[ConfigDef]) -> Mapping[str, ConfigDef]:
    """The definitions by name, in order of name as Kafka lists them."""
    return {each.name: each for each in sorted(definitions, key=lambda each: each.name)}


def _topic(
    name: str,
    kind: ConfigType,
    default: object,
    doc: str,
    *synonyms: str | tuple[str, int],
    rule: Rule | None = None,
) -> ConfigDef:
    chain = tuple(
        BrokerSynonym(each) if isinstance(each, str) else BrokerSynonym(*each) for each in synonyms
    )
    return ConfigDef(name, kind, str(default), doc, rule=rule, synonyms=chain)


TOPIC_CONFIGS: Final = table(
    [
        *TABLE_CONFIGS,
        _topic("cleanup.policy", _LIST, "delete",
               "Delete old segments, compact the log by key, or both.", "log.cleanup.policy",
               rule=CLEANUP_POLICIES),
        _topic("compression.gzip.level", _INT, -1,
               "gzip level for batches that the broker compresses.", "compression.gzip.level",
               rule=GZIP_LEVELS),
        _topic("compression.lz4.level", _INT, 9,
               "lz4 level for batches that the broker compresses.", "compression.lz4.level",
               rule=LZ4_LEVELS),
        _topic("compression.type", _TEXT, "producer",
               "Codec for stored batches; producer: as the producer sent them.", "compression.type",
               rule=OneOf(COMPRESSION_TYPES)),
        _topic("compression.zstd.level", _INT, 3,
               "zstd level for batches that the broker compresses.", "compression.zstd.level",
               rule=ZSTD_LEVELS),
        _topic("delete.retention.ms", _LONG, DAY_MS,
               "Keep tombstones in a compacted log for this long.",
               "log.cleaner.delete.retention.ms", rule=AtLeast(0)),
        _topic("errors.deadletterqueue.group.enable", _BOOL, "false",
               "Allow share groups to write dead letters to this topic."),
        _topic("file.delete.delay.ms", _LONG, MINUTE_MS,
               "Delete files of removed segments and topics after this time.",
               "log.segment.delete.delay.ms", rule=AtLeast(0)),
        _topic("flush.messages", _LONG, LONG_MAX, "Sync after this many messages.",
               "log.flush.interval.messages", rule=AtLeast(1)),
        _topic("flush.ms", _LONG, LONG_MAX, "Sync messages that are unsynced for this long.",
               "log.flush.interval.ms", "log.flush.scheduler.interval.ms", rule=AtLeast(0)),
        _topic("follower.replication.throttled.replicas", _LIST, "",
               "Replicas whose incoming replication is throttled.", rule=_THROTTLED),
        _topic("index.interval.bytes", _INT, 4096, "Bytes between two entries of the offset index.",
               "log.index.interval.bytes", rule=AtLeast(0)),
        _topic("leader.replication.throttled.replicas", _LIST, "",
               "Replicas whose outgoing replication is throttled.", rule=_THROTTLED),
        _topic("local.retention.bytes", _LONG, -2,
               "Keep this much of a tiered log on the local disk; -2: as retention.bytes.",
               "log.local.retention.bytes", rule=AtLeast(-2)),
        _topic("local.retention.ms", _LONG, -2,
               "Keep copied segments on the local disk for this long; -2: as retention.ms.",
               "log.local.retention.ms", rule=AtLeast(-2)),
        _topic("max.compaction.lag.ms", _LONG, LONG_MAX,
               "Compact a record at the latest after this time.",
               "log.cleaner.max.compaction.lag.ms", rule=AtLeast(1)),
        _topic("max.message.bytes", _INT, MIB + 12, "Largest batch.", "message.max.bytes",
               rule=AtLeast(0)),
        _topic("message.timestamp.after.max.ms", _LONG, HOUR_MS,
               "Refuse records whose time is further in the future.",
               "log.message.timestamp.after.max.ms", rule=AtLeast(0)),
        _topic("message.timestamp.before.max.ms", _LONG, LONG_MAX,
               "Refuse records whose time is further in the past.",
               "log.message.timestamp.before.max.ms", rule=AtLeast(0)),
        _topic("message.timestamp.type", _TEXT, "CreateTime",
               "CreateTime: records keep the producer's time. LogAppendTime: the broker sets it.",
               "log.message.timestamp.type", rule=TIMESTAMP_TYPES),
        _topic("min.cleanable.dirty.ratio", _DOUBLE, 0.5,
               "Share of the log that must be uncompacted before it is compacted.",
               "log.cleaner.min.cleanable.ratio", rule=Between(0, 1)),
        _topic("min.compaction.lag.ms", _LONG, 0, "Do not compact a record before this time.",
               "log.cleaner.min.compaction.lag.ms", rule=AtLeast(0)),
        _topic("min.insync.replicas", _INT, 1, "Replicas that acks=all needs; one here.",
               "min.insync.replicas", rule=AtLeast(1)),
        _topic("ottla.validate.records", _TEXT, "sampled",
               "Batches whose records are checked: all, sampled or none.", "ottla.validate.records",
               rule=OneOf(VALIDATIONS)),
        _topic("preallocate", _BOOL, "false",
               "Allocate segment files in full when they are created.", "log.preallocate"),
        _topic("remote.log.copy.disable", _BOOL, "false",
               "Stop copying segments to the store; those in it stay readable."),
        _topic("remote.log.delete.on.disable", _BOOL, "false",
               "Delete the objects when tiering of the topic is switched off."),
        _topic("remote.storage.enable", _BOOL, "false",
               "Copy closed segments to the object store."),
        _topic("retention.bytes", _LONG, -1,
               "Delete the oldest segments of a partition above this size; -1: never.",
               "log.retention.bytes"),
        _topic("retention.ms", _LONG, 7 * DAY_MS,
               "Delete segments that are older than this; -1: never.", "log.retention.ms",
               ("log.retention.minutes", MINUTE_MS), ("log.retention.hours", HOUR_MS),
               rule=AtLeast(-1)),
        _topic("segment.bytes", _INT, 1024 * MIB, "Start a new segment at this size.",
               "log.segment.bytes", rule=AtLeast(MIN_SEGMENT_BYTES)),
        _topic("segment.index.bytes", _INT, 10 * MIB, "Largest index file.",
               "log.index.size.max.bytes", rule=AtLeast(4)),
        _topic("segment.jitter.ms", _LONG, 0,
               "Largest random time by which a segment is closed earlier.", "log.roll.jitter.ms",
               ("log.roll.jitter.hours", HOUR_MS), rule=AtLeast(0)),
        _topic("segment.ms", _LONG, 7 * DAY_MS, "Start a new segment after this time.",
               "log.roll.ms", ("log.roll.hours", HOUR_MS), rule=AtLeast(1)),
        _topic("unclean.leader.election.enable", _BOOL, "false",
               "Allow a replica that is not in sync to lead.", "unclean.leader.election.enable"),
    ]
)  # fmt: skip


def _group(
    name: str, kind: ConfigType, default: object, doc: str, rule: Rule | None = None,
    *, broker: str | None = None, bounded: bool = False,
) -> ConfigDef:  # fmt: skip
    """`broker` is the key after `group.` of the default; its min and max variants bound it."""
    synonyms = () if broker is None else (BrokerSynonym(f"group.{broker}"),)
    bounds = None
    if bounded and broker is not None:
        protocol, rest = broker.split(".", 1)
        bounds = (f"group.{protocol}.min.{rest}", f"group.{protocol}.max.{rest}")
    return ConfigDef(name, kind, str(default), doc, rule=rule, synonyms=synonyms, bounds=bounds)


GROUP_CONFIGS: Final = table(
    [
        _group("consumer.heartbeat.interval.ms", _INT, 5000, "Time between heartbeats of a member.",
               AtLeast(1), broker="consumer.heartbeat.interval.ms", bounded=True),
        _group("consumer.session.timeout.ms", _INT, 45000,
               "Remove a member after this time without a heartbeat.", AtLeast(1),
               broker="consumer.session.timeout.ms", bounded=True),
        _group("errors.deadletterqueue.copy.record.enable", _BOOL, "true",
               "Copy key, value and headers into the dead letter."),
        _group("errors.deadletterqueue.topic.name", _TEXT, "",
               "Topic for records that the group gives up; empty: none."),
        _group("share.assignment.interval.ms", _INT, 1000, "Shortest time between two assignments.",
               AtLeast(0), broker="share.assignment.interval.ms", bounded=True),
        _group("share.auto.offset.reset", _TEXT, "latest",
               "Where a new group starts: earliest, latest or by_duration:...", _OFFSET_RESET),
        _group("share.delivery.count.limit", _INT, 5,
               "Deliveries after which a record is given up.", AtLeast(2),
               broker="share.delivery.count.limit", bounded=True),
        _group("share.heartbeat.interval.ms", _INT, 5000, "Time between heartbeats of a member.",
               AtLeast(1), broker="share.heartbeat.interval.ms", bounded=True),
        _group("share.isolation.level", _TEXT, "read_uncommitted",
               "read_committed: deliver only committed records of transactions.",
               OneOf(("read_uncommitted", "read_committed"))),
        _group("share.partition.max.record.locks", _INT, 2000,
               "Most records in flight per partition.", AtLeast(100),
               broker="share.partition.max.record.locks", bounded=True),
        _group("share.record.lock.duration.ms", _INT, 30000,
               "How long a delivered record stays locked.", Between(1000, INT_MAX),
               broker="share.record.lock.duration.ms", bounded=True),
        _group("share.renew.acknowledge.enable", _BOOL, "true", "Allow members to renew locks."),
        _group("share.session.grace.ms", _INT, 0,
               "How long a member whose connection broke keeps its records.", Between(0, INT_MAX)),
        _group("share.session.timeout.ms", _INT, 45000,
               "Remove a member after this time without a heartbeat.", AtLeast(1),
               broker="share.session.timeout.ms", bounded=True),
    ]
)  # fmt: skip
