"""Broker configurations that Kafka 4 has removed, each with the reason or the replacement."""

from __future__ import annotations

_WITH_ZOOKEEPER = "ZooKeeper mode ended with Kafka 3.9"
_FORMAT = "Kafka 4 writes record batches of format 2 only"

_REASONS = {
    "advertised.host.name": "use advertised.listeners",
    "advertised.port": "use advertised.listeners",
    "auto.include.jmx.reporter": "name the JMX reporter in metric.reporters",
    "broker.id.generation.enable": f"{_WITH_ZOOKEEPER}: set node.id",
    "control.plane.listener.name": f"{_WITH_ZOOKEEPER}: use controller.listener.names",
    "controlled.shutdown.max.retries": f"{_WITH_ZOOKEEPER}: a broker requests its shutdown with heartbeats",
    "controlled.shutdown.retry.backoff.ms": f"{_WITH_ZOOKEEPER}: a broker requests its shutdown with heartbeats",
    "delegation.token.master.key": "renamed to delegation.token.secret.key",
    "eligible.leader.replicas.enable": "it is the feature eligible.leader.replicas.version now",
    "group.share.enable": "it is the feature share.version now",
    "group.share.max.groups": "share groups are limited by group.share.max.size and the coordinator's memory",
    "leader.imbalance.per.broker.percentage": f"{_WITH_ZOOKEEPER}: use leader.imbalance.check.interval.seconds",
    "group.coordinator.new.enable": "the new group coordinator is the only one",
    "host.name": "use listeners",
    "inter.broker.protocol.version": "it is the feature metadata.version now",
    "log.message.downconversion.enable": _FORMAT,
    "log.message.format.version": _FORMAT,
    "log.message.timestamp.difference.max.ms": "use log.message.timestamp.before.max.ms and …after.max.ms",
    "metadata.log.segment.min.bytes": "renamed to internal.metadata.log.segment.bytes",
    "offsets.commit.required.acks": "commits always wait for all in-sync replicas",
    "port": "use listeners",
    "quota.consumer.default": "set quotas with kafka-configs",
    "quota.producer.default": "set quotas with kafka-configs",
    "reserved.broker.max.id": f"{_WITH_ZOOKEEPER}: set node.id",
    "zookeeper.": _WITH_ZOOKEEPER,
    "password.encoder.": f"{_WITH_ZOOKEEPER}, and passwords were encoded only there",
}


def why_removed(name: str) -> str | None:
    """Return why Kafka 4 has removed this broker configuration; None if it has not."""
    if name in _REASONS:
        return _REASONS[name]
    prefix = next((known for known in _REASONS if known.endswith(".") and name.startswith(known)), None)
    return None if prefix is None else _REASONS[prefix]
