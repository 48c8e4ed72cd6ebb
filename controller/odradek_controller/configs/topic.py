"""Topic, group and client-metrics configurations of Kafka 4.3.

Sorted by name. Leaves the broker configurations that are synonyms of these to `synonyms`.
"""

from __future__ import annotations

from .definition import BOOLEAN, DOUBLE, INT, LIST, LONG, STRING, Definition
from .valid import at_least, between, distinct, gzip_level, list_of, offset_reset, one_of, throttled_replicas

TOPIC = (
    Definition("cleanup.policy", LIST, "delete", list_of("compact", "delete")),
    Definition("compression.gzip.level", INT, "-1", gzip_level),
    Definition("compression.lz4.level", INT, "9", between(1, 17)),
    Definition(
        "compression.type",
        STRING,
        "producer",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    Definition("compression.zstd.level", INT, "3", between(-131_072, 22)),
    Definition("delete.retention.ms", LONG, "86400000", at_least(0)),
    Definition("file.delete.delay.ms", LONG, "60000", at_least(0)),
    Definition("flush.messages", LONG, "9223372036854775807", at_least(1)),
    Definition("flush.ms", LONG, "9223372036854775807", at_least(0)),
    Definition("follower.replication.throttled.replicas", LIST, "", throttled_replicas),
    Definition("index.interval.bytes", INT, "4096", at_least(0)),
    Definition("internal.segment.bytes", INT, None, internal=True),
    Definition("leader.replication.throttled.replicas", LIST, "", throttled_replicas),
    Definition("local.retention.bytes", LONG, "-2", at_least(-2)),
    Definition("local.retention.ms", LONG, "-2", at_least(-2)),
    Definition("max.compaction.lag.ms", LONG, "9223372036854775807", at_least(1)),
    Definition("max.message.bytes", INT, "1048588", at_least(0)),
    Definition("message.timestamp.after.max.ms", LONG, "3600000", at_least(0)),
    Definition("message.timestamp.before.max.ms", LONG, "9223372036854775807", at_least(0)),
    Definition("message.timestamp.type", STRING, "CreateTime", one_of("CreateTime", "LogAppendTime")),
    Definition("min.cleanable.dirty.ratio", DOUBLE, "0.5", between(0, 1)),
    Definition("min.compaction.lag.ms", LONG, "0", at_least(0)),
    Definition("min.insync.replicas", INT, "1", at_least(1)),
    Definition("preallocate", BOOLEAN, "false"),
    Definition("remote.log.copy.disable", BOOLEAN, "false"),
    Definition("remote.log.delete.on.disable", BOOLEAN, "false"),
    Definition("remote.storage.enable", BOOLEAN, "false"),
    Definition("retention.bytes", LONG, "-1"),
    Definition("retention.ms", LONG, "604800000", at_least(-1)),
    Definition("segment.bytes", INT, "1073741824", at_least(1_048_576)),
    Definition("segment.index.bytes", INT, "10485760", at_least(4)),
    Definition("segment.jitter.ms", LONG, "0", at_least(0)),
    Definition("segment.ms", LONG, "604800000", at_least(1)),
    Definition("unclean.leader.election.enable", BOOLEAN, "false"),
)

GROUP = (
    Definition("consumer.assignment.interval.ms", INT, "1000", at_least(0)),
    Definition("consumer.heartbeat.interval.ms", INT, "5000", at_least(1)),
    Definition("consumer.session.timeout.ms", INT, "45000", at_least(1)),
    Definition("share.assignment.interval.ms", INT, "1000", at_least(0)),
    Definition("share.auto.offset.reset", STRING, "latest", offset_reset),
    Definition("share.delivery.count.limit", INT, "5", at_least(2)),
    Definition("share.heartbeat.interval.ms", INT, "5000", at_least(1)),
    Definition("share.isolation.level", STRING, "read_uncommitted", one_of("read_committed", "read_uncommitted")),
    Definition("share.partition.max.record.locks", INT, "2000", at_least(100)),
    Definition("share.record.lock.duration.ms", INT, "30000", at_least(1000)),
    Definition("share.renew.acknowledge.enable", BOOLEAN, "true"),
    Definition("share.session.timeout.ms", INT, "45000", at_least(1)),
    Definition("streams.assignment.interval.ms", INT, "1000", at_least(0)),
    Definition("streams.heartbeat.interval.ms", INT, "5000", at_least(1)),
    Definition("streams.initial.rebalance.delay.ms", INT, "3000", at_least(0)),
    Definition("streams.num.standby.replicas", INT, "0", at_least(0)),
    Definition("streams.session.timeout.ms", INT, "45000", at_least(1)),
)

CLIENT_METRICS = (
    Definition("interval.ms", INT, "300000"),
    Definition("match", LIST, "", distinct),
    Definition("metrics", LIST, "", distinct),
)
