"""One broker: what every handler reaches through `ctx.broker`.

Owns the parts of a broker and the one way in which its state changes, `apply(delta)`. Leaves sockets to `network`,
requests to `apis`, and putting the parts of a process together to `node`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek_broker.authorizer import AllowAll, Authorizer
from odradek_broker.clock import Clock
from odradek_broker.config import BrokerConfig
from odradek_broker.interceptors import Interceptors
from odradek_broker.partitions import Partitions
from odradek_broker.purgatory import Purgatory
from odradek_broker.quotas import Quotas, Unlimited
from odradek_broker.timers import Timers

if TYPE_CHECKING:
    from odradek_controller.controller import Controller

    from odradek_broker.coordinators.groups import GroupCoordinators
    from odradek_controller.image import ClusterImage, MetadataDelta


class Broker:
    """See the attributes; everything enters through the constructor."""

    image: ClusterImage
    groups: GroupCoordinators

    def __init__(
        self,
        config: BrokerConfig,
        controller: Controller,
        clock: Clock,
        timers: Timers,
        randbytes: Callable[[int], bytes],
        authorizer: Authorizer | None = None,
        quotas: Quotas | None = None,
    ) -> None:
        self.config = config
        self.node_id = config.node_id
        self.controller = controller
        self.clock = clock
        self.timers = timers
        self.randbytes = randbytes
        self.authorizer: Authorizer = authorizer or AllowAll()
        self.quotas: Quotas = quotas or Unlimited()
        self.interceptors = Interceptors()
        self.purgatory = Purgatory(timers)
        self.partitions = Partitions()

    def apply(self, delta: MetadataDelta) -> None:
        """The broker's only input: bring partitions, coordinators and configuration in line with the new image."""
        self.image = delta.image
