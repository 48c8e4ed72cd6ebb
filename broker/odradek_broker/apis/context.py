"""The context of a request, which its handler gets together with the request.

Owns the facts about one request (principal, address, listener, version), the authorization checks that handlers share,
and the interfaces of the broker and the connection for handlers. Leaves state to the broker (`ctx.broker`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from odradek_broker.metadata.broker_state import BrokerState
from odradek_broker.security.authenticator import Authenticator
from odradek_broker.security.authorizer import CLUSTER_NAME, OPERATION_BITS, Authorizer, Operation, ResourceType
from odradek_controller.principal import Principal

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek_broker.apis.table import Table
    from odradek_broker.groups.group_coordinator import GroupCoordinator
    from odradek_broker.memory import MemoryBudget
    from odradek_broker.metadata.cluster_ports import ControlRequests, VersionZeroOffsets
    from odradek_broker.metadata.internal_topics import CreationFailureLog
    from odradek_broker.metadata.producer_ids import ProducerIds
    from odradek_broker.metadata.source import MetadataSource
    from odradek_broker.purgatory import Purgatory, Watchers
    from odradek_broker.replication.core.fetch_session import FetchSessions
    from odradek_broker.replication.follower_fetches import FollowerFetches
    from odradek_broker.replication.hosted_partitions import Partitions
    from odradek_broker.replication.log_directories import LogDirectories
    from odradek_broker.replication.replica_alter_log_dirs_manager import ReplicaAlterLogDirsManager
    from odradek_broker.replication.replica_logs import ReplicaLogs
    from odradek_broker.replication.replication_quota_manager import ReplicationQuotaManager
    from odradek_broker.security.quotas import Quotas
    from odradek_broker.transactions.add_partitions_to_txn_manager import AddPartitionsToTxnManager
    from odradek_broker.transactions.transaction_coordinator import TransactionCoordinator
    from odradek_controller.levels import Emulation


class BrokerServices(BrokerState, Protocol):
    """The parts of the broker that handlers reach through `ctx.broker`."""

    metadata_source: MetadataSource
    emulation: Emulation
    version_zero_offsets: VersionZeroOffsets | None
    randbytes: Callable[[int], bytes]
    authorizer: Authorizer
    quotas: Quotas
    purgatory: Purgatory
    first_metadata_watchers: Watchers
    partitions: Partitions
    log_directories: LogDirectories
    replica_logs: ReplicaLogs
    replication_quotas: ReplicationQuotaManager
    alter_log_dirs_manager: ReplicaAlterLogDirsManager
    follower_fetches: FollowerFetches
    fetch_sessions: FetchSessions
    producer_ids: ProducerIds
    creation_failures: CreationFailureLog

    @property
    def control_requests(self) -> ControlRequests: ...

    @property
    def group_coordinator(self) -> GroupCoordinator: ...

    @property
    def transaction_coordinator(self) -> TransactionCoordinator: ...

    @property
    def add_partitions_to_txn_manager(self) -> AddPartitionsToTxnManager: ...


class ListenerRoutes(Protocol):
    """The APIs that a listener serves."""

    @property
    def table(self) -> Table: ...

    @property
    def inter_broker(self) -> bool: ...

    def versions(self) -> dict[int, tuple[int, int]]:
        """Return the lowest and the highest version of each API that is served, by key."""
        ...


class ClientConnection(Protocol):
    """The connection that a request came in on."""

    principal: Principal
    authenticator: Authenticator
    address: str
    listener: str
    closing: bool
    client_software: tuple[str, str]
    memory: MemoryBudget

    @property
    def routes(self) -> ListenerRoutes: ...

    def has_room(self, size: int) -> bool:
        """Return whether the memory budget has room for so many bytes."""
        ...

    def require_room(self, size: int) -> None:
        """Raise MemoryExhausted if there is no room: the handler is called again when there is."""
        ...

    def hold_request(self) -> int | None:
        """Keep the bytes of the request that is being handled valid after the handler returns. Return how many bytes
        the caller gives back to the memory budget when it needs them no more; None if the caller must copy what it
        needs, because the connection reuses the buffer."""
        ...

    def warn(self, event: str, ctx: Context | None = None, **facts: Any) -> None: ...

    def check_authentication(self) -> bool:
        """Take over the authenticator's principal; return whether there is one."""
        ...

    def close(self) -> None: ...


class Context:
    """One request. Slots and positional arguments, because the hot path makes one for each request."""

    __slots__ = ("api_key", "api_version", "broker", "client_id", "connection", "correlation_id")

    def __init__(
        self,
        broker: BrokerServices,
        connection: ClientConnection,
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
        """The client's IP address, without the port."""
        return self.connection.address

    @property
    def listener(self) -> str:
        """The name of the listener that received the request. Metadata returns its endpoints."""
        return self.connection.listener

    @property
    def client_software(self) -> tuple[str, str]:
        """Name and version from ApiVersions v3 and later; ("unknown", "unknown") before."""
        return self.connection.client_software

    @property
    def now_ms(self) -> int:
        """Milliseconds on the clock of timeouts."""
        return self.broker.clock.monotonic_ms()

    @property
    def wall_ms(self) -> int:
        """Milliseconds on the clock of timestamps and retention."""
        return self.broker.clock.wall_ms()

    def refuses_timeout(self, timeout_ms: int) -> bool:
        """Return whether the controller refuses a change with this timeout, because it is 0 or less."""
        return timeout_ms <= 0 and self.broker.metadata_source.refuses_expired_timeouts

    def may(self, operation: Operation, resource: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Return whether the principal may perform the operation. Handlers check in Kafka's order, because the first
        refusal decides the error."""
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


def authorized_operations(ctx: Context, resource: ResourceType, name: str = CLUSTER_NAME) -> int:
    """Return the bit field of the operations that the principal may perform (KIP-430)."""
    bits = OPERATION_BITS[resource]
    if ctx.broker.authorizer.allows_everything:
        return bits
    return sum(
        1 << operation for operation in Operation if bits >> operation & 1 and ctx.may(operation, resource, name)
    )
