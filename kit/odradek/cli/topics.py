"""`odradek topics`: list, describe, create and delete topics, and add partitions."""

from __future__ import annotations

import click

from odradek.cli.output import bootstrap_option, connected, json_option, parse_settings, show
from odradek.cli.partition_arguments import PARTITION_COUNT, REPLICA_COUNT, broker_ids
from odradek.client import KafkaError
from odradek.client.cluster_state import NO_LEADER
from odradek.client.records import EARLIEST, LATEST, list_offsets
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from odradek_wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from odradek_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from odradek_wire.uuid import ZERO_UUID, uuid_to_text

_TIMEOUT_MS = 30_000
# From this version of DeleteTopics on, a request has names and topic ids (KIP-516).
_TOPIC_STATES_VERSION = 6


@click.group()
def command() -> None:
    """List, describe, create and delete topics; add partitions."""


@command.command("list")
@bootstrap_option
@json_option
@click.option("--internal", is_flag=True, help="Include internal topics such as __consumer_offsets.")
def list_topics(bootstrap: str, as_json: bool, internal: bool) -> None:
    """List topics with their number of partitions and replicas."""
    with connected(bootstrap) as client:
        topics = [topic for topic in client.metadata().topics if internal or not topic.is_internal]
    rows = [
        {
            "topic": topic.name,
            "partitions": len(topic.partitions),
            "replicas": len(topic.partitions[0].replica_nodes) if topic.partitions else 0,
            "id": uuid_to_text(topic.topic_id),
        }
        for topic in sorted(topics, key=lambda topic: topic.name or "")
    ]
    show(rows, ["topic", "partitions", "replicas", "id"], as_json=as_json)


@command.command("describe")
@bootstrap_option
@json_option
@click.argument("topic")
def describe(bootstrap: str, as_json: bool, topic: str) -> None:
    """Show the leader, replicas, ISR and offsets of each partition of TOPIC.

    The offsets are the start and the end of the log; they are empty for a partition without a leader.
    """
    with connected(bootstrap) as client:
        partitions = client.topic(topic).partitions
        led = [partition.partition_index for partition in partitions if partition.leader_id != NO_LEADER]
        starts = list_offsets(client, topic, EARLIEST, led)
        ends = list_offsets(client, topic, LATEST, led)
    rows = [
        {
            "partition": partition.partition_index,
            "leader": None if partition.leader_id == NO_LEADER else partition.leader_id,
            "replicas": partition.replica_nodes,
            "isr": partition.isr_nodes,
            "start": starts.get(partition.partition_index),
            "end": ends.get(partition.partition_index),
        }
        for partition in partitions
    ]
    show(rows, ["partition", "leader", "replicas", "isr", "start", "end"], as_json=as_json)


@command.command("create")
@bootstrap_option
@click.argument("topic")
@click.option("-p", "--partitions", type=PARTITION_COUNT, help="Number of partitions. Default: num.partitions.")
@click.option(
    "-r", "--replicas", type=REPLICA_COUNT, help="Replicas per partition. Default: default.replication.factor."
)
@click.option(
    "-a", "--assign", "assigned", type=broker_ids, multiple=True,
    metavar="1,2,3", help="Brokers of one partition, the preferred leader first; repeat it for each partition.",
)  # fmt: skip
@click.option(
    "-o", "--option", "options", multiple=True, metavar="NAME=VALUE", help="A setting of the topic; may be repeated."
)
def create(
    bootstrap: str,
    topic: str,
    partitions: int | None,
    replicas: int | None,
    assigned: tuple[list[int], ...],
    options: tuple[str, ...],
) -> None:
    """Create TOPIC."""
    if assigned and (partitions is not None or replicas is not None):
        raise click.UsageError("--assign cannot be combined with --partitions and --replicas: it determines both")
    settings = [CreateTopicsRequest.CreatableTopicConfig(*item) for item in parse_settings(options).items()]
    wanted = CreateTopicsRequest.CreatableTopic(
        topic,
        -1 if partitions is None else partitions,
        -1 if replicas is None else replicas,
        assignments=[
            CreateTopicsRequest.CreatableReplicaAssignment(index, brokers) for index, brokers in enumerate(assigned)
        ],
        configs=settings,
    )
    with connected(bootstrap) as client:
        (result,) = client.call_controller(CreateTopicsRequest([wanted], _TIMEOUT_MS), CreateTopicsResponse).topics
        if result.error_code != ErrorCode.NONE:
            raise KafkaError(result.error_code, f"topic {topic!r}", result.error_message)


@command.command("delete")
@bootstrap_option
@click.argument("topics", nargs=-1, required=True)
def delete(bootstrap: str, topics: tuple[str, ...]) -> None:
    """Delete TOPICS with all their records."""
    with connected(bootstrap) as client:
        if client.version(DeleteTopicsRequest.API_KEY) >= _TOPIC_STATES_VERSION:
            states = [DeleteTopicsRequest.DeleteTopicState(name, ZERO_UUID) for name in topics]
            request = DeleteTopicsRequest(topics=states, timeout_ms=_TIMEOUT_MS)
        else:
            request = DeleteTopicsRequest(topic_names=list(topics), timeout_ms=_TIMEOUT_MS)
        for result in client.call_controller(request, DeleteTopicsResponse).responses:
            if result.error_code != ErrorCode.NONE:
                raise KafkaError(result.error_code, f"topic {result.name!r}", result.error_message)


@command.command("grow")
@bootstrap_option
@click.argument("topic")
@click.argument("partitions", type=PARTITION_COUNT)
def grow(bootstrap: str, topic: str, partitions: int) -> None:
    """Increase the number of partitions of TOPIC to PARTITIONS."""
    wanted = CreatePartitionsRequest.CreatePartitionsTopic(topic, partitions, None)
    with connected(bootstrap) as client:
        (result,) = client.call_controller(
            CreatePartitionsRequest([wanted], _TIMEOUT_MS), CreatePartitionsResponse
        ).results
        if result.error_code != ErrorCode.NONE:
            raise KafkaError(result.error_code, f"topic {topic!r}", result.error_message)
