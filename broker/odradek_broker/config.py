"""The broker's configuration under Kafka's names.

Owns typed values, and the few defaults that differ from Kafka's. Leaves definitions, synonyms and layers to the
controller's `configs`. Immutable: a dynamic change creates another `BrokerConfig`, so a part reads each value from
`broker.config` when it needs the value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from odradek_controller.configs.effective import BrokerLayers
from odradek_controller.configs.table import Release
from odradek_controller.image import ClusterImage
from odradek_log.log_config import LogConfig

# Differences from Kafka's defaults: the first member of a group does not wait for others, and a cluster of one broker
# can have the internal topics.
OUR_DEFAULTS: Mapping[str, str] = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}

VALIDATION = "odradek.validation"
EMULATE = "odradek.emulate"
SYNC = "odradek.sync"
METRICS_HTTP_PORT = "metrics.http.port"
"""The port of `/metrics` and `/ready` over HTTP, 0 for a free port; none by default."""

REQUEST_ELEMENTS = "odradek.request.elements.max"

OUR_INTEGERS: Mapping[str, int] = {REQUEST_ELEMENTS: 200_000}
"""Settings that Kafka does not have, positive integers, with their defaults. A request with more than
`odradek.request.elements.max` entries in its arrays is refused; the limit of APIs without slices is a twentieth of it
(`network.long_requests`)."""

OUR_SETTINGS: Mapping[str, tuple[str, ...]] = {
    VALIDATION: ("header", "strict"),
    EMULATE: ("union", "3.9", "4.0", "4.3"),
    SYNC: ("true", "false", "always"),
}
"""Settings that Kafka does not have, with their valid values, the default first. With `odradek.validation=strict` a
broker checks every record on append, as Kafka does. With `odradek.sync=false` it never syncs, for data of tests; with
`always` every acknowledgement waits for a sync."""


RACK_AWARE_SELECTOR = "RackAwareReplicaSelector"
"""The only class that `replica.selector.class` may name, without its package."""


def _node_id(static: Mapping[str, str]) -> int:
    """Return `node.id`, or else `broker.id`; 0 when neither is set."""
    for name in ("node.id", "broker.id"):
        text = static.get(name, "").strip()
        if text not in ("", "-1"):
            return max(int(text), 0)
    return 0


class BrokerConfig:
    """Values that hot paths read are attributes; `text`, `integer` and others return any value by its Kafka name."""

    __slots__ = (
        "_cache",
        "_connections_overrides",
        "auto_create_topics",
        "client_layers",
        "connections_max_idle_ms",
        "fetch_max_bytes",
        "inter_broker_listener",
        "layers",
        "max_connections",
        "max_connections_per_ip",
        "node_id",
        "request_elements_max",
        "request_max_bytes",
        "selects_by_rack",
        "static",
        "strict_validation",
    )

    def __init__(
        self,
        static: Mapping[str, str],
        dynamic: Mapping[str, str] | None = None,
        dynamic_default: Mapping[str, str] | None = None,
        release: Release = Release.KAFKA_4_3,
    ) -> None:
        """`static` comes from file, environment and command line, the dynamic settings from the metadata. `release`
        decides which settings and defaults topics have and clients see; the broker itself knows those of all
        releases."""
        self.static = static
        self.node_id = _node_id(static)
        # As KafkaConfig.populateSynonyms: node.id and broker.id are two names of one value.
        ids = dict.fromkeys(("node.id", "broker.id"), str(self.node_id))
        self.layers = BrokerLayers(dynamic or {}, dynamic_default or {}, {**OUR_DEFAULTS, **static, **ids})
        self.client_layers = self.layers
        if release is not self.layers.release:
            self.client_layers = replace(self.layers, release=release)
        self._cache: dict[str, str | None] = {}
        self.request_max_bytes = self.integer("socket.request.max.bytes")
        self.request_elements_max = self.our_integer(REQUEST_ELEMENTS)
        self.max_connections = self.integer("max.connections")
        self.max_connections_per_ip = self.integer("max.connections.per.ip")
        self._connections_overrides = {
            address: int(count)
            for address, _, count in (word.rpartition(":") for word in self.words("max.connections.per.ip.overrides"))
        }
        self.connections_max_idle_ms = self.integer("connections.max.idle.ms")
        self.auto_create_topics = self.boolean("auto.create.topics.enable")
        self.fetch_max_bytes = self.integer("fetch.max.bytes")
        self.inter_broker_listener = self._inter_broker_listener()
        self.selects_by_rack = self.text("replica.selector.class").rpartition(".")[2] == RACK_AWARE_SELECTOR
        self.strict_validation = self.our_setting(VALIDATION) == "strict"

    def with_dynamic(self, image: ClusterImage) -> BrokerConfig:
        """Return this configuration with the dynamic settings of an image."""
        own, of_all = image.broker_configs(self.node_id), image.broker_configs(None)
        return BrokerConfig(self.static, own, of_all, self.client_layers.release)

    def for_release(self, release: Release) -> BrokerConfig:
        """Return this configuration with the settings and defaults of a release."""
        if release is self.client_layers.release:
            return self
        return BrokerConfig(self.static, self.layers.dynamic, self.layers.dynamic_default, release)

    def max_connections_from(self, address: str) -> int:
        """Return the address's entry in `max.connections.per.ip.overrides`, else `max.connections.per.ip`."""
        return self._connections_overrides.get(address, self.max_connections_per_ip)

    def _inter_broker_listener(self) -> str:
        """Return the name of the inter-broker listener."""
        name = self.text("inter.broker.listener.name")
        return (name or self.text("security.inter.broker.protocol")).upper()

    def our_setting(self, name: str) -> str:
        """Return one of `OUR_SETTINGS`. Raises ValueError for an invalid value."""
        value = self.static.get(name, OUR_SETTINGS[name][0])
        if value not in OUR_SETTINGS[name]:
            raise ValueError(f"{name}: {value!r} is invalid, valid values are {', '.join(OUR_SETTINGS[name])}")
        return value

    def our_integer(self, name: str) -> int:
        """Return one of `OUR_INTEGERS`. Raises ValueError for a value that is not a positive integer."""
        text = self.static.get(name, str(OUR_INTEGERS[name]))
        if not (text.isdecimal() and int(text)):
            raise ValueError(f"{name}: {text!r} is not an integer of at least 1")
        return int(text)

    def optional_text(self, name: str) -> str | None:
        """Return the effective value; None if there is none."""
        if name not in self._cache:
            self._cache[name] = self.layers.value(name)
        return self._cache[name]

    def text(self, name: str) -> str:
        return self.optional_text(name) or ""

    def integer(self, name: str) -> int:
        return int(self.text(name))

    def number(self, name: str) -> float:
        return float(self.text(name))

    def boolean(self, name: str) -> bool:
        return self.text(name).strip().lower() == "true"

    def words(self, name: str) -> list[str]:
        """Return the items of a comma-separated list."""
        return [word for part in self.text(name).split(",") if (word := part.strip())]

    def log_dirs(self) -> list[Path]:
        """Return `log.dirs`, else `log.dir`."""
        return [Path(word) for word in (self.words("log.dirs") or self.words("log.dir"))]

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """Return the configuration of a topic's logs; `overrides` are the topic's own settings."""
        return LogConfig.from_configs(self.client_layers.topic_values(overrides))
