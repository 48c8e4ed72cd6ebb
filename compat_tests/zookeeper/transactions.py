"""The producer of one transactional id, one request at a time, so that a test can stop after any step.

Finds the current coordinators and leaders, and repeats a request after a retriable error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import closing, suppress
from typing import NamedTuple

from confluent_kafka import KafkaException

from compat_tests.oracle.batches import batch
from compat_tests.oracle.peer import Closed, Peer
from compat_tests.oracle.schema import Body
from compat_tests.zookeeper.cluster import WAIT_S, ZooKeeperCluster

_GROUP, _TRANSACTION = 0, 1
_LATEST_OF_VERSION_1 = {
    "InitProducerId": 4,
    "AddPartitionsToTxn": 3,
    "AddOffsetsToTxn": 3,
    "TxnOffsetCommit": 3,
    "EndTxn": 4,
    "Produce": 11,
}
"""The request versions of clients with version 1 of the transaction protocol."""
# Retriable errors: a leader or coordinator moves, loads, or has not completed the previous transaction yet.
_RETRIABLE = {3, 5, 6, 7, 14, 15, 16, 19, 20, 51, 56}
_PAUSE_S = 0.05
# Longer than any test waits: no transaction is aborted because of its timeout.
_TIMEOUT_MS = 600_000


class Identity(NamedTuple):
    producer_id: int
    epoch: int


class Transactions:
    """The requests of one transactional producer. `name` is the transactional id."""

    def __init__(self, cluster: ZooKeeperCluster, name: str, group: str = "") -> None:
        self._cluster = cluster
        self.name = name
        self.group = group or f"group-of-{name}"
        self.identity = Identity(-1, -1)
        self._sequences: dict[tuple[str, int], int] = {}

    # -- the steps of a transaction -----------------------------------------------------------------------------------

    def init(self) -> Identity:
        """Send InitProducerId, which ends an open transaction first."""
        body: Body = {"transactional_id": self.name, "transaction_timeout_ms": _TIMEOUT_MS}
        response = self._to_coordinator("InitProducerId", body)
        assert response["error_code"] == 0, response
        self.identity = Identity(response["producer_id"], response["producer_epoch"])
        self._sequences.clear()
        return self.identity

    def add(self, topic: str, *partitions: int) -> None:
        body = {f"v3_and_below_{name}": value for name, value in self._producer_fields().items()}
        body["v3_and_below_topics"] = [{"name": topic, "partitions": [*partitions]}]
        response = self._to_coordinator("AddPartitionsToTxn", body)
        errors = _errors(response["results_by_topic_v3_and_below"], "results_by_partition", "partition_error_code")
        assert set(errors) == {0}, response

    def produce(self, topic: str, partition: int, *values: bytes) -> int:
        """Send Produce with acks=all and return the error code."""
        sequence = self._sequences.get((topic, partition), 0)
        producer = (*self.identity, sequence)
        records = batch(values, producer=producer, transactional=True, timestamp=time.time_ns() // 1_000_000)
        data = {"name": topic, "partition_data": [{"index": partition, "records": records}]}
        body: Body = {"transactional_id": self.name, "acks": -1, "timeout_ms": 5000, "topic_data": [data]}

        def leader() -> int:
            return self._cluster.leaders(topic)[partition]

        response = self._ask_until_not_retriable("Produce", body, leader)
        error = int(response["responses"][0]["partition_responses"][0]["error_code"])
        if not error:
            self._sequences[topic, partition] = sequence + len(values)
        return error

    def send_offset(self, topic: str, partition: int, offset: int) -> None:
        """Send AddOffsetsToTxn and TxnOffsetCommit with the group's offset."""
        response = self._to_coordinator("AddOffsetsToTxn", {**self._producer_fields(), "group_id": self.group})
        assert response["error_code"] == 0, response
        row = {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        fields = {
            **self._producer_fields(),
            "group_id": self.group,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
        }
        body = {**fields, "topics": [{"name": topic, "partitions": [row]}]}
        response = self._ask_until_not_retriable(
            "TxnOffsetCommit", body, lambda: coordinator(self._cluster, self.group, _GROUP)
        )
        assert set(_errors(response["topics"], "partitions")) == {0}, response

    def end(self, *, commit: bool) -> int:
        """Send EndTxn and return the error code."""
        return int(self._to_coordinator("EndTxn", {**self._producer_fields(), "committed": commit})["error_code"])

    # -- the outcome --------------------------------------------------------------------------------------------------

    def state(self) -> str:
        """Return the transaction's state from DescribeTransactions; empty if the coordinator does not know the id."""
        response = self._to_coordinator("DescribeTransactions", {"transactional_ids": [self.name]})
        (found,) = response["transaction_states"]
        return str(found["transaction_state"])

    def committed_offset(self, topic: str, partition: int) -> int:
        """Return the group's committed offset, or -1. Waits until no open transaction can change it."""
        body: Body = {
            "groups": [{"group_id": self.group, "topics": [{"name": topic, "partition_indexes": [partition]}]}],
            "require_stable": True,
        }
        responses: list[Body] = []

        def stable() -> bool:
            fields = coordinator(self._cluster, self.group, _GROUP)
            (response,) = _ask(self._cluster, fields, "OffsetFetch", 8, body)["groups"]
            responses.append(response)
            return not response["error_code"] and not response["topics"][0]["partitions"][0]["error_code"]

        _until(stable, lambda: responses[-1:])
        return int(responses[-1]["topics"][0]["partitions"][0]["committed_offset"])

    def _producer_fields(self) -> Body:
        producer_id, epoch = self.identity
        return {"transactional_id": self.name, "producer_id": producer_id, "producer_epoch": epoch}

    def _to_coordinator(self, api: str, body: Body) -> Body:
        return self._ask_until_not_retriable(api, body, lambda: coordinator(self._cluster, self.name, _TRANSACTION))

    def _ask_until_not_retriable(self, api: str, body: Body, target: Callable[[], int]) -> Body:
        """Send a request to the broker that `target` returns, until the response has no retriable error."""
        responses: list[Body] = []

        def done() -> bool:
            responses.append(_ask(self._cluster, target(), api, _LATEST_OF_VERSION_1.get(api, 0), body))
            return not _RETRIABLE.intersection(_all_errors(responses[-1]))

        _until(done, lambda: (api, responses[-1:]))
        return responses[-1]


def coordinator(cluster: ZooKeeperCluster, key: str, kind: int = _TRANSACTION) -> int:
    """Return the coordinator of a transactional id, or of a group (kind 0), as the first running broker names it, or
    -1."""
    for broker in cluster.brokers:
        try:
            return int(_ask(cluster, broker, "FindCoordinator", 3, {"key": key, "key_type": kind})["node_id"])
        except (Closed, OSError):
            continue
    return -1


def name_coordinated_by(cluster: ZooKeeperCluster, prefix: str, broker: int, kind: int = _TRANSACTION) -> str:
    """Return a transactional id, or a group (kind 0), with this prefix that this broker coordinates."""
    found: list[str] = []

    def find() -> bool:
        names = (f"{prefix}-{number}" for number in range(20))
        found.extend(name for name in names if coordinator(cluster, name, kind) == broker)
        return bool(found)

    _until(find, lambda: (prefix, broker))
    return found[0]


def elect_preferred(cluster: ZooKeeperCluster, condition: Callable[[], object]) -> None:
    """Elect the preferred leaders of all partitions, repeatedly, until the condition is true."""

    def elected() -> bool:
        controller = cluster.controller()
        if controller in cluster.brokers:
            body: Body = {"election_type": 0, "topic_partitions": None, "timeout_ms": 5000}
            _ask(cluster, controller, "ElectLeaders", 2, body)
        return bool(condition())

    _until(elected, lambda: "preferred leaders")


def _ask(cluster: ZooKeeperCluster, broker: int, api: str, version: int, body: Body) -> Body:
    """Send a request on a new connection, because the broker may have restarted. Raises Closed or OSError."""
    if broker not in cluster.brokers:
        raise Closed(f"broker {broker} is not running")
    with closing(Peer(str(broker), cluster.brokers[broker].bootstrap_servers)) as peer:
        return peer.ask(api, version, body)


def _errors(topics: Sequence[Body], partitions: str, error: str = "error_code") -> list[int]:
    return [int(each[error]) for topic in topics for each in topic[partitions]]


def _all_errors(response: object) -> Collection[int]:
    """Return every error code in a response."""
    if isinstance(response, list):
        return {error for each in response for error in _all_errors(each)}
    if not isinstance(response, dict):
        return set()
    own = {value for name, value in response.items() if name.endswith("error_code")}
    return own.union(*(_all_errors(each) for each in response.values()))


def _until(condition: Callable[[], object], context: Callable[[], object]) -> None:
    """Wait for a condition; an ended connection or a KafkaException counts as false."""
    deadline = time.monotonic() + WAIT_S
    while True:
        with suppress(Closed, OSError, KafkaException):
            if condition():
                return
        assert time.monotonic() < deadline, f"condition is not true after {WAIT_S:g} s: {context()}"
        time.sleep(_PAUSE_S)
