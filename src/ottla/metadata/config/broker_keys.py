"""The broker keys that Ottla honours, as a table: each is read somewhere, and a test proves it.

Kafka's other keys (`kafka_keys`) are accepted with a warning; any other name is an error. Names,
types and defaults are Kafka's, with these exceptions: the remote log's metadata topic has one
replica, as Ottla does not replicate; `group.initial.rebalance.delay.ms` is 0, as in the
configuration that Kafka ships; the sizes of socket buffers are the system's. Keys marked dynamic
can be altered while the broker runs. Keys that start with `ottla.` are Ottla's own, and so are
`remote.delete.grace.ms`, `remote.orphan.age.ms`, `remote.scrub.interval.ms`,
`remote.result.cache.bytes` and `remote.partition.delete.events`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.metadata.config.keys import (
    CLEANUP_POLICIES,
    COMPRESSION_TYPES,
    DAY_MS,
    GZIP_LEVELS,
    HOUR_MS,
    LZ4_LEVELS,
    MIB,
    MIN_SEGMENT_BYTES,
    MINUTE_MS,
    TIMESTAMP_TYPES,
    VALIDATIONS,
    ZSTD_LEVELS,
    table,
)
from ottla.metadata.config.types import (
    INT_MAX,
    LONG_MAX,
    AtLeast,
    Between,
    ConfigDef,
    ConfigType,
    Matching,
    OneOf,
    Rule,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

RSM_PREFIX: Final = "rsm.config."
"""Keys below it configure the object store and are handed on as they are."""
MAX_RECORD_LOCKS: Final = 1_000_000
"""What one member may hold of a partition at most; a window costs memory by its fragments, which
can be as many as it has records."""

_INT, _LONG, _BOOL = ConfigType.INT, ConfigType.LONG, ConfigType.BOOLEAN
_TEXT, _LIST, _DOUBLE = ConfigType.STRING, ConfigType.LIST, ConfigType.DOUBLE
_SHORT: Final = ConfigType.SHORT

_LISTENERS: Final = Matching(
    r"[A-Za-z0-9_]+://(\[[0-9A-Fa-f:.]+\]|[^:\[\]/\s]*):[0-9]{1,5}",
    "PLAINTEXT://127.0.0.1:9092",
    least=1,
)
_PROTOCOL_MAP: Final = Matching(
    r"[A-Za-z0-9_]+:(PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)", "INTERNAL:PLAINTEXT"
)


def _fixed(
    name: str, kind: ConfigType, default: object, doc: str, rule: Rule | None = None,
    *, bounded_as: str | None = None,
) -> ConfigDef:  # fmt: skip
    """A key read once at start. `bounded_as` is the pattern of its min and max keys."""
    text = None if default is None else str(default)
    bounds = None
    if bounded_as is not None:
        bounds = (bounded_as.format("min"), bounded_as.format("max"))
    return ConfigDef(name, kind, text, doc, rule=rule, dynamic=False, bounds=bounds)


def _live(
    name: str, kind: ConfigType, default: object, doc: str, rule: Rule | None = None
) -> ConfigDef:
    """A key that can be altered while the broker runs."""
    text = None if default is None else str(default)
    return ConfigDef(name, kind, text, doc, rule=rule, dynamic=True)


_NODE: Final = [
    _fixed("node.id", _INT, 1, "The number of this node.", AtLeast(0)),
    _fixed("broker.rack", _TEXT, None, "Where this node stands."),
    _fixed("listeners", _LIST, "PLAINTEXT://127.0.0.1:9092", "What to listen on.", _LISTENERS),
    _fixed("advertised.listeners", _LIST, None, "What clients are told.", _LISTENERS),
    _fixed("listener.security.protocol.map", _LIST,
           "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
           "Security protocol of each listener.", _PROTOCOL_MAP),
    _fixed("controller.listener.names", _LIST, "",
           "Listeners of Kafka's controllers: Ottla has none and does not open them."),
    _fixed("inter.broker.listener.name", _TEXT, None, "Listener that nodes use among themselves."),
    _fixed("log.dirs", _LIST, "ottla-data", "Directories of the logs.",
           Matching(r".+", "/var/lib/ottla", least=1)),
    _fixed("auto.create.topics.enable", _BOOL, "true", "Whether asking for a topic creates it."),
    _fixed("delete.topic.enable", _BOOL, "true", "Whether topics can be deleted."),
    _fixed("num.partitions", _INT, 1, "Partitions of a topic that does not say.", AtLeast(1)),
    _fixed("ottla.flush.mode", _TEXT, "group",
           "When acks=all is answered: after a group fdatasync, or from the page cache (os).",
           OneOf(("group", "os"))),
    _fixed("ottla.tail.cache.bytes", _LONG, 64 * MIB,
           "Memory for the last batches of all logs together; who keeps up reads them from there.",
           AtLeast(0)),
]  # fmt: skip

_SOCKETS: Final = [
    _fixed("socket.request.max.bytes", _INT, 100 * MIB, "Largest request.", AtLeast(1)),
    _fixed("socket.send.buffer.bytes", _INT, -1, "SO_SNDBUF; -1 = the system's.",
           AtLeast(-1)),
    _fixed("socket.receive.buffer.bytes", _INT, -1, "SO_RCVBUF; -1 = the system's.",
           AtLeast(-1)),
    # Kafka's 50 makes clients that all come back after a restart wait a second for each retry.
    _fixed("socket.listen.backlog.size", _INT, 1024, "Connections waiting to be accepted.",
           AtLeast(1)),
    _fixed("connections.max.idle.ms", _LONG, 10 * MINUTE_MS, "Idle time that closes."),
    # Kafka takes 0 too: with exceptions for some listeners or addresses, which there are none of
    # here. It would lock out whoever wants to set it back.
    _live("max.connections", _INT, INT_MAX, "Connections in all.", AtLeast(1)),
    _live("max.connections.per.ip", _INT, INT_MAX, "Connections of one address.", AtLeast(1)),
    _fixed("queued.max.request.bytes", _LONG, 256 * MIB,
           "Bytes of requests waiting before reading stops; -1 = no limit.", AtLeast(-1)),
    _fixed("ottla.queued.max.response.bytes", _LONG, 128 * MIB,
           "Bytes of answers waiting for clients to read them, of all connections together.",
           AtLeast(MIB)),
    _fixed("fetch.max.bytes", _INT, 55 * MIB, "Largest fetch answer.", AtLeast(1024)),
    _fixed("max.incremental.fetch.session.cache.slots", _INT, 1000, "Fetch sessions kept.",
           AtLeast(0)),
    _fixed("max.request.partition.size.limit", _INT, 2000,
           "Partitions in one page of DescribeTopicPartitions.", AtLeast(1)),
]  # fmt: skip

# What topics inherit: the defaults stand in TOPIC_CONFIGS' order of synonyms.
_LOG: Final = [
    _live("log.cleanup.policy", _LIST, "delete", "cleanup.policy.", CLEANUP_POLICIES),
    _live("compression.type", _TEXT, "producer", "For topics without one.",
          OneOf(COMPRESSION_TYPES)),
    _live("ottla.validate.records", _TEXT, "sampled", "For topics without one.",
          OneOf(VALIDATIONS)),
    _live("compression.gzip.level", _INT, -1, "For topics without one.", GZIP_LEVELS),
    _live("compression.lz4.level", _INT, 9, "For topics without one.", LZ4_LEVELS),
    _live("compression.zstd.level", _INT, 3, "For topics without one.", ZSTD_LEVELS),
    _live("log.cleaner.delete.retention.ms", _LONG, DAY_MS, "delete.retention.ms.", AtLeast(0)),
    _live("log.segment.delete.delay.ms", _LONG, MINUTE_MS, "file.delete.delay.ms.", AtLeast(0)),
    _live("log.flush.interval.messages", _LONG, LONG_MAX, "flush.messages.", AtLeast(1)),
    _live("log.flush.interval.ms", _LONG, None, "flush.ms.", AtLeast(0)),
    _fixed("log.flush.scheduler.interval.ms", _LONG, LONG_MAX, "flush.ms, when not set.",
           AtLeast(0)),
    _live("log.index.interval.bytes", _INT, 4096, "index.interval.bytes.", AtLeast(0)),
    _live("log.local.retention.bytes", _LONG, -2, "local.retention.bytes.", AtLeast(-2)),
    _live("log.local.retention.ms", _LONG, -2, "local.retention.ms.", AtLeast(-2)),
    _live("log.cleaner.max.compaction.lag.ms", _LONG, LONG_MAX, "max.compaction.lag.ms.",
          AtLeast(1)),
    _live("message.max.bytes", _INT, MIB + 12, "max.message.bytes.", AtLeast(0)),
    _live("log.message.timestamp.after.max.ms", _LONG, HOUR_MS,
          "message.timestamp.after.max.ms.", AtLeast(0)),
    _live("log.message.timestamp.before.max.ms", _LONG, LONG_MAX,
          "message.timestamp.before.max.ms.", AtLeast(0)),
    _live("log.message.timestamp.type", _TEXT, "CreateTime", "message.timestamp.type.",
          TIMESTAMP_TYPES),
    _live("log.cleaner.min.cleanable.ratio", _DOUBLE, 0.5, "min.cleanable.dirty.ratio.",
          Between(0, 1)),
    _live("log.cleaner.min.compaction.lag.ms", _LONG, 0, "min.compaction.lag.ms.", AtLeast(0)),
    _live("min.insync.replicas", _INT, 1, "For topics without one.", AtLeast(1)),
    _live("log.preallocate", _BOOL, "false", "preallocate."),
    _live("log.retention.bytes", _LONG, -1, "retention.bytes."),
    _live("log.retention.ms", _LONG, None, "retention.ms.", AtLeast(-1)),
    _fixed("log.retention.minutes", _INT, None, "retention.ms, when not set.", AtLeast(-1)),
    _fixed("log.retention.hours", _INT, 168, "retention.ms, when not set.", AtLeast(-1)),
    _live("log.segment.bytes", _INT, 1024 * MIB, "segment.bytes.", AtLeast(MIN_SEGMENT_BYTES)),
    _live("log.index.size.max.bytes", _INT, 10 * MIB, "segment.index.bytes.", AtLeast(4)),
    _live("log.roll.jitter.ms", _LONG, None, "segment.jitter.ms.", AtLeast(0)),
    _fixed("log.roll.jitter.hours", _INT, 0, "segment.jitter.ms, when not set.", AtLeast(0)),
    _live("log.roll.ms", _LONG, None, "segment.ms.", AtLeast(1)),
    _fixed("log.roll.hours", _INT, 168, "segment.ms, when not set.", AtLeast(1)),
    _live("unclean.leader.election.enable", _BOOL, "false", "For topics without one."),
    _fixed("log.retention.check.interval.ms", _LONG, 5 * MINUTE_MS, "Time between clean-ups.",
           AtLeast(1)),
    _live("log.cleaner.backoff.ms", _LONG, 15_000, "Pause of the compactor with no work.",
          AtLeast(0)),
    _fixed("log.flush.offset.checkpoint.interval.ms", _INT, MINUTE_MS,
           "Time between recovery point checkpoints.", AtLeast(0)),
]  # fmt: skip

_PRODUCERS: Final = [
    _live("producer.id.expiration.ms", _INT, DAY_MS, "Idle time that forgets a producer.",
          AtLeast(1)),
    _fixed("producer.id.expiration.check.interval.ms", _INT, 10 * MINUTE_MS,
           "Time between looks for idle producers.", AtLeast(1)),
    _fixed("transactional.id.expiration.ms", _INT, 7 * DAY_MS,
           "Idle time that forgets a transactional id.", AtLeast(1)),
    _fixed("transaction.max.timeout.ms", _INT, 15 * MINUTE_MS, "Longest transaction.",
           AtLeast(1)),
    _fixed("transaction.partition.verification.enable", _BOOL, "true",
           "Whether the coordinator is asked before a transaction's first batch in a partition."),
    _fixed("transaction.state.log.num.partitions", _INT, 50, "Of __transaction_state.",
           AtLeast(1)),
    _fixed("transaction.state.log.segment.bytes", _INT, 100 * MIB, "Of __transaction_state.",
           AtLeast(MIN_SEGMENT_BYTES)),
]  # fmt: skip

_GROUPS: Final = [
    _fixed("offsets.topic.num.partitions", _INT, 50, "Of __consumer_offsets.", AtLeast(1)),
    _fixed("offsets.topic.segment.bytes", _INT, 100 * MIB, "Of __consumer_offsets.",
           AtLeast(MIN_SEGMENT_BYTES)),
    _fixed("offsets.retention.minutes", _INT, 10_080, "Age at which unused offsets go.",
           AtLeast(1)),
    _fixed("offsets.retention.check.interval.ms", _LONG, 10 * MINUTE_MS,
           "Time between looks for unused offsets.", AtLeast(1)),
    _fixed("offset.metadata.max.bytes", _INT, 4096, "Longest note beside an offset."),
    _fixed("group.min.session.timeout.ms", _INT, 6000, "Of classic members.", AtLeast(0)),
    _fixed("group.max.session.timeout.ms", _INT, 30 * MINUTE_MS, "Of classic members.",
           AtLeast(0)),
    _fixed("group.initial.rebalance.delay.ms", _INT, 0,
           "Wait for more members before the first round.", AtLeast(0)),
    _fixed("group.max.size", _INT, INT_MAX, "Members of a classic group.", AtLeast(1)),
    _fixed("group.consumer.session.timeout.ms", _INT, 45_000, "Silence that ends membership.",
           AtLeast(1), bounded_as="group.consumer.{}.session.timeout.ms"),
    _fixed("group.consumer.min.session.timeout.ms", _INT, 45_000, "Lower bound.", AtLeast(1)),
    _fixed("group.consumer.max.session.timeout.ms", _INT, 60_000, "Upper bound.", AtLeast(1)),
    _fixed("group.consumer.heartbeat.interval.ms", _INT, 5000, "Heartbeat of members.",
           AtLeast(1), bounded_as="group.consumer.{}.heartbeat.interval.ms"),
    _fixed("group.consumer.min.heartbeat.interval.ms", _INT, 5000, "Lower bound.", AtLeast(1)),
    _fixed("group.consumer.max.heartbeat.interval.ms", _INT, 15_000, "Upper bound.", AtLeast(1)),
    _fixed("group.consumer.max.size", _INT, INT_MAX, "Members of a consumer group.", AtLeast(1)),
]  # fmt: skip

_SHARE_GROUPS: Final = [
    _fixed("group.share.session.timeout.ms", _INT, 45_000, "Silence that ends membership.",
           AtLeast(1), bounded_as="group.share.{}.session.timeout.ms"),
    _fixed("group.share.min.session.timeout.ms", _INT, 45_000, "Lower bound.", AtLeast(1)),
    _fixed("group.share.max.session.timeout.ms", _INT, 60_000, "Upper bound.", AtLeast(1)),
    _fixed("group.share.heartbeat.interval.ms", _INT, 5000, "Heartbeat of members.",
           AtLeast(1), bounded_as="group.share.{}.heartbeat.interval.ms"),
    _fixed("group.share.min.heartbeat.interval.ms", _INT, 5000, "Lower bound.", AtLeast(1)),
    _fixed("group.share.max.heartbeat.interval.ms", _INT, 15_000, "Upper bound.", AtLeast(1)),
    _fixed("group.share.max.size", _INT, 200, "Members of a share group.", Between(1, 1000)),
    _fixed("group.share.record.lock.duration.ms", _INT, 30_000, "How long a record is held.",
           Between(1000, HOUR_MS), bounded_as="group.share.{}.record.lock.duration.ms"),
    _fixed("group.share.min.record.lock.duration.ms", _INT, 15_000, "Lower bound.",
           Between(1000, 30_000)),
    _fixed("group.share.max.record.lock.duration.ms", _INT, 60_000, "Upper bound.",
           Between(30_000, HOUR_MS)),
    _fixed("group.share.delivery.count.limit", _INT, 5, "Deliveries before archiving.",
           Between(2, 10), bounded_as="group.share.{}.delivery.count.limit"),
    _fixed("group.share.min.delivery.count.limit", _INT, 2, "Lower bound.", Between(2, 5)),
    _fixed("group.share.max.delivery.count.limit", _INT, 10, "Upper bound.", Between(5, 25)),
    _fixed("group.share.partition.max.record.locks", _INT, 2000, "Records in flight.",
           Between(100, 10_000), bounded_as="group.share.{}.partition.max.record.locks"),
    _fixed("group.share.min.partition.max.record.locks", _INT, 100, "Lower bound.",
           AtLeast(100)),
    _fixed("group.share.max.partition.max.record.locks", _INT, 4000, "Upper bound.",
           Between(100, MAX_RECORD_LOCKS)),
    _fixed("group.share.max.share.sessions", _INT, 2000, "Share sessions of a broker.",
           AtLeast(1)),
    _fixed("group.share.initialize.retry.interval.ms", _INT, 30_000,
           "Wait before a partition's state is initialised again.", AtLeast(1)),
    _fixed("group.share.assignment.interval.ms", _INT, 1000,
           "Shortest time between assignments.", AtLeast(0),
           bounded_as="group.share.{}.assignment.interval.ms"),
    _fixed("group.share.min.assignment.interval.ms", _INT, 0, "Lower bound.", AtLeast(0)),
    _fixed("group.share.max.assignment.interval.ms", _INT, 15_000, "Upper bound.", AtLeast(0)),
    _fixed("errors.deadletterqueue.auto.create.topics.enable", _BOOL, "false",
           "Whether a missing dead-letter topic is created."),
    _fixed("errors.deadletterqueue.topic.name.prefix", _TEXT, "dlq.",
           "How the names of dead-letter topics begin."),
    _fixed("share.coordinator.state.topic.num.partitions", _INT, 50, "Of __share_group_state.",
           AtLeast(1)),
    _fixed("share.coordinator.state.topic.segment.bytes", _INT, 100 * MIB,
           "Of __share_group_state.", AtLeast(MIN_SEGMENT_BYTES)),
    _fixed("share.coordinator.snapshot.update.records.per.snapshot", _INT, 500,
           "Updates between two snapshots.", AtLeast(0)),
    _fixed("share.coordinator.state.topic.prune.interval.ms", _INT, 5 * MINUTE_MS,
           "Time between cuts of __share_group_state.", AtLeast(1)),
    _fixed("share.coordinator.cold.partition.snapshot.interval.ms", _INT, 5 * MINUTE_MS,
           "Time between snapshots of quiet partitions.", AtLeast(1)),
]  # fmt: skip

_REMOTE: Final = [
    _fixed("remote.log.storage.system.enable", _BOOL, "false", "Whether topics can be tiered."),
    _fixed("rsm.config.url", _TEXT, None,
           "The object store: s3://, gs://, az:// or file://; memory: in tests.",
           Matching(r"memory:|[a-z][a-z0-9+.-]*://.+", "s3://bucket/prefix")),
    _fixed("remote.log.metadata.custom.metadata.max.bytes", _INT, 128,
           "Longest note of the store beside a segment.", AtLeast(0)),
    _live("remote.log.index.file.cache.total.size.bytes", _LONG, 1024 * MIB,
          "Disk for cached indexes.", AtLeast(1)),
    _fixed("remote.log.index.file.cache.ttl.ms", _LONG, 15 * MINUTE_MS,
           "Idle time that drops a cached index.", AtLeast(1)),
    _fixed("remote.log.manager.task.interval.ms", _LONG, 30_000, "Time between copies.",
           AtLeast(1)),
    _live("remote.log.manager.copier.thread.pool.size", _INT, 10, "Copies at once.", AtLeast(1)),
    _live("remote.log.manager.expiration.thread.pool.size", _INT, 10, "Deletions at once.",
          AtLeast(1)),
    _live("remote.log.manager.copy.max.bytes.per.second", _LONG, LONG_MAX, "Upload rate.",
          AtLeast(1)),
    _fixed("remote.log.manager.copy.quota.window.num", _INT, 11, "Windows of that rate.",
           AtLeast(1)),
    _fixed("remote.log.manager.copy.quota.window.size.seconds", _INT, 1, "Length of a window.",
           AtLeast(1)),
    _live("remote.log.manager.fetch.max.bytes.per.second", _LONG, LONG_MAX, "Download rate.",
          AtLeast(1)),
    _fixed("remote.log.manager.fetch.quota.window.num", _INT, 11, "Windows of that rate.",
           AtLeast(1)),
    _fixed("remote.log.manager.fetch.quota.window.size.seconds", _INT, 1, "Length of a window.",
           AtLeast(1)),
    _live("remote.fetch.max.wait.ms", _INT, 500, "Longest a fetch waits for the store.",
          AtLeast(1)),
    _live("remote.list.offsets.request.timeout.ms", _LONG, 30_000,
          "Longest a time lookup waits for the store.", AtLeast(1)),
    _live("remote.log.reader.threads", _INT, 10, "Remote reads at once.", AtLeast(1)),
    _fixed("remote.log.reader.max.pending.tasks", _INT, 100, "Remote reads waiting.",
           AtLeast(1)),
    _live("remote.delete.grace.ms", _LONG, 10 * MINUTE_MS,
          "How long objects outlive their deletion.", AtLeast(0)),
    _live("remote.orphan.age.ms", _LONG, HOUR_MS, "Age at which unknown objects go.",
          AtLeast(1)),
    _live("remote.scrub.interval.ms", _LONG, 7 * DAY_MS, "Time between full checks.",
          AtLeast(1)),
    _live("remote.result.cache.bytes", _LONG, 64 * MIB, "Memory for what was read.",
          AtLeast(0)),
    _fixed("remote.partition.delete.events", _BOOL, "true",
           "Whether deletions of partitions are recorded."),
    _fixed("rlmm.config.remote.log.metadata.topic.num.partitions", _INT, 50,
           "Of __remote_log_metadata.", AtLeast(1)),
    _fixed("rlmm.config.remote.log.metadata.topic.replication.factor", _SHORT, 1,
           "Of __remote_log_metadata.", AtLeast(1)),
    _fixed("rlmm.config.remote.log.metadata.consume.wait.ms", _LONG, 2 * MINUTE_MS,
           "Longest wait for an own event to come back.", AtLeast(1)),
    _fixed("rlmm.config.remote.log.metadata.initialization.retry.max.timeout.ms", _LONG,
           2 * MINUTE_MS, "Longest start.", AtLeast(1)),
    _fixed("rlmm.config.remote.log.metadata.initialization.retry.interval.ms", _LONG, 100,
           "Wait before the start is tried again.", AtLeast(1)),
]  # fmt: skip

BROKER_CONFIGS: Final[Mapping[str, ConfigDef]] = table(
    [*_NODE, *_SOCKETS, *_LOG, *_PRODUCERS, *_GROUPS, *_SHARE_GROUPS, *_REMOTE]
)


def broker_config_def(key: str) -> ConfigDef | None:
    """The definition of a key, also of those that the object store or Kafka alone understands."""
    known = BROKER_CONFIGS.get(key)
    if known is not None:
        return known
    if key.startswith(RSM_PREFIX) and key != RSM_PREFIX:
        # What the store's keys mean is not known here: some of them are secrets.
        return ConfigDef(
            key, _TEXT, None, "Handed to the object store.", dynamic=False, sensitive=True
        )
    from ottla.metadata.config.kafka_keys import has_no_effect

    if has_no_effect(key):
        return ConfigDef(key, _TEXT, None, "Kafka's; changes nothing in Ottla.")
    return None
