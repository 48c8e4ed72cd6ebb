"""The broker's configuration under Kafka's names.

Owns reading typed values out of the given settings and Kafka's defaults (from the controller's definitions), with the
few defaults that differ here. Leaves validation and dynamic changes to the controller; a changed setting arrives as a
new `BrokerConfig`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

# Where we differ from Kafka: a test broker does not let the first member of a group wait for others (issue of the kit).
OUR_DEFAULTS: Mapping[str, str] = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


class BrokerConfig:
    """Immutable. Values read on the hot path are attributes; everything else is asked for by its Kafka name."""

    __slots__ = (
        "_values",
        "auto_create_topics",
        "connections_max_idle_ms",
        "fetch_max_bytes",
        "max_connections",
        "max_connections_per_ip",
        "min_insync_replicas",
        "node_id",
        "request_max_bytes",
        "strict_validation",
    )

    def __init__(self, values: Mapping[str, str], defaults: Mapping[str, str | None]) -> None:
        """`values` are what the user set; `defaults` Kafka's defaults for every name that exists (None: no default)."""
        self._values: dict[str, str | None] = {**defaults, **OUR_DEFAULTS, **values}
        self.node_id = self.integer("node.id") if self.given("node.id") else self.integer("broker.id")
        self.request_max_bytes = self.integer("socket.request.max.bytes")
        self.max_connections = self.integer("max.connections")
        self.max_connections_per_ip = self.integer("max.connections.per.ip")
        self.connections_max_idle_ms = self.integer("connections.max.idle.ms")
        self.auto_create_topics = self.boolean("auto.create.topics.enable")
        self.fetch_max_bytes = self.integer("fetch.max.bytes")
        self.min_insync_replicas = self.integer("min.insync.replicas")
        self.strict_validation = self._values.get("odradek.validation", "header") == "strict"

    def given(self, name: str) -> bool:
        """Is there a value, set or default?"""
        return self._values.get(name) not in (None, "")

    def text(self, name: str) -> str:
        value = self._values[name]
        return "" if value is None else value

    def optional_text(self, name: str) -> str | None:
        return self._values[name]

    def integer(self, name: str) -> int:
        return int(self.text(name))

    def number(self, name: str) -> float:
        return float(self.text(name))

    def boolean(self, name: str) -> bool:
        return self.text(name).strip().lower() == "true"

    def words(self, name: str) -> list[str]:
        """A comma-separated list, without the blanks around its parts."""
        return [word for part in self.text(name).split(",") if (word := part.strip())]

    def log_dirs(self) -> list[Path]:
        """`log.dirs`, or `log.dir` when it is not set, as Kafka."""
        return [Path(word) for word in (self.words("log.dirs") or self.words("log.dir"))]

    def effective(self) -> Mapping[str, str | None]:
        return self._values
