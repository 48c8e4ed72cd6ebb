"""The metadata source of a broker whose controller runs in the same process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection

from odradek_controller.controller import Controller
from odradek_controller.image import ClusterImage, MetadataDelta
from odradek_controller.levels import ApiRanges, Emulation


class EmbeddedSource:
    """A `MetadataSource` over the controller of this process."""

    refuses_expired_timeouts = True
    unserved_apis: Collection[int] = ()
    stores_features = True
    stores_client_metrics = True

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    @property
    def image(self) -> ClusterImage:
        return self._controller.image

    @property
    def emulation(self) -> Emulation:
        return self._controller.emulation

    @property
    def apis(self) -> ApiRanges | None:
        return self._controller.emulation.apis

    def subscribe(self, listener: Callable[[MetadataDelta], AsyncIterator[None] | None]) -> Callable[[], None]:
        return self._controller.subscribe(listener)
