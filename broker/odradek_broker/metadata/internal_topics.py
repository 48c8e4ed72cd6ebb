"""The internal topics of groups and transactions: their configurations, and failures of their creation.

Owns the map from broker settings to settings of an internal topic, and the check of these settings at start. Leaves
creation to `topic_creation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from odradek_broker.clock import Clock
from odradek_broker.config import BrokerConfig
from odradek_broker.logger import Logger
from odradek_broker.metadata.view import CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek_controller.commands.new_partitions import MAX_PARTITIONS_PER_REQUEST
from odradek_controller.configs.definition import InvalidConfigError
from odradek_controller.configs.table import Release, Resource, definitions, parse
from odradek_wire.errors import ErrorCode

LOG_INTERVAL_MS = 60_000
"""The least time between two log lines about the same topic."""


class InternalTopic(NamedTuple):
    """The names of the broker settings for an internal topic; `configs` maps a setting of the topic to its broker
    setting."""

    partitions: str
    replication_factor: str
    configs: Mapping[str, str]
    fixed_configs: Mapping[str, str]

    def overrides(self, config: BrokerConfig) -> dict[str, str]:
        """Return the topic's own settings."""
        return {**self.fixed_configs, **{name: config.text(setting) for name, setting in self.configs.items()}}


TOPICS: Mapping[str, InternalTopic] = {
    CONSUMER_OFFSETS: InternalTopic(
        "offsets.topic.num.partitions",
        "offsets.topic.replication.factor",
        {"segment.bytes": "offsets.topic.segment.bytes"},
        {"cleanup.policy": "compact", "compression.type": "producer"},
    ),
    TRANSACTION_STATE: InternalTopic(
        "transaction.state.log.num.partitions",
        "transaction.state.log.replication.factor",
        {
            "min.insync.replicas": "transaction.state.log.min.isr",
            "segment.bytes": "transaction.state.log.segment.bytes",
        },
        {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "unclean.leader.election.enable": "false",
        },
    ),
}


def check_settings(config: BrokerConfig, release: Release) -> None:
    """Raise ValueError if the controller would refuse to create an internal topic with these broker settings.

    Kafka starts with them, logs each refusal, and its clients wait for their coordinator until they time out. `release`
    decides which values a topic's settings may have."""
    known = definitions(Resource.TOPIC, release)
    for topic, internal in TOPICS.items():
        count = config.integer(internal.partitions)
        if count > MAX_PARTITIONS_PER_REQUEST:
            raise ValueError(
                f"{internal.partitions}={count}: {topic} cannot be created, "
                f"at most {MAX_PARTITIONS_PER_REQUEST} partitions can be created at a time"
            )
        for name, setting in internal.configs.items():
            value = config.text(setting)
            try:
                parse(known[name], value)
            except InvalidConfigError as error:
                raise ValueError(f"{setting}={value}: {topic} cannot be created, {error}") from error


class CreationFailureLog:
    """Logs why an internal topic cannot be created: immediately the first time, then at most once a minute."""

    __slots__ = ("_clock", "_log", "_logged_ms")

    def __init__(self, clock: Clock, log: Logger) -> None:
        self._clock = clock
        self._log = log
        self._logged_ms: dict[str, int] = {}

    def report(self, topic: str, error: ErrorCode, reason: str | None) -> None:
        now_ms = self._clock.monotonic_ms()
        logged_ms = self._logged_ms.get(topic)
        if logged_ms is None or now_ms - logged_ms >= LOG_INTERVAL_MS:
            self._logged_ms[topic] = now_ms
            self._log.warning("internal topic cannot be created", topic=topic, error=error.name, reason=reason)
