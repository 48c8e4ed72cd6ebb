"""What commands need besides the image: the controller's static configuration, its release, and randomness."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek_wire.errors import ErrorCode

from ..configs.effective import BrokerLayers, Entry
from ..configs.table import Release
from ..image import ClusterImage


class Refusal(NamedTuple):
    """Why something cannot be done: the client's fault, in Kafka's words."""

    error: ErrorCode
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """`randbelow(n)` gives 0 ≤ x < n. `static` holds the texts of file and command line."""

    node_id: int
    randbytes: Callable[[int], bytes]
    randbelow: Callable[[int], int]
    static: Mapping[str, str] = field(default_factory=dict)
    release: Release = Release.KAFKA_4_3

    def layers(self, image: ClusterImage) -> BrokerLayers:
        """The controller's view of broker configurations."""
        return BrokerLayers(image.broker_configs(self.node_id), image.broker_configs(None), self.static, self.release)

    def number(self, image: ClusterImage, name: str) -> int:
        """A whole number among the broker configurations, such as `num.partitions`."""
        return int(self.layers(image).value(name) or 0)

    def flag(self, image: ClusterImage, name: str) -> bool:
        return (self.layers(image).value(name) or "").strip().lower() == "true"


@dataclass(slots=True)
class PlainTopicEntries:
    """Effective configurations of a topic without overrides, computed once per state of the broker's layers."""

    layers: BrokerLayers | None = None
    entries: list[Entry] = field(default_factory=list)

    def of(self, layers: BrokerLayers) -> list[Entry]:
        if layers != self.layers:
            self.layers, self.entries = layers, layers.topic_entries()
        return self.entries
