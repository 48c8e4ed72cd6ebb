"""`odradek verify`: compare the replicas of topics."""

from __future__ import annotations

import click

from odradek.cli.output import bootstrap_option, connected, json_option, show
from odradek.client import Client, KafkaError
from odradek.client.cluster_state import NO_LEADER, PartitionInfo, cluster_state
from odradek.client.records import EARLIEST, LATEST, list_offsets
from odradek.client.replica_comparison import ReplicaComparison, compare
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse

_TOPIC = 2
_CLEANUP_POLICY = "cleanup.policy"


@click.command()
@bootstrap_option
@json_option
@click.option("--internal", is_flag=True, help="Include internal topics such as __consumer_offsets.")
@click.argument("topics", nargs=-1)
def command(bootstrap: str, as_json: bool, internal: bool, topics: tuple[str, ...]) -> int:
    """Compare the replicas of TOPICS, or of all topics, up to the high watermark.

    Shows for each partition the first offset where two replicas differ, and their brokers. Exits 1 if replicas differ
    or if a replica cannot be compared.
    """
    with connected(bootstrap) as client:
        state = cluster_state(client, topics or None, internal=internal or bool(topics))
        comparisons: list[ReplicaComparison] = []
        for topic in sorted({partition.topic for partition in state.partitions}):
            comparisons += _comparisons(client, topic, state.partitions_of(topic), set(state.brokers))
    rows = [
        {
            "topic": comparison.partition.topic,
            "partition": comparison.partition.index,
            "replicas": list(comparison.partition.replicas),
            "start": comparison.start,
            "end": comparison.end,
            "result": _result(comparison),
            "differs_at": comparison.differs_at,
            "brokers": list(comparison.brokers),
        }
        for comparison in comparisons
    ]
    columns = ["topic", "partition", "replicas", "start", "end", "result"]
    show(rows, columns, as_json=as_json)
    return int(not all(comparison.same for comparison in comparisons))


def _comparisons(
    client: Client, topic: str, partitions: list[PartitionInfo], running: set[int]
) -> list[ReplicaComparison]:
    if any(partition.leader == NO_LEADER for partition in partitions):
        return [
            ReplicaComparison(partition, 0, 0, failure="not compared: the topic has a partition without a leader")
            for partition in partitions
        ]
    topic_id = client.topic(topic).topic_id
    starts, ends = list_offsets(client, topic, EARLIEST), list_offsets(client, topic, LATEST)
    compacted = _is_compacted(client, topic)
    return [
        compare(
            client,
            partition,
            topic_id,
            (starts[partition.index], ends[partition.index]),
            compacted=compacted,
            running=running,
        )
        for partition in partitions
    ]


def _is_compacted(client: Client, topic: str) -> bool:
    request = DescribeConfigsRequest([DescribeConfigsRequest.DescribeConfigsResource(_TOPIC, topic, [_CLEANUP_POLICY])])
    (result,) = client.call(request, DescribeConfigsResponse).results
    if result.error_code != ErrorCode.NONE:
        raise KafkaError(result.error_code, f"topic {topic!r}", result.error_message)
    return any("compact" in (config.value or "") for config in result.configs)


def _result(comparison: ReplicaComparison) -> str:
    if comparison.differs_at is not None:
        one, other = comparison.brokers
        return f"brokers {one} and {other} differ at offset {comparison.differs_at}"
    if comparison.failure is not None:
        return comparison.failure
    return "same" if len(comparison.partition.replicas) > 1 else "one replica"
