"""Client quotas: the throttle time of each response.

Owns the interface `Quotas` and its default, no quotas. Leaves muting the connection to `network.exchange`: as in Kafka
(KIP-219), the broker sends the response immediately with its `throttle_time_ms`, and then handles no request of the
connection for that time. With quotas, no request takes a fast path.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from odradek_broker.config import BrokerConfig
from odradek_controller.image import MetadataDelta
from odradek_controller.principal import Principal
from odradek_wire.message import Message


@dataclass(frozen=True, slots=True)
class HandledRequest:
    """A request and its response, before the response is encoded. `response` is None if the client expects none
    (acks=0); `request_bytes` includes the header."""

    api_key: int
    principal: Principal
    client_id: str | None
    request_bytes: int
    response: Message | None


class Quotas(Protocol):
    """Measures requests against quotas. Its methods do no I/O, because connections do not await them."""

    @property
    def unlimited(self) -> bool:
        """Whether `throttle_ms` returns 0 for every request, so that the hot path need not call it."""
        ...

    def throttle_ms(self, request: HandledRequest) -> int:
        """Record a request, and return for how many milliseconds to mute its connection."""
        ...

    def apply(self, delta: MetadataDelta) -> None:
        """Apply the changed quotas of a metadata delta."""
        ...


class Unlimited:
    """The quotas of a broker that has none."""

    __slots__ = ()

    unlimited = True

    def throttle_ms(self, request: HandledRequest) -> int:
        return 0

    def apply(self, delta: MetadataDelta) -> None:
        pass


def unlimited_quotas(config: BrokerConfig) -> Quotas:
    return Unlimited()
