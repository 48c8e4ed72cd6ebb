"""`odradek verify`: are the replicas the same?"""

from __future__ import annotations

import click

from odradek.cli.output import bootstrap_option, connected, json_option, show
from odradek.client import Client, KafkaError
from odradek.client.records import EARLIEST, LATEST, list_offsets
from odradek.client.replicas import Verdict, compare
from odradek.client.state import NO_LEADER, PartitionInfo, cluster_state
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse

_TOPIC = 2
_CLEANUP_POLICY = "cleanup.policy"


@click.command()
@bootstrap_option
@json_option
@click.option("--internal", is_flag=True, help="Kafka's own topics too.")
@click.argument("topics", nargs=-1)
def command(bootstrap: str, as_json: bool, internal: bool, topics: tuple[str, ...]) -> int:
    """Compare the replicas of TOPICS, or of all topics: every broker's own copy below the high watermark.

    Names the first offset of a partition where copies differ, and the brokers that have them. Exits 1 where replicas
    differ or could not be compared.
    """
    with connected(bootstrap) as client:
        state = cluster_state(client, topics or None, internal=internal or bool(topics))
        verdicts: list[Verdict] = []
        for topic in sorted({partition.topic for partition in state.partitions}):
            verdicts += _verdicts(client, topic, state.of(topic), set(state.brokers))
    rows = [
        {
            "topic": verdict.partition.topic,
            "partition": verdict.partition.index,
            "replicas": list(verdict.partition.replicas),
            "start": verdict.start,
            "end": verdict.end,
            "result": _result(verdict),
            "differs_at": verdict.differs_at,
            "brokers": list(verdict.brokers),
        }
        for verdict in verdicts
    ]
    columns = ["topic", "partition", "replicas", "start", "end", "result"]
    show(rows, columns, as_json=as_json)
    return int(not all(verdict.same for verdict in verdicts))


def _verdicts(client: Client, topic: str, partitions: list[PartitionInfo], running: set[int]) -> list[Verdict]:
    if any(partition.leader == NO_LEADER for partition in partitions):
        return [Verdict(partition, 0, 0, trouble="a partition of the topic has no leader") for partition in partitions]
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


def _result(verdict: Verdict) -> str:
    if verdict.differs_at is not None:
        one, other = verdict.brokers
        return f"brokers {one} and {other} differ from offset {verdict.differs_at} on"
    if verdict.trouble is not None:
        return verdict.trouble
    return "same" if len(verdict.partition.replicas) > 1 else "one replica"
