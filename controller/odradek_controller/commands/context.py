"""The context of a command: what it needs besides the image and the request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek_wire.errors import ErrorCode

from ..configs.effective import BrokerLayers, ConfigEntry
from ..configs.table import Release
from ..image import ClusterImage
from ..levels import Emulation, Features
from ..principal import ANONYMOUS, Principal
from ..store import QuorumState


class Refusal(NamedTuple):
    """The error for one entry of a request, with Kafka's message."""

    error: ErrorCode
    message: str | None = None


@dataclass(slots=True)
class PlainTopicEntries:
    """The effective configurations of a topic without overrides, cached until the broker's layers change."""

    layers: BrokerLayers | None = None
    entries: list[ConfigEntry] = field(default_factory=list)

    def of(self, layers: BrokerLayers) -> list[ConfigEntry]:
        if layers != self.layers:
            self.layers, self.entries = layers, layers.topic_entries()
        return self.entries


def _no_quorum() -> QuorumState:
    raise NotImplementedError("this context has no metadata store")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandContext:
    """The values that a command needs of the controller, and two of the request: `principal` and `next_offset`.

    `randbelow(n)` returns 0 ≤ x < n. `static` maps names of broker configurations to their texts.
    """

    node_id: int
    randbytes: Callable[[int], bytes]
    randbelow: Callable[[int], int]
    static: Mapping[str, str] = field(default_factory=dict)
    emulation: Emulation = Emulation.UNION
    features: Features | None = None
    """The levels that UpdateFeatures may set; None for all that the release supports."""
    plain_topics: PlainTopicEntries = field(default_factory=PlainTopicEntries)
    quorum: Callable[[], QuorumState] = _no_quorum
    """The state of the metadata log's quorum, as the store sees it."""
    principal: Principal = ANONYMOUS
    """The principal that sent the request."""
    next_offset: int = 0
    """The offset of the first record that this command returns."""

    @property
    def settable_features(self) -> Features:
        return self.emulation.supported if self.features is None else self.features

    @property
    def release(self) -> Release:
        return self.emulation.release

    def layers(self, image: ClusterImage) -> BrokerLayers:
        """Return the layers of the controller's own broker configuration."""
        return BrokerLayers(image.broker_configs(self.node_id), image.broker_configs(None), self.static, self.release)

    def number(self, image: ClusterImage, name: str) -> int:
        """Return the value of a broker configuration that is a whole number, such as `num.partitions`."""
        return int(self.layers(image).value(name) or 0)

    def flag(self, image: ClusterImage, name: str) -> bool:
        """Return the value of a broker configuration that is true or false, such as `delete.topic.enable`."""
        return (self.layers(image).value(name) or "").strip().lower() == "true"
