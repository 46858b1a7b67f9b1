"""Kafka's broker keys that change nothing here, so that a `server.properties` of Kafka's works.

They are accepted, stored and shown like other keys, and a warning names those that are set. What
they tune does not exist in Ottla: replication, controllers, thread pools, purgatories, tickets of
Kerberos. No key that protects a cluster is among them: those are honoured or refused
(`security_keys`).

The names are those of Kafka 4.3, and those that Kafka 4.0 dropped.
"""

from __future__ import annotations

from typing import Final

WITHOUT_EFFECT: Final = frozenset(
    """
    add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms
    alter.log.dirs.replication.quota.window.num
    alter.log.dirs.replication.quota.window.size.seconds
    background.threads broker.heartbeat.interval.ms
    controlled.shutdown.enable
    controller.performance.always.log.threshold.ms controller.performance.sample.period.ms
    controller.quorum.append.linger.ms controller.quorum.auto.join.enable
    controller.quorum.bootstrap.servers controller.quorum.election.backoff.max.ms
    controller.quorum.election.timeout.ms controller.quorum.fetch.max.bytes
    controller.quorum.fetch.snapshot.max.bytes controller.quorum.fetch.timeout.ms
    controller.quorum.request.timeout.ms controller.quorum.retry.backoff.ms
    controller.quorum.voters
    controller.socket.timeout.ms cordoned.log.dirs
    delete.records.purgatory.purge.interval.requests early.start.listeners
    fetch.purgatory.purge.interval.requests follower.fetch.last.tiered.offset.enable
    follower.replication.throttled.rate group.consumer.assignment.interval.ms
    group.consumer.assignors group.consumer.max.assignment.interval.ms
    group.consumer.migration.policy group.consumer.min.assignment.interval.ms
    group.consumer.regex.refresh.interval.ms group.coordinator.append.linger.ms
    group.coordinator.background.threads group.coordinator.cached.buffer.max.bytes
    group.coordinator.rebalance.protocols group.coordinator.threads group.share.assignors
    group.share.persister.class.name group.streams.assignment.interval.ms
    group.streams.heartbeat.interval.ms group.streams.initial.rebalance.delay.ms
    group.streams.max.assignment.interval.ms group.streams.max.heartbeat.interval.ms
    group.streams.max.session.timeout.ms group.streams.max.size
    group.streams.max.standby.replicas group.streams.min.assignment.interval.ms
    group.streams.min.heartbeat.interval.ms group.streams.min.session.timeout.ms
    group.streams.num.standby.replicas group.streams.session.timeout.ms
    initial.broker.registration.timeout.ms internal.metadata.delete.delay.millis
    internal.metadata.log.segment.bytes internal.metadata.max.batch.size.in.bytes
    kafka.metrics.polling.interval.secs kafka.metrics.reporters
    leader.replication.throttled.rate
    log.cleaner.dedupe.buffer.size log.cleaner.enable log.cleaner.io.buffer.load.factor
    log.cleaner.io.buffer.size log.cleaner.io.max.bytes.per.second log.cleaner.threads
    log.dir.failure.timeout.ms log.flush.start.offset.checkpoint.interval.ms
    log.initial.task.delay.ms metadata.log.dir metadata.log.max.record.bytes.between.snapshots
    metadata.log.max.snapshot.interval.ms metadata.log.segment.bytes metadata.log.segment.ms
    metadata.max.idle.interval.ms metadata.max.retention.bytes metadata.max.retention.ms
    metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
    num.io.threads num.network.threads num.recovery.threads.per.data.dir
    num.replica.alter.log.dirs.threads num.replica.fetchers offsets.commit.timeout.ms
    offsets.load.buffer.size offsets.topic.compression.codec offsets.topic.replication.factor
    process.roles producer.purgatory.purge.interval.requests queued.max.requests
    remote.log.manager.follower.thread.pool.size
    remote.log.manager.task.retry.backoff.max.ms remote.log.manager.task.retry.backoff.ms
    remote.log.manager.task.retry.jitter remote.log.manager.thread.pool.size
    remote.log.metadata.manager.class.name remote.log.metadata.manager.class.path
    remote.log.metadata.manager.impl.prefix remote.log.metadata.manager.listener.name
    remote.log.storage.manager.class.name remote.log.storage.manager.class.path
    remote.log.storage.manager.impl.prefix replica.alter.log.dirs.io.max.bytes.per.second
    replica.fetch.backoff.ms replica.fetch.max.bytes replica.fetch.min.bytes
    replica.fetch.response.max.bytes replica.fetch.wait.max.ms
    replica.high.watermark.checkpoint.interval.ms replica.lag.time.max.ms replica.selector.class
    replica.socket.receive.buffer.bytes replica.socket.timeout.ms replication.quota.window.num
    replication.quota.window.size.seconds request.timeout.ms
    rlmm.config.remote.log.metadata.topic.min.isr
    rlmm.config.remote.log.metadata.topic.retention.ms sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin sasl.kerberos.ticket.renew.jitter
    sasl.kerberos.ticket.renew.window.factor security.inter.broker.protocol
    server.max.startup.time.ms share.coordinator.append.linger.ms
    share.coordinator.cached.buffer.max.bytes share.coordinator.load.buffer.size
    share.coordinator.state.topic.compression.codec share.coordinator.state.topic.min.isr
    share.coordinator.state.topic.replication.factor share.coordinator.threads
    share.coordinator.write.timeout.ms share.fetch.purgatory.purge.interval.requests
    ssl.protocol socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
    telemetry.max.bytes transaction.abort.timed.out.transaction.cleanup.interval.ms
    transaction.remove.expired.transaction.cleanup.interval.ms
    transaction.state.log.load.buffer.size transaction.state.log.min.isr
    transaction.state.log.replication.factor transaction.two.phase.commit.enable
    unclean.leader.election.interval.ms unstable.api.versions.enable
    unstable.feature.versions.enable
    """.split()  # noqa: SIM905  # two hundred names read better so
)
DROPPED_BY_KAFKA: Final = frozenset(
    """
    auto.include.jmx.reporter broker.id.generation.enable control.plane.listener.name
    controlled.shutdown.max.retries controlled.shutdown.retry.backoff.ms
    eligible.leader.replicas.enable group.coordinator.new.enable inter.broker.protocol.version
    log.message.downconversion.enable log.message.format.version
    log.message.timestamp.difference.max.ms password.encoder.cipher.algorithm
    password.encoder.iterations password.encoder.key.length
    password.encoder.keyfactory.algorithm password.encoder.old.secret password.encoder.secret
    reserved.broker.max.id zookeeper.connect zookeeper.connection.timeout.ms
    zookeeper.max.in.flight.requests zookeeper.metadata.migration.enable
    zookeeper.session.timeout.ms zookeeper.set.acl
    """.split()  # noqa: SIM905  # two hundred names read better so
)
SYNONYMS: Final = {"broker.id": "node.id", "log.dir": "log.dirs"}
"""Older names of keys; the newer one wins where both are set."""


def has_no_effect(key: str) -> bool:
    return key in WITHOUT_EFFECT or key in DROPPED_BY_KAFKA
