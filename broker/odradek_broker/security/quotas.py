"""Client quotas: the throttle time of each response.

Owns the protocol of quotas, and its default, no quotas. Leaves muting the connection to `network.exchange`: as in
Kafka (KIP-219), the broker sends the response immediately with its `throttle_time_ms`, and does not read the connection
for that long. A broker with quotas serves no request by a fast path.
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
    """A request with its response, which is not encoded yet. `response` is None if the client expects none (acks=0);
    `request_bytes` counts the header, too."""

    api_key: int
    principal: Principal
    client_id: str | None
    request_bytes: int
    response: Message | None


class Quotas(Protocol):
    """Measures requests against quotas. Decides without I/O, because connections do not wait for it."""

    @property
    def unlimited(self) -> bool:
        """Whether `throttle_ms` returns 0 for every request, so that the hot path need not call it."""
        ...

    def throttle_ms(self, request: HandledRequest) -> int:
        """Record a request and return for how many milliseconds its connection is muted; 0 for none."""
        ...

    def apply(self, delta: MetadataDelta) -> None:
        """Take over the quotas of a new metadata image."""
        ...


class Unlimited:
    """The quotas of a broker without any."""

    __slots__ = ()

    unlimited = True

    def throttle_ms(self, request: HandledRequest) -> int:
        return 0

    def apply(self, delta: MetadataDelta) -> None:
        pass


def unlimited(config: BrokerConfig) -> Quotas:
    return Unlimited()
