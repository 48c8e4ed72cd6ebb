"""Authorization: Kafka's operations and resource types, and the authorizer that handlers ask.

Owns the interface `Authorizer` and its default, which allows everything. Leaves the order of an API's checks to its
handler, because the first refusal decides the error.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

from odradek_broker.config import BrokerConfig
from odradek_controller.image import MetadataDelta
from odradek_controller.principal import Principal


class Operation(IntEnum):
    """AclOperation, with Kafka's codes."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """ResourceType, with Kafka's codes."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


CLUSTER_NAME = "kafka-cluster"


class Authorizer(Protocol):
    """Allows or refuses operations. Its methods do no I/O, because handlers do not await them."""

    @property
    def allows_everything(self) -> bool:
        """Whether `allows` returns True for every request, so that the hot path need not call it."""
        ...

    def allows(
        self, principal: Principal, address: str, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        """Return whether a principal at this IP address may perform the operation."""
        ...

    def apply(self, delta: MetadataDelta) -> None:
        """Apply the changed ACLs of a metadata delta. The first one comes before the broker serves clients."""
        ...


class AllowAll:
    """The authorizer of a broker without `authorizer.class.name`: every principal may perform every operation."""

    __slots__ = ()

    allows_everything = True

    def allows(
        self, principal: Principal, address: str, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        return True

    def apply(self, delta: MetadataDelta) -> None:
        pass


def allow_all_authorizer(config: BrokerConfig) -> Authorizer:
    return AllowAll()


def _bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


# Kafka's AclEntry.supportedOperations, which Metadata and the Describe APIs return as bit fields.
OPERATION_BITS: dict[ResourceType, int] = {
    ResourceType.TOPIC: _bits(
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: _bits(
        Operation.READ, Operation.DESCRIBE, Operation.DELETE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
    ),
    ResourceType.CLUSTER: _bits(
        Operation.CREATE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
        Operation.ALTER,
        Operation.DESCRIBE,
    ),
}
