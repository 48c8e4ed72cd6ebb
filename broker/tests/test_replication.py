"""Several brokers in one process: what one of them acknowledges, the others have, whoever leads next."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import structlog

from odradek_broker.clock import ManualClock
from odradek_broker.embedded import EmbeddedCluster
from odradek_broker.interceptors import Disconnect
from odradek_controller.image import PartitionRegistration
from odradek_wire.apis import ApiKey
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from odradek_wire.messages.create_topics import CreateTopicsRequest
from odradek_wire.messages.elect_leaders import ElectLeadersRequest
from odradek_wire.messages.fetch import FetchRequest
from odradek_wire.messages.list_offsets import ListOffsetsRequest
from odradek_wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest

TIMEOUT_S = 10
LAG_TIME_MAX_MS = 2_000
Connect = Callable[..., Awaitable[Any]]


class Trio:
    """Three brokers, 0 to 2, each in a rack of its own, on a clock that stands still."""

    def __init__(self, path: Path, connect: Connect) -> None:
        self.path = path
        self.clock = ManualClock(int(time.time() * 1000))
        self._connect = connect
        self._ports: dict[int, int] = {}

    async def start(self) -> None:
        settings = [self.static(broker) for broker in range(3)]
        self.cluster = await EmbeddedCluster.start(settings, clock=self.clock, log=structlog.get_logger("test"))
        self._ports = {node.id: node.port for node in self.cluster.nodes.values()}

    def static(self, broker: int) -> dict[str, str]:
        return {
            "node.id": str(broker),
            "broker.rack": f"rack-{broker}",
            "log.dirs": str(self.path / f"broker-{broker}"),
            "metadata.log.dir": str(self.path / "controller"),
            "listeners": f"PLAINTEXT://127.0.0.1:{self._ports.get(broker, 0)}",
            "odradek.sync": "false",
            "replica.lag.time.max.ms": str(LAG_TIME_MAX_MS),
            "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        }

    async def client(self, broker: int) -> Any:
        return await self._connect(self.cluster.nodes[broker])

    async def create(self, replicas: list[int], **configs: str) -> None:
        """Topic t, one partition on these brokers, the first of which leads."""
        client = await self.client(min(self.cluster.nodes))
        assignment = CreateTopicsRequest.CreatableReplicaAssignment(0, replicas)
        entries = [
            CreateTopicsRequest.CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()
        ]
        topic = CreateTopicsRequest.CreatableTopic("t", -1, -1, [assignment], entries)
        (result,) = (await client.ask(CreateTopicsRequest([topic]), 7)).topics
        assert result.error_code == 0, result

    @property
    def partition(self) -> PartitionRegistration:
        found = self.cluster.controller.image.partition("t", 0)
        assert found is not None
        return found

    def log_of(self, broker: int) -> bytes:
        path = self.path / f"broker-{broker}" / "t-0" / "00000000000000000000.log"
        return path.read_bytes() if path.exists() else b""

    def hold_back(self, broker: int) -> None:
        """No other broker gets an answer to its fetches from this one."""

        def judge(ctx: Any, request: Any) -> Disconnect | None:
            return Disconnect() if ctx.api_key == ApiKey.FETCH and (ctx.client_id or "").startswith("broker-") else None

        self.cluster.nodes[broker].broker.interceptors.before_handle.append(judge)

    def let_go(self, broker: int) -> None:
        self.cluster.nodes[broker].broker.interceptors.before_handle.clear()

    async def until(self, condition: Callable[[], object]) -> None:
        """Time goes by meanwhile, so that whoever waits to try again does."""
        async with asyncio.timeout(TIMEOUT_S):
            while not condition():
                await asyncio.sleep(0)
                self.clock.advance_timeouts(1)

    async def until_in_sync(self, *brokers: int) -> None:
        await self.until(lambda: set(self.partition.isr) == set(brokers))


@pytest.fixture
async def trio(tmp_path: Path, connect: Connect) -> AsyncIterator[Trio]:
    found = Trio(tmp_path, connect)
    await found.start()
    yield found
    await found.cluster.stop(grace_ms=100)


async def latest(client: Any) -> tuple[int, int]:
    """(error, offset) as a consumer is told."""
    wanted = ListOffsetsRequest.ListOffsetsPartition(0, -1, -1)
    answer = await client.ask(ListOffsetsRequest(-1, 0, [ListOffsetsRequest.ListOffsetsTopic("t", [wanted])]), 6)
    (found,) = answer.topics[0].partitions
    return found.error_code, found.offset


async def fetch(client: Any, *, offset: int = 0, rack: str = "") -> Any:
    wanted = FetchRequest.FetchPartition(0, -1, offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=0, topics=[FetchRequest.FetchTopic("t", partitions=[wanted])]
    )
    request.rack_id = rack
    answer = await client.ask(request, 12)
    return answer.responses[0].partitions[0]


async def test_what_is_acknowledged_by_all_is_byte_for_byte_everywhere(trio: Trio, make_batch: Any) -> None:
    await trio.create([1, 2, 0])
    client = await trio.client(1)
    for value in (b"a", b"b" * 10_000, b"c"):
        assert (await client.produce("t", make_batch(value))).error_code == 0
    assert trio.log_of(0) == trio.log_of(1) == trio.log_of(2)
    assert await latest(client) == (0, 3)


async def test_nobody_reads_what_is_not_on_all_in_sync_replicas(trio: Trio, make_batch: Any) -> None:
    await trio.create([1, 2])
    client = await trio.client(1)
    await client.produce("t", make_batch(b"a"))
    trio.hold_back(1)
    await client.produce("t", make_batch(b"b"), acks=1)
    assert await latest(client) == (0, 1)
    assert (await fetch(client, offset=1)).records == b""
    trio.let_go(1)
    await trio.until(lambda: trio.cluster.nodes[1].broker.partitions.get("t", 0).high_watermark == 2)  # type: ignore[union-attr]
    assert await latest(client) == (0, 2)


async def test_the_log_survives_its_leader_and_no_latest_offset_goes_back(trio: Trio, make_batch: Any) -> None:
    await trio.create([1, 2])
    client = await trio.client(1)
    for value in (b"a", b"b"):
        assert (await client.produce("t", make_batch(value))).error_code == 0
    await trio.cluster.kill_broker(1)
    assert (trio.partition.leader, trio.partition.isr) == (2, (2,))
    assert await latest(await trio.client(2)) == (0, 2)


async def test_a_new_leader_that_does_not_know_what_was_committed_says_so(trio: Trio, make_batch: Any) -> None:
    """The follower has the records, but has not heard that they are committed; another replica still has to tell."""
    await trio.create([1, 2, 0])
    client = await trio.client(1)
    trio.hold_back(1)
    await client.produce("t", make_batch(b"a"), acks=1)
    trio.let_go(1)
    await trio.until(lambda: trio.log_of(2) == trio.log_of(0) == trio.log_of(1))
    trio.hold_back(2)
    await trio.cluster.kill_broker(1)
    follower = trio.cluster.nodes[2].broker.partitions.get("t", 0)
    assert follower is not None
    assert follower.leader is not None
    follower.high_watermark = follower.leader.high_watermark = 0
    new = await trio.client(2)
    assert await latest(new) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
    trio.let_go(2)
    await trio.until(lambda: follower.high_watermark == 1)
    assert await latest(new) == (0, 1)


async def test_a_broker_that_comes_back_gives_up_what_was_never_committed(trio: Trio, make_batch: Any) -> None:
    await trio.create([1, 2])
    client = await trio.client(1)
    await client.produce("t", make_batch(b"a"))
    trio.hold_back(1)
    await client.produce("t", make_batch(b"only here"), acks=1)
    await trio.cluster.kill_broker(1)
    assert (await (await trio.client(2)).produce("t", make_batch(b"b"))).base_offset == 1
    await trio.cluster.start_broker(trio.static(1))
    await trio.until_in_sync(1, 2)
    assert trio.log_of(1) == trio.log_of(2)
    assert b"only here" not in trio.log_of(1)


async def test_acks_all_needs_min_insync_replicas(trio: Trio, make_batch: Any) -> None:
    await trio.create([1, 2], min_insync_replicas="2")
    client = await trio.client(1)
    await client.produce("t", make_batch(b"a"))
    await trio.cluster.kill_broker(2)
    assert (await client.produce("t", make_batch(b"b"))).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert (await client.produce("t", make_batch(b"b"), acks=1)).error_code == ErrorCode.NONE
    assert await latest(client) == (0, 1)
    await trio.cluster.start_broker(trio.static(2))
    await trio.until_in_sync(1, 2)
    assert (await client.produce("t", make_batch(b"c"))).error_code == ErrorCode.NONE
    assert await latest(client) == (0, 3)


async def test_a_slow_follower_leaves_the_isr_and_comes_back(trio: Trio, make_batch: Any) -> None:
    await trio.create([1, 2])
    client = await trio.client(1)
    await client.produce("t", make_batch(b"a"))
    trio.hold_back(1)
    waiting = asyncio.ensure_future(client.produce("t", make_batch(b"b")))
    leader = trio.cluster.nodes[1].broker.partitions.get("t", 0)
    assert leader is not None
    await trio.until(lambda: leader.log_end_offset == 2)
    for _ in range(3):
        trio.clock.advance_timeouts(LAG_TIME_MAX_MS // 2)
    await trio.until_in_sync(1)
    assert (await waiting).error_code == 0
    trio.let_go(1)
    await trio.until_in_sync(1, 2)


async def test_a_controlled_shutdown_hands_leadership_over_first(trio: Trio, make_batch: Any) -> None:
    await trio.create([1, 2, 0])
    await (await trio.client(1)).produce("t", make_batch(b"a"))
    await trio.cluster.stop_broker(1)
    assert (trio.partition.leader, trio.partition.isr) == (2, (2, 0))
    await trio.cluster.start_broker(trio.static(1))
    await trio.until_in_sync(0, 1, 2)
    request = ElectLeadersRequest(0, [ElectLeadersRequest.TopicPartitions("t", [0])])
    answer = await (await trio.client(0)).ask(request, 2)
    assert answer.replica_election_results[0].partition_result[0].error_code == 0
    assert trio.partition.leader == 1


async def test_replicas_move_to_another_broker(trio: Trio, make_batch: Any) -> None:
    await trio.create([1, 2])
    client = await trio.client(1)
    await client.produce("t", make_batch(b"a"))
    request = AlterPartitionReassignmentsRequest(
        topics=[
            AlterPartitionReassignmentsRequest.ReassignableTopic(
                "t", [AlterPartitionReassignmentsRequest.ReassignablePartition(0, [0, 2])]
            )
        ]
    )
    trio.hold_back(1)
    answer = await client.ask(request, 1)
    assert answer.responses[0].partitions[0].error_code == 0
    (listed,) = (await client.ask(ListPartitionReassignmentsRequest(), 0)).topics
    assert listed.partitions[0].adding_replicas == [0]
    trio.let_go(1)
    await trio.until(lambda: not trio.partition.reassigning)
    assert (trio.partition.replicas, set(trio.partition.isr)) == ((0, 2), {0, 2})
    assert trio.log_of(0) == trio.log_of(2)
    assert trio.cluster.nodes[1].broker.partitions.get("t", 0) is None
    assert (await (await trio.client(trio.partition.leader)).produce("t", make_batch(b"b"))).base_offset == 1


async def test_a_consumer_is_sent_to_the_replica_in_its_rack_and_served_there(trio: Trio, make_batch: Any) -> None:
    await trio.create([1, 2])
    client = await trio.client(1)
    await client.produce("t", make_batch(b"a"))
    assert (await fetch(client, rack="rack-1")).preferred_read_replica == -1
    assert (await fetch(client, rack="rack-2")).preferred_read_replica == 2
    follower = trio.cluster.nodes[2].broker.partitions.get("t", 0)
    assert follower is not None
    await trio.until(lambda: follower.high_watermark == 1)
    served = await fetch(await trio.client(2), rack="rack-2")
    assert (served.error_code, bytes(served.records)) == (0, trio.log_of(1))
