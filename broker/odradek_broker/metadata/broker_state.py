"""The state of a broker that its parts read: identity, image, configuration, clocks and the controller channel."""

from __future__ import annotations

from typing import Protocol

from odradek_broker.clock import Clock
from odradek_broker.config import BrokerConfig
from odradek_broker.logger import Logger
from odradek_broker.metadata.controller_channel import ControllerChannel
from odradek_broker.timers import Timers
from odradek_controller.image import ClusterImage


class BrokerState(Protocol):
    """A part keeps this object and reads it again after each await, because metadata deltas replace image and
    configuration."""

    @property
    def node_id(self) -> int: ...

    @property
    def epoch(self) -> int:
        """The epoch of this broker's registration; -1 before it."""
        ...

    @property
    def image(self) -> ClusterImage: ...

    @property
    def has_metadata(self) -> bool:
        """Whether this broker has received its first metadata."""
        ...

    @property
    def config(self) -> BrokerConfig: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def timers(self) -> Timers: ...

    @property
    def log(self) -> Logger: ...

    @property
    def controller_channel(self) -> ControllerChannel: ...
