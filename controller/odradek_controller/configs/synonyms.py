"""The synonyms of configurations: names that supply the value of a configuration that is not set, with a conversion.

A topic configuration has broker configurations as synonyms (`retention.ms` has `log.retention.ms`, `.minutes`,
`.hours`), and a few broker configurations have others in larger units. The first one that is set applies. Sources:
ServerTopicConfigSynonyms, DynamicBrokerConfig.
"""

from __future__ import annotations

from collections.abc import Callable


def unchanged(value: str) -> str:
    return value


def hours_to_ms(value: str) -> str:
    return _milliseconds(value, 3_600_000)


def minutes_to_ms(value: str) -> str:
    return _milliseconds(value, 60_000)


def _milliseconds(value: str, unit: int) -> str:
    return value if value.strip().startswith("-") else str(int(value) * unit)


Synonyms = tuple[tuple[str, Callable[[str], str]], ...]

_BROKER_NAME = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.downconversion.enable": "log.message.downconversion.enable",
    "message.format.version": "log.message.format.version",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.difference.max.ms": "log.message.timestamp.difference.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}

_RETENTION: Synonyms = (
    ("log.retention.ms", unchanged),
    ("log.retention.minutes", minutes_to_ms),
    ("log.retention.hours", hours_to_ms),
)
_ROLL: Synonyms = (("log.roll.ms", unchanged), ("log.roll.hours", hours_to_ms))
_ROLL_JITTER: Synonyms = (("log.roll.jitter.ms", unchanged), ("log.roll.jitter.hours", hours_to_ms))
_FLUSH: Synonyms = (("log.flush.interval.ms", unchanged), ("log.flush.scheduler.interval.ms", unchanged))

TOPIC_SYNONYMS: dict[str, Synonyms] = {
    **{topic: ((broker, unchanged),) for topic, broker in _BROKER_NAME.items()},
    "flush.ms": _FLUSH,
    "retention.ms": _RETENTION,
    "segment.jitter.ms": _ROLL_JITTER,
    "segment.ms": _ROLL,
}

# The synonyms of a broker configuration begin with its own name.
BROKER_SYNONYMS: dict[str, Synonyms] = {
    row[index][0]: row[index:] for row in (_RETENTION, _ROLL, _ROLL_JITTER, _FLUSH) for index in range(len(row))
}

_GROUP_NAMES_WITH_BROKER_DEFAULT = (
    "consumer.assignment.interval.ms consumer.heartbeat.interval.ms consumer.session.timeout.ms "
    "share.assignment.interval.ms share.delivery.count.limit share.heartbeat.interval.ms "
    "share.partition.max.record.locks share.record.lock.duration.ms share.session.timeout.ms "
    "streams.assignment.interval.ms streams.heartbeat.interval.ms streams.initial.rebalance.delay.ms "
    "streams.num.standby.replicas streams.session.timeout.ms"
)
GROUP_SYNONYMS: dict[str, Synonyms] = {
    name: ((f"group.{name}", unchanged),) for name in _GROUP_NAMES_WITH_BROKER_DEFAULT.split()
}
