"""Who may do what: the vocabulary of Kafka's ACLs and the port that handlers ask.

Owns operations, resource types and the `Authorizer` protocol with its first implementation, allow-all. Leaves the order
in which an API asks (it decides which error a client sees) to the handlers.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

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
    """Answers at once: decisions are taken from memory."""

    @property
    def allows_everything(self) -> bool:
        """True lets the hot path skip the question."""
        ...

    def allows(
        self, principal: Principal, address: str, operation: Operation, resource: ResourceType, name: str
    ) -> bool: ...


class AllowAll:
    """The authorizer of a broker without one: everybody may do everything (`allow.everyone`)."""

    __slots__ = ()

    allows_everything = True

    def allows(
        self, principal: Principal, address: str, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        return True

    def operations_on(self, resource: ResourceType) -> int:
        """Bit field of the operations allowed, as Metadata and DescribeCluster report it."""
        return OPERATION_BITS[resource]


def _bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


# AclEntry.supportedOperations of Kafka: what a resource knows at all, as Metadata and Describe* report it.
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
