"""Three brokers in one process on a manual clock, and the requests that tests of replication send to them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import structlog
from broker.tests.manual_clock import ManualClock

from odradek_broker.embedded import EmbeddedCluster
from odradek_broker.network.interceptors import Disconnect
from odradek_broker.replication.partition import Partition
from odradek_controller.image import PartitionRegistration
from odradek_wire.apis import ApiKey
from odradek_wire.messages.create_topics import CreateTopicsRequest
from odradek_wire.messages.delete_records import DeleteRecordsRequest
from odradek_wire.messages.fetch import FetchRequest
from odradek_wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from odradek_wire.messages.list_offsets import ListOffsetsRequest

TIMEOUT_S = 10
LAG_TIME_MAX_MS = 2_000
TOPIC = 2
BROKER = 4
Connect = Callable[..., Awaitable[Any]]


class Trio:
    """Three brokers, 0 to 2, each in a rack of its own, on a clock that only the test advances."""

    def __init__(self, path: Path, connect: Connect, settings: Mapping[str, str] | None = None) -> None:
        self.path = path
        self._settings = settings or {}
        self.clock = ManualClock(int(time.time() * 1000))
        self._connect = connect
        self._ports: dict[int, int] = {}
        self.turned_away = 0
        """The number of Fetches of followers that were held back."""

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
            **self._settings,
        }

    async def client(self, broker: int) -> Any:
        return await self._connect(self.cluster.nodes[broker])

    async def create(self, replicas: list[int], partitions: int = 1, topic: str = "t", **configs: str) -> None:
        """Create a topic with partitions on these brokers, of which the first leads."""
        client = await self.client(min(self.cluster.nodes))
        assignments = [CreateTopicsRequest.CreatableReplicaAssignment(index, replicas) for index in range(partitions)]
        entries = [
            CreateTopicsRequest.CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()
        ]
        wanted = CreateTopicsRequest.CreatableTopic(topic, -1, -1, assignments, entries)
        (result,) = (await client.ask(CreateTopicsRequest([wanted]), 7)).topics
        assert result.error_code == 0, result

    @property
    def partition(self) -> PartitionRegistration:
        found = self.cluster.controller.image.partition("t", 0)
        assert found is not None
        return found

    def hosted(self, broker: int, index: int = 0) -> Partition:
        found = self.cluster.nodes[broker].broker.partitions.get("t", index)
        assert found is not None
        return found

    def log_of(self, broker: int, index: int = 0) -> bytes:
        path = self.path / f"broker-{broker}" / f"t-{index}" / "00000000000000000000.log"
        return path.read_bytes() if path.exists() else b""

    def hold_back(self, broker: int, follower: int | None = None) -> None:
        """Hold back this broker's responses to Fetches of the other brokers, or of one of them."""
        held = "broker-" if follower is None else f"broker-{follower}-"

        def judge(ctx: Any, request: Any) -> Disconnect | None:
            if ctx.api_key != ApiKey.FETCH or not (ctx.client_id or "").startswith(held):
                return None
            self.turned_away += 1
            return Disconnect()

        self.cluster.nodes[broker].broker.interceptors.before_handle.append(judge)

    def let_go(self, broker: int) -> None:
        self.cluster.nodes[broker].broker.interceptors.before_handle.clear()

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait for the condition and advance the clock meanwhile, so that retries happen."""
        async with asyncio.timeout(TIMEOUT_S):
            while not condition():
                await asyncio.sleep(0)
                self.clock.advance_timeouts(1)

    async def until_in_sync(self, *brokers: int) -> None:
        await self.until(lambda: set(self.partition.isr) == set(brokers))


async def latest(client: Any) -> tuple[int, int]:
    """Return (error, offset) of a ListOffsets response."""
    wanted = ListOffsetsRequest.ListOffsetsPartition(0, -1, -1)
    response = await client.ask(ListOffsetsRequest(-1, 0, [ListOffsetsRequest.ListOffsetsTopic("t", [wanted])]), 6)
    (found,) = response.topics[0].partitions
    return found.error_code, found.offset


async def configure(client: Any, kind: int, name: str, configs: dict[str, str]) -> None:
    """Set dynamic configurations of a topic or a broker ("": of all brokers)."""
    changes = [IncrementalAlterConfigsRequest.AlterableConfig(key, 0, value) for key, value in configs.items()]
    request = IncrementalAlterConfigsRequest([IncrementalAlterConfigsRequest.AlterConfigsResource(kind, name, changes)])
    (result,) = (await client.ask(request, 1)).responses
    assert result.error_code == 0, result


async def delete_records(client: Any, offset: int, timeout_ms: int = 5_000) -> tuple[int, int]:
    """Return (error, low watermark)."""
    wanted = DeleteRecordsRequest.DeleteRecordsPartition(0, offset)
    request = DeleteRecordsRequest([DeleteRecordsRequest.DeleteRecordsTopic("t", [wanted])], timeout_ms)
    (found,) = (await client.ask(request, 2)).topics[0].partitions
    return found.error_code, found.low_watermark


async def fetch(client: Any, *, offset: int = 0, rack: str = "") -> Any:
    wanted = FetchRequest.FetchPartition(0, -1, offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=0, topics=[FetchRequest.FetchTopic("t", partitions=[wanted])]
    )
    request.rack_id = rack
    response = await client.ask(request, 12)
    return response.responses[0].partitions[0]
