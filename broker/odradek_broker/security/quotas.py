"""The throttle stage: every response passes here before it is encoded.

Owns the decision how long a client is to be throttled. As in Kafka (KIP-219) the answer goes out at once with its
`throttle_time_ms`, and the connection is not read for that long. Leaves muting to `network.exchange`. Client quotas
themselves are not served yet, so that `Unlimited` is the only implementation.
"""

from __future__ import annotations

from typing import Protocol

from odradek_controller.principal import Principal


class Quotas(Protocol):
    @property
    def unlimited(self) -> bool:
        """True lets the hot path skip the question."""
        ...

    def throttle_ms(self, principal: Principal, client_id: str | None, request_size: int) -> int:
        """Record a request and return for how long its connection is muted, in milliseconds; 0: not at all."""
        ...


class Unlimited:
    __slots__ = ()

    unlimited = True

    def throttle_ms(self, principal: Principal, client_id: str | None, request_size: int) -> int:
        return 0
