"""AlterConfigs and IncrementalAlterConfigs through a socket: authorization, and errors of single resources."""

from __future__ import annotations

from typing import Any

import pytest
from broker.tests.alone import Node

from odradek_broker.security.authorizer import AllowAll, Operation, ResourceType
from odradek_controller.principal import Principal
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.alter_configs import AlterConfigsRequest
from odradek_wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

TOPIC, BROKER = 2, 4


def old(kind: int, name: str) -> AlterConfigsRequest.AlterConfigsResource:
    return AlterConfigsRequest.AlterConfigsResource(
        kind, name, [AlterConfigsRequest.AlterableConfig("retention.ms", "5")]
    )


def incremental(kind: int, name: str) -> IncrementalAlterConfigsRequest.AlterConfigsResource:
    return IncrementalAlterConfigsRequest.AlterConfigsResource(
        kind, name, [IncrementalAlterConfigsRequest.AlterableConfig("retention.ms", 0, "5")]
    )


class OnlyMine(AllowAll):
    """May alter the topic `mine`, and nothing else."""

    allows_everything = False

    def allows(self, principal: Principal, address: str, operation: int, resource: int, name: str) -> bool:
        return operation != Operation.ALTER_CONFIGS or (resource, name) == (ResourceType.TOPIC, "mine")


@pytest.mark.parametrize(
    ("request_class", "of", "version"),
    [(AlterConfigsRequest, old, 2), (IncrementalAlterConfigsRequest, incremental, 1)],
)
async def test_resources_that_a_client_may_not_alter_are_refused_once_each(
    client: Any, node: Node, request_class: Any, of: Any, version: int
) -> None:
    for name in ("mine", "theirs"):
        await client.create_topic(name)
    node.broker.authorizer = OnlyMine()
    wanted = [(TOPIC, "theirs"), (TOPIC, "mine"), (BROKER, "0"), (TOPIC, "theirs")]
    response = await client.ask(request_class([of(kind, name) for kind, name in wanted], False), version)
    assert [(each.resource_type, each.resource_name, each.error_code) for each in response.responses] == [
        (TOPIC, "mine", ErrorCode.NONE),
        (TOPIC, "theirs", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (BROKER, "0", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ]
    image = node.broker.image
    assert (image.topic_configs("mine"), image.topic_configs("theirs")) == ({"retention.ms": "5"}, {})


@pytest.mark.parametrize(
    ("request_class", "of", "version"),
    [(AlterConfigsRequest, old, 2), (IncrementalAlterConfigsRequest, incremental, 1)],
)
async def test_the_configuration_of_another_broker_is_refused(
    client: Any, request_class: Any, of: Any, version: int
) -> None:
    own = "-0" + 5000 * "0"
    names = {
        "7": "Unexpected broker id, expected 0, but received 7",
        "-2147483648": "Unexpected broker id, expected 0, but received -2147483648",
        "2147483648": "Node id must be an integer, but it is: 2147483648",
        5000 * "1": f"Node id must be an integer, but it is: {5000 * '1'}",
        "0_0": "Node id must be an integer, but it is: 0_0",
    }
    response = await client.ask(request_class([of(BROKER, name) for name in (own, *names)], False), version)
    found = {each.resource_name: (each.error_code, each.error_message) for each in response.responses}
    assert " id" not in (found.pop(own)[1] or "")
    assert found == {name: (ErrorCode.INVALID_REQUEST, message) for name, message in names.items()}
