"""`odradek groups`: list, describe and delete consumer groups, and reset their offsets."""

from __future__ import annotations

import click

from odradek.cli import positions
from odradek.cli.output import bootstrap_option, connected, json_option, show
from odradek.client import Client, KafkaError
from odradek.client.committed_offsets import committed_offsets
from odradek.client.records import LATEST, list_offsets
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from odradek_wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from odradek_wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from odradek_wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from odradek_wire.uuid import ZERO_UUID

_NO_GENERATION = -1
# From this version of OffsetCommit on, a request has topic ids, not names (KIP-848).
_TOPIC_ID_VERSION = 10


@click.group()
def command() -> None:
    """List, describe and delete consumer groups; reset their offsets."""


@command.command("list")
@bootstrap_option
@json_option
def list_groups(bootstrap: str, as_json: bool) -> None:
    """List the groups of the cluster."""
    rows = []
    with connected(bootstrap) as client:
        for node_id in client.node_ids():
            response = client.call_broker(node_id, ListGroupsRequest(), ListGroupsResponse)
            if response.error_code != ErrorCode.NONE:
                raise KafkaError(response.error_code, f"broker {node_id}")
            rows += [
                {
                    "group": group.group_id,
                    "state": group.group_state,
                    "type": group.group_type,
                    "protocol": group.protocol_type,
                    "coordinator": node_id,
                }
                for group in response.groups
            ]
    rows.sort(key=lambda row: str(row["group"]))
    show(rows, ["group", "state", "type", "protocol", "coordinator"], as_json=as_json)


@command.command("describe")
@bootstrap_option
@json_option
@click.option("--members", is_flag=True, help="Show the members in place of the offsets.")
@click.argument("group")
def describe(bootstrap: str, as_json: bool, members: bool, group: str) -> None:
    """Show the committed offsets and the lag of GROUP, or its members."""
    with connected(bootstrap) as client:
        (described,) = client.call_group(
            group,
            DescribeGroupsRequest([group]),
            DescribeGroupsResponse,
            lambda response: response.groups[0].error_code,
        ).groups
        if described.error_code != ErrorCode.NONE:
            raise KafkaError(described.error_code, f"group {group!r}", described.error_message)
        if members:
            members_shown = [
                {
                    "member": member.member_id,
                    "instance": member.group_instance_id,
                    "client": member.client_id,
                    "host": member.client_host,
                }
                for member in described.members
            ]
            show(members_shown, ["member", "instance", "client", "host"], as_json=as_json)
            return
        rows = [
            {"topic": topic, "partition": partition, "committed": committed, "end": end, "lag": max(end - committed, 0)}
            for topic, partitions in sorted(committed_offsets(client, group).items())
            for partition, committed, end in _with_ends(client, topic, partitions)
        ]
    show(rows, ["topic", "partition", "committed", "end", "lag"], as_json=as_json)


@command.command("delete")
@bootstrap_option
@click.argument("groups", nargs=-1, required=True)
def delete(bootstrap: str, groups: tuple[str, ...]) -> None:
    """Delete GROUPS, which must have no members, and their committed offsets."""
    with connected(bootstrap) as client:
        for group in groups:
            (result,) = client.call_group(
                group,
                DeleteGroupsRequest([group]),
                DeleteGroupsResponse,
                lambda response: response.results[0].error_code,
            ).results
            if result.error_code != ErrorCode.NONE:
                raise KafkaError(result.error_code, f"group {group!r}")


@command.command("reset")
@bootstrap_option
@click.argument("group")
@click.argument("topic")
@click.option("--to", "target", required=True, metavar="POSITION", help=positions.HELP)
def reset(bootstrap: str, group: str, topic: str, target: str) -> None:
    """Set the committed offsets of GROUP, which must have no members, in TOPIC."""
    with connected(bootstrap) as client:
        offsets = positions.offsets_at(client, topic, target)
        partitions = [
            OffsetCommitRequest.OffsetCommitRequestPartition(partition, offset, committed_metadata="")
            for partition, offset in sorted(offsets.items())
        ]
        has_topic_ids = client.version(OffsetCommitRequest.API_KEY) >= _TOPIC_ID_VERSION
        topic_id = client.topic(topic).topic_id if has_topic_ids else ZERO_UUID
        request = OffsetCommitRequest(
            group,
            _NO_GENERATION,
            topics=[OffsetCommitRequest.OffsetCommitRequestTopic(topic, topic_id, partitions)],
        )
        (reset_topic,) = client.call_group(
            group, request, OffsetCommitResponse, lambda response: response.topics[0].partitions[0].error_code
        ).topics
        for result in reset_topic.partitions:
            if result.error_code != ErrorCode.NONE:
                raise KafkaError(result.error_code, f"group {group!r}, {topic}-{result.partition_index}")


def _with_ends(client: Client, topic: str, partitions: dict[int, int]) -> list[tuple[int, int, int]]:
    ends = list_offsets(client, topic, LATEST)
    return [
        (partition, committed, ends.get(partition, committed)) for partition, committed in sorted(partitions.items())
    ]
