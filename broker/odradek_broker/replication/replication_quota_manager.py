"""The throttles of one broker: as the source of replicas, as their destination, and between its own log directories.

Owns keeping them in line with the metadata. The rates are dynamic configurations of brokers, the replicas are
configurations of topics; both are Kafka's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek_broker.replication.core.replication_quota import ReplicationQuota, rate_of
from odradek_controller.configs.table import Resource

if TYPE_CHECKING:
    from odradek_broker.config import BrokerConfig
    from odradek_controller.image import MetadataDelta


class ReplicationQuotaManager:
    def __init__(self, config: BrokerConfig) -> None:
        self._broker_id = config.node_id
        windows = config.integer("replication.quota.window.num")
        window_ms = config.integer("replication.quota.window.size.seconds") * 1000
        self.leader = ReplicationQuota(windows, window_ms)
        self.follower = ReplicationQuota(windows, window_ms)
        self.moves = ReplicationQuota(
            config.integer("alter.log.dirs.replication.quota.window.num"),
            config.integer("alter.log.dirs.replication.quota.window.size.seconds") * 1000,
        )

    def apply(self, delta: MetadataDelta) -> None:
        image = delta.image
        for resource in delta.configs:
            if resource.type == Resource.TOPIC:
                overrides = image.topic_configs(resource.name)
                for name, throttle in (("leader", self.leader), ("follower", self.follower)):
                    replicas = overrides.get(f"{name}.replication.throttled.replicas", "")
                    throttle.configure(resource.name, replicas, self._broker_id)
        own, of_all = image.broker_configs(self._broker_id), image.broker_configs(None)
        self.leader.bytes_per_second = rate_of("leader.replication.throttled.rate", own, of_all)
        self.follower.bytes_per_second = rate_of("follower.replication.throttled.rate", own, of_all)
        self.moves.bytes_per_second = rate_of("replica.alter.log.dirs.io.max.bytes.per.second", own, of_all)
