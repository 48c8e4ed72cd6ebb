"""The configurations that have an effect: broker configurations listed here, and topic configurations not listed here.

The others are accepted and described; `odradek` warns about those of brokers, and the compatibility page lists those of
topics. Edit these lists when a component begins or ceases to read a configuration.
"""

from __future__ import annotations

from collections.abc import Mapping

_NAMES = """
    advertised.listeners broker.id broker.rack cluster.id controller.listener.names listeners
    listener.security.protocol.map log.dir log.dirs metadata.log.dir node.id
    auto.create.topics.enable default.replication.factor delete.topic.enable num.partitions
    connections.max.idle.ms max.connections max.connections.per.ip max.connections.per.ip.overrides
    max.request.partition.size.limit queued.max.request.bytes socket.listen.backlog.size
    socket.receive.buffer.bytes socket.request.max.bytes socket.send.buffer.bytes
    compression.gzip.level compression.lz4.level compression.type compression.zstd.level fetch.max.bytes
    log.cleaner.backoff.ms log.cleaner.dedupe.buffer.size log.cleaner.delete.retention.ms log.cleaner.enable
    log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size log.cleaner.io.max.bytes.per.second
    log.cleaner.max.compaction.lag.ms log.cleaner.min.cleanable.ratio
    log.cleaner.min.compaction.lag.ms log.cleaner.threads log.cleanup.policy log.flush.interval.messages
    log.flush.interval.ms
    log.flush.offset.checkpoint.interval.ms log.flush.start.offset.checkpoint.interval.ms
    log.flush.scheduler.interval.ms log.index.interval.bytes log.index.size.max.bytes
    log.message.timestamp.after.max.ms log.message.timestamp.before.max.ms log.message.timestamp.type
    log.preallocate log.retention.bytes log.retention.check.interval.ms log.retention.hours
    log.retention.minutes log.retention.ms log.roll.hours log.roll.jitter.hours log.roll.jitter.ms log.roll.ms
    log.segment.bytes log.segment.delete.delay.ms max.incremental.fetch.session.cache.slots message.max.bytes
    min.insync.replicas producer.id.expiration.check.interval.ms producer.id.expiration.ms
    unclean.leader.election.enable
    group.initial.rebalance.delay.ms group.max.session.timeout.ms group.max.size group.min.session.timeout.ms
    offset.metadata.max.bytes offsets.commit.timeout.ms offsets.retention.check.interval.ms
    offsets.retention.minutes offsets.topic.compression.codec offsets.topic.num.partitions
    offsets.topic.replication.factor
    offsets.topic.segment.bytes
    add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms
    transaction.partition.verification.enable transaction.abort.timed.out.transaction.cleanup.interval.ms
    transaction.max.timeout.ms transaction.remove.expired.transaction.cleanup.interval.ms
    transaction.state.log.min.isr transaction.state.log.num.partitions transaction.state.log.replication.factor
    transaction.state.log.segment.bytes transactional.id.expiration.ms
    alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds
    auto.leader.rebalance.enable inter.broker.listener.name leader.imbalance.check.interval.seconds
    leader.imbalance.per.broker.percentage num.replica.fetchers replica.fetch.backoff.ms replica.fetch.max.bytes
    replica.fetch.min.bytes replica.fetch.response.max.bytes replica.fetch.wait.max.ms
    replica.high.watermark.checkpoint.interval.ms replica.lag.time.max.ms replica.selector.class
    replica.socket.timeout.ms replication.quota.window.num replication.quota.window.size.seconds
    request.timeout.ms security.inter.broker.protocol
    controlled.shutdown.enable controlled.shutdown.max.retries controlled.shutdown.retry.backoff.ms
    control.plane.listener.name controller.socket.timeout.ms zookeeper.connect zookeeper.session.timeout.ms
"""
IN_USE = frozenset(_NAMES.split())

_NO_REMOTE_STORAGE = "Stored, but without effect, because there is no remote storage; as in Kafka without it."
TOPIC_WITHOUT_EFFECT: Mapping[str, str] = {
    "local.retention.bytes": _NO_REMOTE_STORAGE,
    "local.retention.ms": _NO_REMOTE_STORAGE,
    "message.format.version": "Only in Kafka 3.9. Stored, but as in Kafka since 3.0 all records have format 2.",
    "remote.log.copy.disable": _NO_REMOTE_STORAGE,
    "remote.log.delete.on.disable": _NO_REMOTE_STORAGE,
    "remote.storage.enable": "`true` is refused with INVALID_CONFIG, as in a Kafka without remote storage.",
}
"""Topic configurations without effect, each with a sentence in Markdown."""

TOPIC_IN_ANOTHER_WAY: Mapping[str, str] = {
    "preallocate": "The log reserves the space on the disk, but the file is only as long as its records; on Linux "
    "only. If the disk has too little space, the log reserves none.",
}
"""Topic configurations whose effect differs from Kafka's, each with a sentence in Markdown."""


def has_effect(name: str) -> bool:
    """Return whether a broker configuration has an effect."""
    return name in IN_USE
