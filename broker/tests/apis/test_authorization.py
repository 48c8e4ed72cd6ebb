"""Permissions on the cluster that Kafka accepts in place of others, and names that it hides without permission."""

from __future__ import annotations

from typing import Any

import pytest
from broker.tests.alone import Node

from odradek_broker.security.authorizer import AllowAll, Operation, ResourceType
from odradek_controller.principal import Principal
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.create_topics import CreateTopicsRequest
from odradek_wire.messages.delete_topics import DeleteTopicsRequest
from odradek_wire.messages.metadata import MetadataRequest
from odradek_wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from odradek_wire.uuid import ZERO_UUID

Permission = tuple[Operation, ResourceType]
DESCRIBE_TOPIC = (Operation.DESCRIBE, ResourceType.TOPIC)
DESCRIBE_CONFIGS = (Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC)
DELETE_TOPIC = (Operation.DELETE, ResourceType.TOPIC)
NONE, DENIED = ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED


class Allow(AllowAll):
    """Allows these operations on every resource of a type, and no others."""

    allows_everything = False

    def __init__(self, *allowed: Permission) -> None:
        self._allowed = frozenset(allowed)

    def allows(
        self, principal: Principal, address: str, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        return (operation, resource) in self._allowed


@pytest.mark.parametrize(
    ("permission", "error"),
    [
        (DESCRIBE_TOPIC, NONE),
        ((Operation.CLUSTER_ACTION, ResourceType.CLUSTER), NONE),
        ((Operation.READ, ResourceType.TOPIC), DENIED),
    ],
)
async def test_brokers_need_no_permission_for_topics_in_offset_for_leader_epoch(
    client: Any, node: Node, permission: Permission, error: ErrorCode
) -> None:
    await client.create_topic("t")
    node.broker.authorizer = Allow(permission)
    wanted = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(0, -1, 0)
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic("t", [wanted])
    (result,) = (await client.ask(OffsetForLeaderEpochRequest(topics=[topic]), 4)).topics[0].partitions
    assert result.error_code == error


@pytest.mark.parametrize(
    ("permissions", "operations"),
    [
        ([(Operation.DESCRIBE, ResourceType.CLUSTER)], 1 << Operation.DESCRIBE),
        ([(Operation.CREATE, ResourceType.CLUSTER)], 0),
    ],
)
async def test_metadata_returns_no_operations_to_a_client_without_describe(
    client: Any, node: Node, permissions: list[Permission], operations: int
) -> None:
    node.broker.authorizer = Allow(*permissions)
    request = MetadataRequest([], include_cluster_authorized_operations=True)
    assert (await client.ask(request, 10)).cluster_authorized_operations == operations


@pytest.mark.parametrize(
    ("permissions", "expected"),
    [([DESCRIBE_CONFIGS], (NONE, 3, 1)), ([], (DENIED, -1, -1))],
    ids=["describe-configs", "none"],
)
async def test_create_topics_hides_the_configuration_without_describe_configs(
    client: Any, node: Node, permissions: list[Permission], expected: tuple[int, int, int]
) -> None:
    node.broker.authorizer = Allow((Operation.CREATE, ResourceType.CLUSTER), *permissions)
    request = CreateTopicsRequest([CreateTopicsRequest.CreatableTopic("t", 3, 1)], 5000)
    (topic,) = (await client.ask(request, 5)).topics
    assert (topic.topic_config_error_code, topic.num_partitions, topic.replication_factor) == expected
    assert bool(topic.configs) == bool(permissions)


async def test_delete_on_the_cluster_is_permission_to_delete_every_topic(client: Any, node: Node) -> None:
    await client.create_topic("t")
    node.broker.authorizer = Allow((Operation.DELETE, ResourceType.CLUSTER))
    (result,) = (await client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000), 5)).responses
    assert (result.name, result.error_code) == ("t", NONE)


@pytest.mark.parametrize(("permissions", "name"), [([], None), ([DESCRIBE_TOPIC], "t")], ids=["none", "describe"])
async def test_delete_topics_by_id_names_a_topic_that_the_client_may_describe(
    client: Any, node: Node, permissions: list[Permission], name: str | None
) -> None:
    topic_id = await client.create_topic("t")
    node.broker.authorizer = Allow(*permissions)
    states = [
        DeleteTopicsRequest.DeleteTopicState(None, topic_id),
        DeleteTopicsRequest.DeleteTopicState("t", ZERO_UUID),
    ]
    response = await client.ask(DeleteTopicsRequest(topics=states, timeout_ms=5000), 6)
    found = [(each.name, each.topic_id, each.error_code) for each in response.responses]
    assert found == [(name, topic_id, DENIED), ("t", ZERO_UUID, DENIED)]


async def test_topics_that_a_client_may_delete_are_deleted(client: Any, node: Node) -> None:
    topic_id = await client.create_topic("t")
    node.broker.authorizer = Allow(DELETE_TOPIC)
    states = [DeleteTopicsRequest.DeleteTopicState(None, topic_id)]
    (result,) = (await client.ask(DeleteTopicsRequest(topics=states, timeout_ms=5000), 6)).responses
    assert (result.name, result.error_code) == ("t", NONE)
    assert "t" not in node.broker.image.topics
