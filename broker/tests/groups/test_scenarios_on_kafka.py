"""The scenarios on Apache Kafka itself: Kafka 4.3 responds as the tables say.

Kafka 3.9's older coordinator differs in four places (seen on 2026-11-21), where we follow 4.3: it shows no assignments
while a group rebalances, breaks ties between protocols by another hash map, returns ILLEGAL_GENERATION for an
OffsetCommit v9 for a group that does not exist, and lists partitions in no order in responses with offsets.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from broker.tests.groups.scenario_sockets import Sockets
from odradek_peers import KAFKA_4_3, ApacheKafka

from odradek_wire.messages.create_topics import CreateTopicsRequest
from odradek_wire.messages.describe_groups import DescribeGroupsRequest
from odradek_wire.messages.find_coordinator import FindCoordinatorRequest

pytestmark = pytest.mark.peers

CONFIG = {
    "group.min.session.timeout.ms": "1",
    "group.max.size": "3",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
}
A_WHILE_S = 0.4


@pytest.fixture(scope="module")
def kafka() -> Iterator[int]:
    with ApacheKafka(KAFKA_4_3, config=CONFIG) as broker:
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        setup = Sockets(port)
        topic = CreateTopicsRequest.CreatableTopic("t", num_partitions=3, replication_factor=1)
        setup.ask("setup", CreateTopicsRequest([topic], timeout_ms=10_000), 5)
        deadline = time.monotonic() + 30
        names = [f"any-{number}" for number in range(500)]
        while time.monotonic() < deadline:
            setup.ask("setup", FindCoordinatorRequest(key="g"), 3)
            described: Any = setup.ask("setup", DescribeGroupsRequest(names), 5)
            if not any(group.error_code for group in described.groups):
                break
        setup.close()
        yield port


def test_kafka_responds_as_written(scenario: str, play: Any, kafka: int) -> None:
    sockets = Sockets(kafka, wait_s=A_WHILE_S)
    try:
        play(sockets, prefix=f"{uuid.uuid4()}-").play(scenario)
    finally:
        sockets.close()
