"""A consumer with `isolation.level=read_committed`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from odradek_wire.messages.fetch import FetchRequest, FetchResponse
from odradek_wire.records.batch import iterate
from odradek_wire.records.control import ControlRecordType, decode_control_record
from odradek_wire.records.record_codec import read_records
from simulation.client import Client, UnreachableError
from simulation.transaction_checks import TransactionChecks

READ_COMMITTED = 1
FETCH_VERSION = 12
TRIES = 30


class CommittedReader:
    """Reads the committed records of all partitions of a topic, from the beginning, as Kafka's consumer does."""

    def __init__(self, client: Client, checks: TransactionChecks | None, topic: str, partitions: int) -> None:
        self._client = client
        self._checks = checks
        self._topic = topic
        self.positions = [0] * partitions
        self.found: dict[tuple[str, int], dict[int, bytes]] = {(topic, at): {} for at in range(partitions)}
        self.ends = [-1] * partitions
        """The high watermarks of the last Fetch responses."""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for partition in range(len(self.positions)):
                group.create_task(self._read(partition))

    async def read_up_to(self, values: Sequence[bytes]) -> None:
        """Read until each partition has returned its committed value of `values`. Raises UnreachableError."""
        for partition, value in enumerate(values):
            for _ in range(TRIES):
                if value in self.found[self._topic, partition].values():
                    break
                if not await self._fetch(partition):
                    self._client.forget_leader(self._topic, partition)
            else:
                raise UnreachableError(f"{self._topic}-{partition} cannot be read up to {value!r}")

    async def _read(self, partition: int) -> None:
        while True:
            if not await self._fetch(partition):
                self._client.forget_leader(self._topic, partition)
                await asyncio.sleep(self._client.chance.uniform(0.1, 0.4))

    async def _fetch(self, partition: int) -> bool:
        topic_partition = (self._topic, partition)
        wanted = FetchRequest.FetchPartition(partition, -1, self.positions[partition], partition_max_bytes=2_000)
        request = FetchRequest(max_wait_ms=300, min_bytes=1, max_bytes=1 << 20, isolation_level=READ_COMMITTED)
        request.topics = [FetchRequest.FetchTopic(self._topic, partitions=[wanted])]
        try:
            response = await (await self._client.leader(*topic_partition)).ask(request, FETCH_VERSION, FetchResponse)
        except UnreachableError:
            return False
        data = response.responses[0].partitions[0]
        if data.error_code:
            return False
        self.ends[partition] = data.high_watermark
        self._take(topic_partition, data)
        return True

    def _take(self, topic_partition: tuple[str, int], data: FetchResponse.PartitionData) -> None:
        records = data.records or b""
        assert isinstance(records, bytes | memoryview)
        beginning = sorted(data.aborted_transactions or (), key=lambda each: each.first_offset)
        aborted: set[int] = set()
        for header in iterate(records, allow_partial=True):
            while beginning and beginning[0].first_offset <= header.last_offset:
                aborted.add(beginning.pop(0).producer_id)
            if header.is_control:
                for record in read_records(records, header):
                    if decode_control_record(record)[0] is ControlRecordType.ABORT:
                        aborted.discard(header.producer_id)
            elif header.producer_id not in aborted:
                for record in read_records(records, header):
                    if record.offset >= self.positions[topic_partition[1]]:
                        self.found[topic_partition][record.offset] = record.value or b""
                        if self._checks is not None:
                            self._checks.read(topic_partition, record.offset, record.value or b"")
            self.positions[topic_partition[1]] = max(self.positions[topic_partition[1]], header.next_offset)
