"""Set and remove the replication throttles (KIP-73) of a reassignment, through a `Client`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from odradek.client.client import Client
from odradek.client.cluster_state import ClusterState
from odradek.client.reassignment_plans import ReassignmentPlan
from odradek.exceptions import KafkaError
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

_TOPIC, _BROKER = 2, 4
_SET, _DELETE = 0, 1
_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_LEADERS, _FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"

Config = IncrementalAlterConfigsRequest.AlterableConfig


def throttle(client: Client, state: ClusterState, plan: ReassignmentPlan, bytes_per_s: int) -> None:
    """Limit each broker to `bytes_per_s` for the copying to the replicas that `plan` adds.

    Replication between existing replicas has no limit. Raises ClientError.
    """
    leaders: defaultdict[str, list[str]] = defaultdict(list)
    followers: defaultdict[str, list[str]] = defaultdict(list)
    involved: set[int] = set()
    for partition in state.partitions:
        wanted = plan.get((partition.topic, partition.index))
        if wanted is None:
            continue
        added = [broker for broker in wanted if broker not in partition.replicas]
        leaders[partition.topic] += [f"{partition.index}:{broker}" for broker in partition.replicas]
        followers[partition.topic] += [f"{partition.index}:{broker}" for broker in added]
        involved |= {*partition.replicas, *added}
    for topic in leaders:
        names = [Config(_LEADERS, _SET, ",".join(leaders[topic])), Config(_FOLLOWERS, _SET, ",".join(followers[topic]))]
        _alter(client, _TOPIC, topic, names)
    for broker in sorted(involved & set(state.brokers)):
        _alter(client, _BROKER, str(broker), [Config(rate, _SET, str(bytes_per_s)) for rate in _RATES])


def unthrottle(client: Client, state: ClusterState, topics: Iterable[str]) -> None:
    """Remove the throttles of `topics` and of every running broker. Raises ClientError."""
    for topic in sorted(set(topics)):
        _alter(client, _TOPIC, topic, [Config(_LEADERS, _DELETE, None), Config(_FOLLOWERS, _DELETE, None)])
    for broker in sorted(state.brokers):
        _alter(client, _BROKER, str(broker), [Config(rate, _DELETE, None) for rate in _RATES])


def _alter(client: Client, kind: int, name: str, configs: list[Config]) -> None:
    request = IncrementalAlterConfigsRequest([IncrementalAlterConfigsRequest.AlterConfigsResource(kind, name, configs)])
    response = (
        client.call_broker(int(name), request, IncrementalAlterConfigsResponse)
        if kind == _BROKER
        else client.call_controller(request, IncrementalAlterConfigsResponse)
    )
    (result,) = response.responses
    if result.error_code != ErrorCode.NONE:
        raise KafkaError(result.error_code, name, result.error_message)
