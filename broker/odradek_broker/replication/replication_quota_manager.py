"""The replication quotas of one broker: as leader, as follower, and for moves between its own log directories.

Owns applying metadata deltas to the quotas: rates are dynamic configurations of brokers, throttled replicas are
configurations of topics (Kafka's ReplicationQuotaManager).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek_broker.replication.core.replication_quota import ReplicationQuota, rate_of
from odradek_controller.configs.table import Resource

if TYPE_CHECKING:
    from odradek_broker.config import BrokerConfig
    from odradek_controller.image import MetadataDelta


class ReplicationQuotaManager:
    """The three quotas of a broker; `apply` is called with each delta."""

    def __init__(self, config: BrokerConfig) -> None:
        self._broker_id = config.node_id
        windows = config.integer("replication.quota.window.num")
        window_ms = config.integer("replication.quota.window.size.seconds") * 1000
        self.leader = ReplicationQuota(windows, window_ms)
        self.follower = ReplicationQuota(windows, window_ms)
        self.alter_log_dirs = ReplicationQuota(
            config.integer("alter.log.dirs.replication.quota.window.num"),
            config.integer("alter.log.dirs.replication.quota.window.size.seconds") * 1000,
        )

    def apply(self, delta: MetadataDelta) -> None:
        """Apply the configurations that the delta changed."""
        image = delta.image
        for resource in delta.configs:
            if resource.type == Resource.TOPIC:
                overrides = image.topic_configs(resource.name)
                for name, quota in (("leader", self.leader), ("follower", self.follower)):
                    replicas = overrides.get(f"{name}.replication.throttled.replicas", "")
                    quota.configure(resource.name, replicas, self._broker_id)
        own, cluster_wide = image.broker_configs(self._broker_id), image.broker_configs(None)
        self.leader.bytes_per_second = rate_of("leader.replication.throttled.rate", own, cluster_wide)
        self.follower.bytes_per_second = rate_of("follower.replication.throttled.rate", own, cluster_wide)
        self.alter_log_dirs.bytes_per_second = rate_of(
            "replica.alter.log.dirs.io.max.bytes.per.second", own, cluster_wide
        )
