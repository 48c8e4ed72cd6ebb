"""Who is asking: what every handler is given beside the request itself.

Owns the facts about one request (who, from where, which version) and the short questions that every handler asks.
Leaves state to the broker, which is reached through `ctx.broker`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek_broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from odradek_controller.principal import Principal

if TYPE_CHECKING:
    from odradek_broker.broker import Broker
    from odradek_broker.network.connection import Connection


class Context:
    """One request in flight. Plain slots: one is made per request on the hot path."""

    __slots__ = ("api_key", "api_version", "broker", "client_id", "connection", "correlation_id")

    def __init__(
        self,
        broker: Broker,
        connection: Connection,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
    ) -> None:
        self.broker = broker
        self.connection = connection
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id

    @property
    def principal(self) -> Principal:
        return self.connection.principal

    @property
    def address(self) -> str:
        """The client's IP address, without the port, as Kafka's client host."""
        return self.connection.address

    @property
    def listener(self) -> str:
        """Name of the listener the request came in on; Metadata answers with that listener's endpoints."""
        return self.connection.listener

    @property
    def client_software(self) -> tuple[str, str]:
        """Name and version from ApiVersions v3+; ("unknown", "unknown") before."""
        return self.connection.client_software

    @property
    def now_ms(self) -> int:
        """The clock of timeouts."""
        return self.broker.clock.monotonic_ms()

    @property
    def wall_ms(self) -> int:
        """The clock of records and retention."""
        return self.broker.clock.wall_ms()

    def expired(self, timeout_ms: int) -> bool:
        """Return whether the controller refuses a change because the client gives it no time."""
        return timeout_ms <= 0 and self.broker.metadata_source.refuses_expired

    def may(self, operation: Operation, resource: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Ask the authorizer. Callers ask in Kafka's order, since the first refusal decides the error."""
        authorizer = self.broker.authorizer
        return authorizer.allows_everything or authorizer.allows(
            self.connection.principal, self.connection.address, operation, resource, name
        )

    def may_topic(self, operation: Operation, topic: str) -> bool:
        return self.may(operation, ResourceType.TOPIC, topic)

    def may_group(self, operation: Operation, group_id: str) -> bool:
        return self.may(operation, ResourceType.GROUP, group_id)

    def may_cluster(self, operation: Operation) -> bool:
        return self.may(operation, ResourceType.CLUSTER)
