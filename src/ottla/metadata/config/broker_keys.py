"""The broker keys that Ottla honours, as a table: each is read somewhere, and a test proves it.

Kafka's other keys (`kafka_keys`) are accepted with a warning; any other name is an error. Names,
types and defaults are Kafka's, with these exceptions: the remote log's metadata topic has one
replica, as Ottla does not replicate; `group.initial.rebalance.delay.ms` is 0, as in the
configuration that Kafka ships; the sizes of socket buffers are the system's. Keys marked dynamic
can be altered while the broker runs. Keys that start with `ottla.` are Ottla's own, and so are
`remote.delete.grace.ms`, `remote.orphan.age.ms`, `remote.scrub.interval.ms`,
`remote.result.cache.bytes` and `remote.partition.delete.events`. The keys of security are in
`security_keys`.
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
from ottla.metadata.config.security_keys import FILE_SUFFIX, SECURITY_CONFIGS, ListenerKey
from ottla.metadata.config.table_keys import TABLE_WORKER_CONFIGS
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
"""Keys with this prefix configure the object store; they are passed on unchanged."""
MAX_RECORD_LOCKS: Final = 1_000_000
"""Most records in flight per group and partition; at worst each costs an entry in memory."""

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
    _fixed("node.id", _INT, 1, "Id of this node.", AtLeast(0)),
    _fixed("ottla.nodes", _TEXT, 1,
           "Number of node processes on this machine, 1 to 64; auto: one for each core.",
           Matching(r"auto|[1-9]|[1-5][0-9]|6[0-4]", "1, 4 (at most 64) or auto")),
    _fixed("ottla.nodes.restart.timeout.ms", _INT, 3000,
           "How long partitions wait for their node to restart before other nodes take them over.",
           AtLeast(100)),
    _fixed("broker.session.timeout.ms", _INT, 9000,
           "A node process whose event loop has stood still for so long is killed.", AtLeast(1000)),
    _live("ottla.node.drain", _BOOL, "false",
          "Move all partitions from this node to others, and give it no new ones."),
    _fixed("auto.leader.rebalance.enable", _BOOL, "true",
           "Move partitions to their preferred nodes, and from nodes that lead more to others."),
    _fixed("leader.imbalance.check.interval.seconds", _LONG, 30,
           "How often the leaders of partitions are balanced.", AtLeast(1)),
    _fixed("leader.imbalance.per.broker.percentage", _INT, 10,
           "By how much a node may lead more partitions than the mean.", AtLeast(0)),
    _fixed("default.replication.factor", _INT, 1,
           "Nodes that may lead a partition of a topic that is created without a number.",
           AtLeast(1)),
    _fixed("broker.rack", _TEXT, None, "Rack or zone of this node, sent to clients."),
    _fixed("listeners", _LIST, "PLAINTEXT://127.0.0.1:9092", "Addresses to listen on.", _LISTENERS),
    _fixed("advertised.listeners", _LIST, None,
           "Addresses that clients are given; default: listeners.", _LISTENERS),
    _fixed("listener.security.protocol.map", _LIST,
           "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
           "Security protocol of each listener.", _PROTOCOL_MAP),
    _fixed("controller.listener.names", _LIST, "",
           "Listeners of Kafka's controllers; Ottla has none and does not open them."),
    _fixed("inter.broker.listener.name", _TEXT, None, "Listener that nodes use for each other."),
    _fixed("log.dirs", _LIST, "ottla-data", "Data directories.",
           Matching(r".+", "/var/lib/ottla", least=1)),
    _fixed("auto.create.topics.enable", _BOOL, "true",
           "Create a topic when a client asks for its metadata."),
    _fixed("delete.topic.enable", _BOOL, "true", "Allow topics to be deleted."),
    _fixed("num.partitions", _INT, 1, "Partitions of a topic that is created without a number.",
           AtLeast(1)),
    _fixed("ottla.flush.mode", _TEXT, "journal",
           "When acks=all is answered: after one durable write to a journal for all partitions "
           "(journal), after an fdatasync of each (group), or from the page cache (os).",
           OneOf(("group", "journal", "os"))),
    _fixed("ottla.journal.bytes", _INT, 64 * MIB,
           "Size of the journal at most; it has files of 8 MiB.", Between(16 * MIB, 1024 * MIB)),
    _fixed("ottla.journal.dir", _TEXT, None, "Where the journal is; else in the data directory."),
    _fixed("ottla.journal.extent.max.bytes", _INT, MIB // 4,
           "A partition with more to write than that is synced by itself.", Between(4096, MIB)),
    _fixed("ottla.journal.lost", _TEXT, "refuse",
           "Whether to start without a journal that is damaged or not there (accept): acknowledged "
           "records may be lost.", OneOf(("refuse", "accept"))),
    _fixed("ottla.tail.cache.bytes", _LONG, 64 * MIB,
           "Memory for the newest batches of all logs; consumers at the end are served from it.",
           AtLeast(0)),
]  # fmt: skip

_SOCKETS: Final = [
    _fixed("socket.request.max.bytes", _INT, 100 * MIB,
           "Largest request; a larger one closes the connection.", AtLeast(1)),
    _fixed("socket.send.buffer.bytes", _INT, -1, "SO_SNDBUF; -1: the default of the system.",
           AtLeast(-1)),
    _fixed("socket.receive.buffer.bytes", _INT, -1, "SO_RCVBUF; -1: the default of the system.",
           AtLeast(-1)),
    # With Kafka's 50, clients that reconnect together after a restart wait a second per retry.
    _fixed("socket.listen.backlog.size", _INT, 1024, "Connections that may wait to be accepted.",
           AtLeast(1)),
    _fixed("connections.max.idle.ms", _LONG, 10 * MINUTE_MS,
           "Close a connection that is idle for this long."),
    # Kafka takes 0 too: with exceptions for some listeners or addresses, which there are none of
    # here. It would lock out the administrator who wants to change it back.
    _live("max.connections", _INT, INT_MAX, "Most connections to the broker.", AtLeast(1)),
    _live("max.connections.per.ip", _INT, INT_MAX, "Most connections from one address.",
          AtLeast(1)),
    _live("max.connection.creation.rate", _INT, INT_MAX, "New connections in a second at most.",
          AtLeast(1)),
    _fixed("queued.max.request.bytes", _LONG, 256 * MIB,
           "Stop reading from clients when unserved requests have this many bytes; -1: no limit.",
           AtLeast(-1)),
    _fixed("ottla.queued.max.response.bytes", _LONG, 128 * MIB,
           "Memory for answers that clients have not read, all connections together.",
           AtLeast(MIB)),
    _fixed("fetch.max.bytes", _INT, 55 * MIB, "Largest fetch response.", AtLeast(1024)),
    _fixed("ottla.fetch.mapped", _BOOL, "true",
           "Send records to consumers from mapped files, where the file system is a local one."),
    _fixed("max.incremental.fetch.session.cache.slots", _INT, 1000,
           "Most fetch sessions; the oldest idle one is evicted.", AtLeast(0)),
    _fixed("max.request.partition.size.limit", _INT, 2000,
           "Partitions in one page of DescribeTopicPartitions.", AtLeast(1)),
]  # fmt: skip

# What topics inherit: the defaults stand in TOPIC_CONFIGS' order of synonyms.
_LOG: Final = [
    _live("log.cleanup.policy", _LIST, "delete", "Default of cleanup.policy for topics.",
          CLEANUP_POLICIES),
    _live("compression.type", _TEXT, "producer", "Default of compression.type for topics.",
          OneOf(COMPRESSION_TYPES)),
    _live("ottla.validate.records", _TEXT, "sampled",
          "Default of ottla.validate.records for topics.", OneOf(VALIDATIONS)),
    _live("compression.gzip.level", _INT, -1, "Default of compression.gzip.level for topics.",
          GZIP_LEVELS),
    _live("compression.lz4.level", _INT, 9, "Default of compression.lz4.level for topics.",
          LZ4_LEVELS),
    _live("compression.zstd.level", _INT, 3, "Default of compression.zstd.level for topics.",
          ZSTD_LEVELS),
    _live("log.cleaner.delete.retention.ms", _LONG, DAY_MS,
          "Default of delete.retention.ms for topics.", AtLeast(0)),
    _live("log.segment.delete.delay.ms", _LONG, MINUTE_MS,
          "Default of file.delete.delay.ms for topics.", AtLeast(0)),
    _live("log.flush.interval.messages", _LONG, LONG_MAX, "Default of flush.messages for topics.",
          AtLeast(1)),
    _live("log.flush.interval.ms", _LONG, None, "Default of flush.ms for topics.", AtLeast(0)),
    _fixed("log.flush.scheduler.interval.ms", _LONG, LONG_MAX,
           "Default of flush.ms for topics, if the more exact key is not set.", AtLeast(0)),
    _live("log.index.interval.bytes", _INT, 4096, "Default of index.interval.bytes for topics.",
          AtLeast(0)),
    _live("log.local.retention.bytes", _LONG, -2, "Default of local.retention.bytes for topics.",
          AtLeast(-2)),
    _live("log.local.retention.ms", _LONG, -2, "Default of local.retention.ms for topics.",
          AtLeast(-2)),
    _live("log.cleaner.max.compaction.lag.ms", _LONG, LONG_MAX,
          "Default of max.compaction.lag.ms for topics.", AtLeast(1)),
    _live("message.max.bytes", _INT, MIB + 12, "Default of max.message.bytes for topics.",
          AtLeast(0)),
    _live("log.message.timestamp.after.max.ms", _LONG, HOUR_MS,
          "Default of message.timestamp.after.max.ms for topics.", AtLeast(0)),
    _live("log.message.timestamp.before.max.ms", _LONG, LONG_MAX,
          "Default of message.timestamp.before.max.ms for topics.", AtLeast(0)),
    _live("log.message.timestamp.type", _TEXT, "CreateTime",
          "Default of message.timestamp.type for topics.", TIMESTAMP_TYPES),
    _live("log.cleaner.min.cleanable.ratio", _DOUBLE, 0.5,
          "Default of min.cleanable.dirty.ratio for topics.", Between(0, 1)),
    _live("log.cleaner.min.compaction.lag.ms", _LONG, 0,
          "Default of min.compaction.lag.ms for topics.", AtLeast(0)),
    _live("min.insync.replicas", _INT, 1, "Default of min.insync.replicas for topics.", AtLeast(1)),
    _live("log.preallocate", _BOOL, "false", "Default of preallocate for topics."),
    _live("log.retention.bytes", _LONG, -1, "Default of retention.bytes for topics."),
    _live("log.retention.ms", _LONG, None, "Default of retention.ms for topics.", AtLeast(-1)),
    _fixed("log.retention.minutes", _INT, None,
           "Default of retention.ms for topics, if the more exact key is not set.", AtLeast(-1)),
    _fixed("log.retention.hours", _INT, 168,
           "Default of retention.ms for topics, if the more exact key is not set.", AtLeast(-1)),
    _live("log.segment.bytes", _INT, 1024 * MIB, "Default of segment.bytes for topics.",
          AtLeast(MIN_SEGMENT_BYTES)),
    _live("log.index.size.max.bytes", _INT, 10 * MIB, "Default of segment.index.bytes for topics.",
          AtLeast(4)),
    _live("log.roll.jitter.ms", _LONG, None, "Default of segment.jitter.ms for topics.",
          AtLeast(0)),
    _fixed("log.roll.jitter.hours", _INT, 0,
           "Default of segment.jitter.ms for topics, if the more exact key is not set.",
           AtLeast(0)),
    _live("log.roll.ms", _LONG, None, "Default of segment.ms for topics.", AtLeast(1)),
    _fixed("log.roll.hours", _INT, 168,
           "Default of segment.ms for topics, if the more exact key is not set.", AtLeast(1)),
    _live("unclean.leader.election.enable", _BOOL, "false",
          "Default of unclean.leader.election.enable for topics."),
    _fixed("log.retention.check.interval.ms", _LONG, 5 * MINUTE_MS,
           "Time between two runs of retention.", AtLeast(1)),
    _live("log.cleaner.backoff.ms", _LONG, 15_000,
          "Pause of the log cleaner when there is nothing to compact.", AtLeast(0)),
    _fixed("log.flush.offset.checkpoint.interval.ms", _INT, MINUTE_MS,
           "Time between checkpoints of recovery points.", AtLeast(0)),
]  # fmt: skip

_PRODUCERS: Final = [
    _live("producer.id.expiration.ms", _INT, DAY_MS,
          "Forget a producer that is idle for this long.", AtLeast(1)),
    _fixed("producer.id.expiration.check.interval.ms", _INT, 10 * MINUTE_MS,
           "Time between checks for idle producers.", AtLeast(1)),
    _fixed("transactional.id.expiration.ms", _INT, 7 * DAY_MS,
           "Forget a transactional id that is idle for this long.", AtLeast(1)),
    _fixed("transaction.max.timeout.ms", _INT, 15 * MINUTE_MS,
           "Longest transaction timeout a producer may ask for.", AtLeast(1)),
    _fixed("transaction.partition.verification.enable", _BOOL, "true",
           "Ask the coordinator before a transaction's first batch in a partition."),
    _fixed("transaction.state.log.num.partitions", _INT, 50, "Partitions of __transaction_state.",
           AtLeast(1)),
    _fixed("transaction.state.log.segment.bytes", _INT, 100 * MIB,
           "Segment size of __transaction_state.", AtLeast(MIN_SEGMENT_BYTES)),
]  # fmt: skip

_GROUPS: Final = [
    _fixed("offsets.topic.num.partitions", _INT, 50, "Partitions of __consumer_offsets.",
           AtLeast(1)),
    _fixed("offsets.topic.segment.bytes", _INT, 100 * MIB, "Segment size of __consumer_offsets.",
           AtLeast(MIN_SEGMENT_BYTES)),
    _fixed("offsets.retention.minutes", _INT, 10_080,
           "Delete offsets of an empty group after this time.", AtLeast(1)),
    _fixed("offsets.retention.check.interval.ms", _LONG, 10 * MINUTE_MS,
           "Time between checks for expired offsets.", AtLeast(1)),
    _fixed("offset.metadata.max.bytes", _INT, 4096, "Longest metadata of a committed offset."),
    _fixed("group.min.session.timeout.ms", _INT, 6000,
           "Shortest session timeout of classic members.", AtLeast(0)),
    _fixed("group.max.session.timeout.ms", _INT, 30 * MINUTE_MS,
           "Longest session timeout of classic members.", AtLeast(0)),
    _fixed("group.initial.rebalance.delay.ms", _INT, 0,
           "How long a new classic group waits for more members.", AtLeast(0)),
    _fixed("group.max.size", _INT, INT_MAX, "Most members of a classic group.", AtLeast(1)),
    _fixed("group.consumer.session.timeout.ms", _INT, 45_000,
           "Remove a member after this time without a heartbeat.", AtLeast(1),
           bounded_as="group.consumer.{}.session.timeout.ms"),
    _fixed("group.consumer.min.session.timeout.ms", _INT, 45_000,
           "Smallest consumer.session.timeout.ms of a group.", AtLeast(1)),
    _fixed("group.consumer.max.session.timeout.ms", _INT, 60_000,
           "Largest consumer.session.timeout.ms of a group.", AtLeast(1)),
    _fixed("group.consumer.heartbeat.interval.ms", _INT, 5000,
           "Time between heartbeats of a member.", AtLeast(1),
           bounded_as="group.consumer.{}.heartbeat.interval.ms"),
    _fixed("group.consumer.min.heartbeat.interval.ms", _INT, 5000,
           "Smallest consumer.heartbeat.interval.ms of a group.", AtLeast(1)),
    _fixed("group.consumer.max.heartbeat.interval.ms", _INT, 15_000,
           "Largest consumer.heartbeat.interval.ms of a group.", AtLeast(1)),
    _fixed("group.consumer.max.size", _INT, INT_MAX, "Most members of a consumer group.",
           AtLeast(1)),
]  # fmt: skip

_SHARE_GROUPS: Final = [
    _fixed("group.share.session.timeout.ms", _INT, 45_000,
           "Remove a member after this time without a heartbeat.", AtLeast(1),
           bounded_as="group.share.{}.session.timeout.ms"),
    _fixed("group.share.min.session.timeout.ms", _INT, 45_000,
           "Smallest share.session.timeout.ms of a group.", AtLeast(1)),
    _fixed("group.share.max.session.timeout.ms", _INT, 60_000,
           "Largest share.session.timeout.ms of a group.", AtLeast(1)),
    _fixed("group.share.heartbeat.interval.ms", _INT, 5000, "Time between heartbeats of a member.",
           AtLeast(1), bounded_as="group.share.{}.heartbeat.interval.ms"),
    _fixed("group.share.min.heartbeat.interval.ms", _INT, 5000,
           "Smallest share.heartbeat.interval.ms of a group.", AtLeast(1)),
    _fixed("group.share.max.heartbeat.interval.ms", _INT, 15_000,
           "Largest share.heartbeat.interval.ms of a group.", AtLeast(1)),
    _fixed("group.share.max.size", _INT, 200, "Most members of a share group.", Between(1, 1000)),
    _fixed("group.share.record.lock.duration.ms", _INT, 30_000,
           "How long a delivered record stays locked.", Between(1000, HOUR_MS),
           bounded_as="group.share.{}.record.lock.duration.ms"),
    _fixed("group.share.min.record.lock.duration.ms", _INT, 15_000,
           "Smallest share.record.lock.duration.ms of a group.", Between(1000, 30_000)),
    _fixed("group.share.max.record.lock.duration.ms", _INT, 60_000,
           "Largest share.record.lock.duration.ms of a group.", Between(30_000, HOUR_MS)),
    _fixed("group.share.delivery.count.limit", _INT, 5,
           "Deliveries after which a record is given up.", Between(2, 10),
           bounded_as="group.share.{}.delivery.count.limit"),
    _fixed("group.share.min.delivery.count.limit", _INT, 2,
           "Smallest share.delivery.count.limit of a group.", Between(2, 5)),
    _fixed("group.share.max.delivery.count.limit", _INT, 10,
           "Largest share.delivery.count.limit of a group.", Between(5, 25)),
    _fixed("group.share.partition.max.record.locks", _INT, 2000,
           "Most records in flight per group and partition.", Between(100, 10_000),
           bounded_as="group.share.{}.partition.max.record.locks"),
    _fixed("group.share.min.partition.max.record.locks", _INT, 100,
           "Smallest share.partition.max.record.locks of a group.", AtLeast(100)),
    _fixed("group.share.max.partition.max.record.locks", _INT, 4000,
           "Largest share.partition.max.record.locks of a group.", Between(100, MAX_RECORD_LOCKS)),
    _fixed("group.share.max.share.sessions", _INT, 2000, "Most share sessions of the broker.",
           AtLeast(1)),
    _fixed("group.share.initialize.retry.interval.ms", _INT, 30_000,
           "Pause before the state of a partition is initialized again.", AtLeast(1)),
    _fixed("group.share.assignment.interval.ms", _INT, 1000,
           "Shortest time between two assignments of a group.", AtLeast(0),
           bounded_as="group.share.{}.assignment.interval.ms"),
    _fixed("group.share.min.assignment.interval.ms", _INT, 0,
           "Smallest share.assignment.interval.ms of a group.", AtLeast(0)),
    _fixed("group.share.max.assignment.interval.ms", _INT, 15_000,
           "Largest share.assignment.interval.ms of a group.", AtLeast(0)),
    _fixed("errors.deadletterqueue.auto.create.topics.enable", _BOOL, "false",
           "Create a missing dead-letter topic."),
    _fixed("errors.deadletterqueue.topic.name.prefix", _TEXT, "dlq.",
           "Prefix that names of dead-letter topics must have."),
    _fixed("share.coordinator.state.topic.num.partitions", _INT, 50,
           "Partitions of __share_group_state.", AtLeast(1)),
    _fixed("share.coordinator.state.topic.segment.bytes", _INT, 100 * MIB,
           "Segment size of __share_group_state.", AtLeast(MIN_SEGMENT_BYTES)),
    _fixed("share.coordinator.snapshot.update.records.per.snapshot", _INT, 500,
           "Write a snapshot after this many updates.", AtLeast(0)),
    _fixed("share.coordinator.state.topic.prune.interval.ms", _INT, 5 * MINUTE_MS,
           "Time between deletions of old records in __share_group_state.", AtLeast(1)),
    _fixed("share.coordinator.cold.partition.snapshot.interval.ms", _INT, 5 * MINUTE_MS,
           "Time between snapshots of partitions without updates.", AtLeast(1)),
]  # fmt: skip

_REMOTE: Final = [
    _fixed("remote.log.storage.system.enable", _BOOL, "false", "Allow topics to be tiered."),
    _fixed("rsm.config.url", _TEXT, None,
           "URL of the object store: s3://, gs://, az:// or file://.",
           Matching(r"memory:|[a-z][a-z0-9+.-]*://.+", "s3://bucket/prefix")),
    _fixed("remote.log.metadata.custom.metadata.max.bytes", _INT, 128,
           "Longest custom metadata of a segment.", AtLeast(0)),
    _live("remote.log.index.file.cache.total.size.bytes", _LONG, 1024 * MIB,
          "Disk space for cached indexes of remote segments.", AtLeast(1)),
    _fixed("remote.log.index.file.cache.ttl.ms", _LONG, 15 * MINUTE_MS,
           "Drop a cached index that is unused for this long.", AtLeast(1)),
    _fixed("remote.log.manager.task.interval.ms", _LONG, 30_000,
           "Time between two checks for segments to copy.", AtLeast(1)),
    _live("remote.log.manager.copier.thread.pool.size", _INT, 10, "Most copies at the same time.",
          AtLeast(1)),
    _live("remote.log.manager.expiration.thread.pool.size", _INT, 10,
          "Most deletions at the same time.", AtLeast(1)),
    _live("remote.log.manager.copy.max.bytes.per.second", _LONG, LONG_MAX,
          "Upload limit, in bytes per second.", AtLeast(1)),
    _fixed("remote.log.manager.copy.quota.window.num", _INT, 11,
           "Number of time windows in which the upload rate is measured.", AtLeast(1)),
    _fixed("remote.log.manager.copy.quota.window.size.seconds", _INT, 1, "Length of such a window.",
           AtLeast(1)),
    _live("remote.log.manager.fetch.max.bytes.per.second", _LONG, LONG_MAX,
          "Download limit, in bytes per second.", AtLeast(1)),
    _fixed("remote.log.manager.fetch.quota.window.num", _INT, 11,
           "Number of time windows in which the download rate is measured.", AtLeast(1)),
    _fixed("remote.log.manager.fetch.quota.window.size.seconds", _INT, 1,
           "Length of such a window.", AtLeast(1)),
    _live("remote.fetch.max.wait.ms", _INT, 500, "Longest time a fetch waits for the object store.",
          AtLeast(1)),
    _live("remote.list.offsets.request.timeout.ms", _LONG, 30_000,
          "Longest time a lookup by time waits for the object store.", AtLeast(1)),
    _live("remote.log.reader.threads", _INT, 10, "Most remote reads at the same time.", AtLeast(1)),
    _fixed("remote.log.reader.max.pending.tasks", _INT, 100, "Most remote reads that may wait.",
           AtLeast(1)),
    _live("remote.delete.grace.ms", _LONG, 10 * MINUTE_MS,
          "Keep an object this long after its deletion was decided, for readers that planned it.",
          AtLeast(0)),
    _live("remote.orphan.age.ms", _LONG, HOUR_MS,
          "Delete objects that no segment knows after this time.", AtLeast(1)),
    _live("remote.scrub.interval.ms", _LONG, 7 * DAY_MS,
          "Time between searches of the store for unknown objects.", AtLeast(1)),
    _live("remote.result.cache.bytes", _LONG, 64 * MIB,
          "Memory for remote data that was read too late or ahead.", AtLeast(0)),
    _fixed("remote.partition.delete.events", _BOOL, "true",
           "Write an event when a tiered partition is deleted."),
    _fixed("rlmm.config.remote.log.metadata.topic.num.partitions", _INT, 50,
           "Partitions of __remote_log_metadata.", AtLeast(1)),
    _fixed("rlmm.config.remote.log.metadata.topic.replication.factor", _SHORT, 1,
           "Replicas of __remote_log_metadata.", AtLeast(1)),
    _fixed("rlmm.config.remote.log.metadata.consume.wait.ms", _LONG, 2 * MINUTE_MS,
           "Longest wait until a written event has been read back.", AtLeast(1)),
    _fixed("rlmm.config.remote.log.metadata.initialization.retry.max.timeout.ms", _LONG,
           2 * MINUTE_MS, "Longest time to set up the catalogue at start.", AtLeast(1)),
    _fixed("rlmm.config.remote.log.metadata.initialization.retry.interval.ms", _LONG, 100,
           "Pause before setting it up is tried again.", AtLeast(1)),
]  # fmt: skip

BROKER_CONFIGS: Final[Mapping[str, ConfigDef]] = table(
    [
        *_NODE, *_SOCKETS, *_LOG, *_PRODUCERS, *_GROUPS, *_SHARE_GROUPS, *_REMOTE,
        *SECURITY_CONFIGS, *TABLE_WORKER_CONFIGS,
    ]
)  # fmt: skip


def broker_config_def(key: str) -> ConfigDef | None:
    """The definition of a key, also of those that the object store or Kafka alone understands.

    And of keys for one listener, and of `<key>.file` beside a sensitive key.
    """
    known = BROKER_CONFIGS.get(key)
    if known is not None:
        return known
    if key.endswith(FILE_SUFFIX):
        secret = broker_config_def(key.removesuffix(FILE_SUFFIX))
        if secret is not None and secret.sensitive:
            doc = f"File that holds {secret.name}."
            return ConfigDef(key, _TEXT, None, doc, dynamic=False)
    of_listener = ListenerKey.parse(key)
    if of_listener is not None:
        definition = BROKER_CONFIGS[of_listener.key]
        return definition._replace(name=key, default=None)
    if key.startswith(RSM_PREFIX) and key != RSM_PREFIX:
        # What the store's keys mean is not known here: some of them are secrets.
        return ConfigDef(
            key, _TEXT, None, "Handed to the object store.", dynamic=False, sensitive=True
        )
    from ottla.metadata.config.kafka_keys import has_no_effect

    if has_no_effect(key):
        return ConfigDef(key, _TEXT, None, "Kafka's; changes nothing in Ottla.")
    return None
