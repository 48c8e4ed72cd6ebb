"""A broker on a clock that stands still, with one topic, to see what a setting of the topic does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

from broker.tests.alone import Node
from broker.tests.conftest import Client
from broker.tests.manual_clock import ManualClock
from log.tests.cleaner_kit import keyed, left

from odradek_broker.disk_executor import WORKERS
from odradek_log.log import Log
from odradek_wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from odradek_wire.messages.produce import ProduceResponse
from odradek_wire.records.batch import RecordBatchHeader, iterate

OF_TOPIC, OF_BROKER = 2, 4
_SET, _DELETE = 0, 1
Produced = ProduceResponse.PartitionProduceResponse


async def alter(client: Client, kind: int, name: str, configs: Mapping[str, str | None]) -> None:
    """Set dynamic configurations of a topic or a broker ("": of all brokers); None takes one back."""
    changes = [
        IncrementalAlterConfigsRequest.AlterableConfig(key, _DELETE if value is None else _SET, value)
        for key, value in configs.items()
    ]
    request = IncrementalAlterConfigsRequest([IncrementalAlterConfigsRequest.AlterConfigsResource(kind, name, changes)])
    (result,) = (await client.ask(request, 1)).responses
    assert result.error_code == 0, result


class World:
    """Topic `t` with one partition; records are of now unless something else is said."""

    def __init__(self, node: Node, client: Client, clock: ManualClock) -> None:
        self.node = node
        self.client = client
        self.clock = clock
        self._keys = 0

    @property
    def log(self) -> Log:
        partition = self.node.broker.partitions.get("t", 0)
        assert partition is not None
        return partition.log

    @property
    def is_empty(self) -> bool:
        return self.log.log_start_offset == self.log.log_end_offset

    async def produce(self, value: bytes = b"v", *, later_ms: int = 0) -> Produced:
        return await self.send(bytes(keyed((b"k", value), timestamp=self.clock.wall_ms() + later_ms)))

    async def send(self, records: bytes) -> Produced:
        answer: Produced = await self.client.produce("t", records)
        return answer

    async def produce_versions_of_one_key(self, *values: bytes | None) -> bytes:
        """A batch for each value, of a key that was never used before; then a new segment, so that all may be
        cleaned."""
        self._keys += 1
        key = b"key %d" % self._keys
        for value in values:
            answer = await self.send(bytes(keyed((key, value), timestamp=self.clock.wall_ms())))
            assert answer.error_code == 0
        self.log.roll()
        return key

    def count(self, key: bytes) -> int:
        """How many records of this key are left."""
        return sum(each == key for _, each, _ in left(self.log))

    def last_batch(self) -> tuple[RecordBatchHeader, bytes]:
        found = self.log.read(self.log.log_end_offset - 1, 1 << 30)
        assert found is not None
        data = found.tobytes()
        (header,) = iterate(data)
        return header, data

    def retain(self) -> None:
        self.node.cluster.delete_old_segments()

    async def clean(self) -> None:
        await self.node.cluster.clean_logs()

    async def disk_work_done(self) -> None:
        """All that was begun before is over when every worker has come to the same place."""
        meeting = threading.Barrier(WORKERS)
        (node,) = self.node.cluster.nodes.values()
        await asyncio.gather(*(node.executor.run_and_wait(meeting.wait) for _ in range(WORKERS)))

    async def alter_topic(self, name: str, value: str | None) -> None:
        await alter(self.client, OF_TOPIC, "t", {name: value})

    async def alter_all_brokers(self, name: str, value: str | None) -> None:
        await alter(self.client, OF_BROKER, "", {name: value})

    async def create(self, configs: Mapping[str, str]) -> None:
        settings: dict[str, Any] = {name.replace(".", "_"): value for name, value in configs.items()}
        await self.client.create_topic("t", **settings)
