"""The controller refuses changes with a timeout of 0 or less, as Kafka's QuorumController does."""

from __future__ import annotations

from typing import Any

import pytest
from broker.tests.alone import Node

from odradek_wire.errors import ErrorCode
from odradek_wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from odradek_wire.messages.create_partitions import CreatePartitionsRequest
from odradek_wire.messages.create_topics import CreateTopicsRequest
from odradek_wire.messages.delete_topics import DeleteTopicsRequest
from odradek_wire.messages.elect_leaders import ElectLeadersRequest

TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT
pytestmark = pytest.mark.parametrize("timeout_ms", [0, -1])


@pytest.mark.parametrize("only", [False, True])
async def test_an_expired_create_topics_creates_no_topic(node: Node, client: Any, timeout_ms: int, only: bool) -> None:
    async def create(*names: str) -> list[tuple[str, int]]:
        topics = [CreateTopicsRequest.CreatableTopic(name, 1, 1) for name in names]
        answer = await client.ask(CreateTopicsRequest(topics, timeout_ms, only), 5)
        return [(topic.name, topic.error_code) for topic in answer.topics]

    assert await create("t", "a b", "twice", "twice") == [(name, TIMED_OUT) for name in ("t", "a b", "twice", "twice")]
    assert await create("twice", "twice") == [("twice", ErrorCode.INVALID_REQUEST)]
    assert await create() == []
    assert list(node.broker.image.topics) == []


@pytest.mark.parametrize("only", [False, True])
async def test_an_expired_create_partitions_creates_no_partition(
    node: Node, client: Any, timeout_ms: int, only: bool
) -> None:
    await client.create_topic("t")
    topics = [CreatePartitionsRequest.CreatePartitionsTopic(name, 2, None) for name in ("t", "nope")]
    answer = await client.ask(CreatePartitionsRequest(topics, timeout_ms, only), 3)
    assert [(each.name, each.error_code) for each in answer.results] == [("t", TIMED_OUT), ("nope", TIMED_OUT)]
    assert len(node.broker.image.topics["t"].partitions) == 1


async def test_an_expired_delete_topics_deletes_no_topic(node: Node, client: Any, timeout_ms: int) -> None:
    topic_id = await client.create_topic("t")
    states = [DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic_id)]
    answer = await client.ask(DeleteTopicsRequest(states, timeout_ms=timeout_ms), 6)
    assert [(each.topic_id, each.error_code) for each in answer.responses] == [(topic_id, TIMED_OUT)]
    answer = await client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=timeout_ms), 5)
    assert [(each.name, each.error_code) for each in answer.responses] == [("t", TIMED_OUT)]
    assert "t" in node.broker.image.topics


async def test_an_expired_elect_leaders_elects_no_leader(client: Any, timeout_ms: int) -> None:
    await client.create_topic("t")
    asked = [ElectLeadersRequest.TopicPartitions("t", [0])]
    answer = await client.ask(ElectLeadersRequest(0, asked, timeout_ms), 2)
    (result,) = answer.replica_election_results
    assert (answer.error_code, result.partition_result[0].error_code) == (TIMED_OUT, TIMED_OUT)
    assert (await client.ask(ElectLeadersRequest(0, [], timeout_ms), 2)).error_code == ErrorCode.NONE
    assert (await client.ask(ElectLeadersRequest(0, None, timeout_ms), 2)).error_code == TIMED_OUT


async def test_an_expired_reassignment_moves_no_replica(client: Any, timeout_ms: int) -> None:
    moves = [AlterPartitionReassignmentsRequest.ReassignableTopic("t", [])]
    answer = await client.ask(AlterPartitionReassignmentsRequest(timeout_ms, topics=moves), 1)
    assert answer.error_code == TIMED_OUT
