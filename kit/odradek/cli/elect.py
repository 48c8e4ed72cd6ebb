"""`odradek elect`: elect preferred leaders, or unclean leaders."""

from __future__ import annotations

from collections import defaultdict

import click

from odradek.cli.output import bootstrap_option, connected, json_option, show
from odradek.cli.partition_arguments import partitions_of, topic_partition
from odradek.client import KafkaError
from odradek.client.cluster_state import cluster_state
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse

_PREFERRED, _UNCLEAN = 0, 1


@click.command()
@bootstrap_option
@json_option
@click.option(
    "--unclean", is_flag=True, help="Elect any running replica of a partition without a leader. RECORDS MAY BE LOST."
)
@click.argument("partitions", nargs=-1, type=topic_partition, metavar="[TOPIC[:PARTITION]]...")
def command(bootstrap: str, as_json: bool, unclean: bool, partitions: tuple[tuple[str, int | None], ...]) -> int:
    """Elect the preferred leader, which is the first replica, of the named partitions, or of all partitions.

    Shows only partitions that needed an election. Exits 1 if an election failed.
    """
    if unclean and not partitions:
        raise click.UsageError("--unclean may lose records: give the topics or partitions")
    with connected(bootstrap) as client:
        request = ElectLeadersRequest(_UNCLEAN if unclean else _PREFERRED, None)
        if partitions:
            by_topic: defaultdict[str, list[int]] = defaultdict(list)
            for partition in partitions_of(cluster_state(client, {topic for topic, _ in partitions}), partitions):
                by_topic[partition.topic].append(partition.index)
            request.topic_partitions = [ElectLeadersRequest.TopicPartitions(*each) for each in by_topic.items()]
        response = client.call_controller(request, ElectLeadersResponse)
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(response.error_code, "ElectLeaders")
        rows = [
            {
                "topic": topic.topic,
                "partition": result.partition_id,
                "result": "elected" if result.error_code == ErrorCode.NONE else ErrorCode(result.error_code).name,
                "message": result.error_message,
            }
            for topic in response.replica_election_results
            for result in topic.partition_result
            if result.error_code != ErrorCode.ELECTION_NOT_NEEDED
        ]
    rows.sort(key=lambda row: (str(row["topic"]), row["partition"]))
    show(rows, ["topic", "partition", "result", "message"], as_json=as_json)
    return int(any(row["result"] != "elected" for row in rows))
