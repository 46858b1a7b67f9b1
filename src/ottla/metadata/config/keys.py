"""Kafka 4's topic and group keys, as a table.

Defaults of topic keys come from the broker keys named as synonyms, first one first; the default
here is what holds when no broker key is set either. Group keys likewise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

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
        _topic("cleanup.policy", _LIST, "delete", "What happens to old segments.",
               "log.cleanup.policy", rule=CLEANUP_POLICIES),
        _topic("compression.gzip.level", _INT, -1, "Level when batches are recompressed.",
               "compression.gzip.level", rule=GZIP_LEVELS),
        _topic("compression.lz4.level", _INT, 9, "Level when batches are recompressed.",
               "compression.lz4.level", rule=LZ4_LEVELS),
        _topic("compression.type", _TEXT, "producer", "Codec of stored batches.",
               "compression.type", rule=OneOf(COMPRESSION_TYPES)),
        _topic("compression.zstd.level", _INT, 3, "Level when batches are recompressed.",
               "compression.zstd.level", rule=ZSTD_LEVELS),
        _topic("delete.retention.ms", _LONG, DAY_MS, "How long compaction keeps tombstones.",
               "log.cleaner.delete.retention.ms", rule=AtLeast(0)),
        _topic("errors.deadletterqueue.group.enable", _BOOL, "false",
               "Whether groups may write dead letters to it."),
        _topic("file.delete.delay.ms", _LONG, MINUTE_MS, "Wait before a file is unlinked.",
               "log.segment.delete.delay.ms", rule=AtLeast(0)),
        _topic("flush.messages", _LONG, LONG_MAX, "Records between forced syncs.",
               "log.flush.interval.messages", rule=AtLeast(1)),
        _topic("flush.ms", _LONG, LONG_MAX, "Time between forced syncs.",
               "log.flush.interval.ms", "log.flush.scheduler.interval.ms", rule=AtLeast(0)),
        _topic("follower.replication.throttled.replicas", _LIST, "",
               "Replicas whose incoming replication is throttled.", rule=_THROTTLED),
        _topic("index.interval.bytes", _INT, 4096, "Bytes between two index entries.",
               "log.index.interval.bytes", rule=AtLeast(0)),
        _topic("leader.replication.throttled.replicas", _LIST, "",
               "Replicas whose outgoing replication is throttled.", rule=_THROTTLED),
        _topic("local.retention.bytes", _LONG, -2, "Local bytes of a tiered log; -2 = retention.",
               "log.local.retention.bytes", rule=AtLeast(-2)),
        _topic("local.retention.ms", _LONG, -2, "Local age of a tiered log; -2 = retention.",
               "log.local.retention.ms", rule=AtLeast(-2)),
        _topic("max.compaction.lag.ms", _LONG, LONG_MAX, "Longest a record stays uncompacted.",
               "log.cleaner.max.compaction.lag.ms", rule=AtLeast(1)),
        _topic("max.message.bytes", _INT, MIB + 12, "Largest batch accepted.",
               "message.max.bytes", rule=AtLeast(0)),
        _topic("message.timestamp.after.max.ms", _LONG, HOUR_MS,
               "How far a record's time may lie ahead of the broker's.",
               "log.message.timestamp.after.max.ms", rule=AtLeast(0)),
        _topic("message.timestamp.before.max.ms", _LONG, LONG_MAX,
               "How far a record's time may lie behind the broker's.",
               "log.message.timestamp.before.max.ms", rule=AtLeast(0)),
        _topic("message.timestamp.type", _TEXT, "CreateTime", "Whose clock stamps records.",
               "log.message.timestamp.type", rule=TIMESTAMP_TYPES),
        _topic("min.cleanable.dirty.ratio", _DOUBLE, 0.5, "Dirty share that starts compaction.",
               "log.cleaner.min.cleanable.ratio", rule=Between(0, 1)),
        _topic("min.compaction.lag.ms", _LONG, 0, "Shortest a record stays uncompacted.",
               "log.cleaner.min.compaction.lag.ms", rule=AtLeast(0)),
        _topic("min.insync.replicas", _INT, 1, "Replicas acks=all needs.",
               "min.insync.replicas", rule=AtLeast(1)),
        _topic("ottla.validate.records", _TEXT, "sampled",
               "Which batches are checked record by record: all, sampled, none.",
               "ottla.validate.records", rule=OneOf(VALIDATIONS)),
        _topic("preallocate", _BOOL, "false", "Whether segments are allocated in full.",
               "log.preallocate"),
        _topic("remote.log.copy.disable", _BOOL, "false", "Makes the tier read-only."),
        _topic("remote.log.delete.on.disable", _BOOL, "false",
               "Whether switching the tier off deletes what it holds."),
        _topic("remote.storage.enable", _BOOL, "false", "Whether the topic is tiered."),
        _topic("retention.bytes", _LONG, -1, "Bytes kept per partition; -1 = all.",
               "log.retention.bytes"),
        _topic("retention.ms", _LONG, 7 * DAY_MS, "Age at which segments go; -1 = never.",
               "log.retention.ms", ("log.retention.minutes", MINUTE_MS),
               ("log.retention.hours", HOUR_MS), rule=AtLeast(-1)),
        _topic("segment.bytes", _INT, 1024 * MIB, "Size at which a segment is rolled.",
               "log.segment.bytes", rule=AtLeast(MIN_SEGMENT_BYTES)),
        _topic("segment.index.bytes", _INT, 10 * MIB, "Largest index file.",
               "log.index.size.max.bytes", rule=AtLeast(4)),
        _topic("segment.jitter.ms", _LONG, 0, "Largest random early roll.",
               "log.roll.jitter.ms", ("log.roll.jitter.hours", HOUR_MS), rule=AtLeast(0)),
        _topic("segment.ms", _LONG, 7 * DAY_MS, "Age at which a segment is rolled.",
               "log.roll.ms", ("log.roll.hours", HOUR_MS), rule=AtLeast(1)),
        _topic("unclean.leader.election.enable", _BOOL, "false",
               "Whether a replica out of sync may lead.", "unclean.leader.election.enable"),
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
        _group("consumer.heartbeat.interval.ms", _INT, 5000, "Heartbeat interval of members.",
               AtLeast(1), broker="consumer.heartbeat.interval.ms", bounded=True),
        _group("consumer.session.timeout.ms", _INT, 45000, "Silence after which a member is out.",
               AtLeast(1), broker="consumer.session.timeout.ms", bounded=True),
        _group("errors.deadletterqueue.copy.record.enable", _BOOL, "true",
               "Whether dead letters carry the record, or only tell of it."),
        _group("errors.deadletterqueue.topic.name", _TEXT, "",
               "Topic for records that the group gives up; none if empty."),
        _group("share.assignment.interval.ms", _INT, 1000, "Shortest time between assignments.",
               AtLeast(0), broker="share.assignment.interval.ms", bounded=True),
        _group("share.auto.offset.reset", _TEXT, "latest", "Where a new share group starts.",
               _OFFSET_RESET),
        _group("share.delivery.count.limit", _INT, 5, "Deliveries before a record is archived.",
               AtLeast(2), broker="share.delivery.count.limit", bounded=True),
        _group("share.heartbeat.interval.ms", _INT, 5000, "Heartbeat interval of members.",
               AtLeast(1), broker="share.heartbeat.interval.ms", bounded=True),
        _group("share.isolation.level", _TEXT, "read_uncommitted", "What the group may see.",
               OneOf(("read_uncommitted", "read_committed"))),
        _group("share.partition.max.record.locks", _INT, 2000, "Records in flight per partition.",
               AtLeast(100), broker="share.partition.max.record.locks", bounded=True),
        _group("share.record.lock.duration.ms", _INT, 30000, "How long a member holds a record.",
               Between(1000, INT_MAX), broker="share.record.lock.duration.ms", bounded=True),
        _group("share.renew.acknowledge.enable", _BOOL, "true", "Whether locks can be renewed."),
        _group("share.session.grace.ms", _INT, 0,
               "How long a member that is cut off may come back to what it holds.",
               Between(0, INT_MAX)),
        _group("share.session.timeout.ms", _INT, 45000, "Silence after which a member is out.",
               AtLeast(1), broker="share.session.timeout.ms", bounded=True),
    ]
)  # fmt: skip
