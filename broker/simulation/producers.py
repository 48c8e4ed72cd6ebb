"""Producers with acks=all or acks=1, and idempotent producers that retry as Kafka's does."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from odradek_wire.errors import ErrorCode
from odradek_wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek_wire.messages.produce import ProduceRequest, ProduceResponse
from odradek_wire.records.builder import BatchBuilder
from simulation.checks import Checks, key_and_number
from simulation.client import Client, UnreachableError

PRODUCE_VERSION = 9
INIT_PRODUCER_ID_VERSION = 4
PRODUCE_TIMEOUT_MS = 3_000
IN_FLIGHT = 5
NEVER_APPENDED = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_RECORD,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Errors that a correct cluster never returns to a producer that waits for each response."""
LEADER_CHANGED = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.KAFKA_STORAGE_ERROR}
)


@dataclass
class Batch:
    values: list[bytes]
    base_sequence: int = -1
    epoch: int = -1
    tries: int = 0


class Producer:
    """Writes to the partitions of one topic until `stop`; `run` returns when every batch is acknowledged."""

    def __init__(
        self,
        client: Client,
        checks: Checks,
        topic: str,
        partitions: int,
        *,
        acks: int,
        idempotent: bool,
        promised: bool = False,
        keyed: bool = False,
    ) -> None:
        """`promised`: acknowledged records must not be lost, even with acks=1. `keyed`: each record has a key."""
        self._client = client
        self._checks = checks
        self._topic = topic
        self._acks = acks
        self._promised = promised or acks == -1
        self._keyed = keyed
        self._id = -1
        self._idempotent = idempotent
        self._queues = [_PartitionQueue(self, partition) for partition in range(partitions)]
        self._stopping = False
        self.acknowledged = 0

    async def run(self, mean_pause_s: float) -> None:
        if self._idempotent:
            await self._get_id()
        async with asyncio.TaskGroup() as group:
            for queue in self._queues:
                group.create_task(queue.send_all())
            while not self._stopping:
                await asyncio.sleep(self._client.chance.expovariate(1 / mean_pause_s))
                queue = self._client.chance.choice(self._queues)
                if len(queue.waiting) < 20:
                    queue.add(self._client.chance.randint(1, 3))
            for queue in self._queues:
                queue.close()

    def stop(self) -> None:
        self._stopping = True

    async def _get_id(self) -> None:
        while True:
            try:
                request = InitProducerIdRequest(None, 60_000)
                response = await self._client.ask_any(request, INIT_PRODUCER_ID_VERSION, InitProducerIdResponse)
            except UnreachableError:
                await asyncio.sleep(0.3)
                continue
            if not response.error_code:
                self._id = response.producer_id
                return
            await asyncio.sleep(0.3)

    async def send(self, partition: int, batch: Batch) -> ErrorCode | None:
        """Send a batch and report an acknowledgement to the checks. Return the error, None without a response."""
        client, topic_partition = self._client, (self._topic, partition)
        batch.tries += 1
        self._checks.sending(topic_partition, batch.values)
        try:
            connection = await client.leader(*topic_partition)
            request = ProduceRequest(None, self._acks, PRODUCE_TIMEOUT_MS)
            data = ProduceRequest.PartitionProduceData(partition, self._encoded(batch))
            request.topic_data = [ProduceRequest.TopicProduceData(self._topic, partition_data=[data])]
            response = await connection.ask(request, PRODUCE_VERSION, ProduceResponse)
        except UnreachableError:
            client.forget_leader(*topic_partition)
            return None
        partition_response = response.responses[0].partition_responses[0]
        error, offset = ErrorCode(partition_response.error_code), partition_response.base_offset
        if error is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            error, offset = ErrorCode.NONE, -1
        if error is ErrorCode.NONE:
            self.acknowledged += len(batch.values)
            client.note(f"{batch.values[0].decode()} +{len(batch.values)} acks={self._acks} at {offset}")
            if self._promised:
                self._checks.acknowledged_at(topic_partition, offset, batch.values)
        else:
            client.note(f"{batch.values[0].decode()} +{len(batch.values)}: {error.name}")
            if error in LEADER_CHANGED:
                client.forget_leader(*topic_partition)
        return error

    def _encoded(self, batch: Batch) -> bytes:
        builder = BatchBuilder()
        if self._idempotent:
            builder = BatchBuilder(producer_id=self._id, producer_epoch=batch.epoch, base_sequence=batch.base_sequence)
        now_ms = self._client.wall_ms()
        for value in batch.values:
            builder.append(now_ms, key_and_number(value)[0] if self._keyed else None, value)
        return bytes(builder.build())

    def check_refusal(self, partition: int, batch: Batch, error: ErrorCode | None) -> None:
        """Check the error of a batch when all earlier batches are acknowledged, and no later one was sent. A deposed
        leader that is cut off may lack earlier batches, as in Kafka; then the producer looks the leader up again."""
        topic_partition = (self._topic, partition)
        if error not in NEVER_APPENDED:
            return
        if self._checks.has_newer_epoch(topic_partition, self._client.leader_epoch(*topic_partition)):
            self._client.forget_leader(*topic_partition)
        else:
            value = batch.values[0].decode()
            self._checks.fail(
                f"{value} to {self._topic}-{partition}, the next batch in order, failed with {error.name}"
            )

    def implicitly_acknowledged(self, partition: int, batch: Batch) -> None:
        """Record a batch that is in the log because a later one was acknowledged."""
        self._checks.acknowledged_at((self._topic, partition), -1, batch.values)

    def value(self, partition: int, number: int) -> bytes:
        return b"%s/%d:%d" % (self._client.host.encode(), partition, number)

    @property
    def pipelined(self) -> bool:
        return self._idempotent

    async def pause(self) -> None:
        await asyncio.sleep(self._client.chance.uniform(0.05, 0.3))

    def promise_order(self, partition: int) -> None:
        if self._idempotent:
            self._checks.idempotent[self.value(partition, 0).rpartition(b":")[0]] = 0


class _PartitionQueue:
    """The batches for one partition, in order."""

    def __init__(self, producer: Producer, partition: int) -> None:
        self._producer = producer
        self._partition = partition
        self._number = 0
        self._changed = asyncio.Event()
        self._closed = False
        self._known = False
        """Whether the leader knows this producer. Before that, a batch must not overtake the first one."""
        self._sequence = 0
        self._epoch = 0
        self._last_acknowledged = -1
        self.waiting: deque[Batch] = deque()
        producer.promise_order(partition)

    def add(self, count: int) -> None:
        values = [self._producer.value(self._partition, self._number + at) for at in range(count)]
        self.waiting.append(Batch(values))
        self._number += count
        self._changed.set()

    def close(self) -> None:
        self._closed = True
        self._changed.set()

    async def send_all(self) -> None:
        while self.waiting or not self._closed:
            if not self.waiting:
                self._changed.clear()
                await self._changed.wait()
                continue
            if not await self._send_some():
                await self._producer.pause()

    async def _send_some(self) -> bool:
        """Send as many batches as may be in flight; a retried batch is sent alone."""
        first = self.waiting[0]
        batches = [first]
        if self._producer.pipelined and self._known and not first.tries:
            batches = [batch for batch in list(self.waiting)[:IN_FLIGHT] if not batch.tries]
        for batch in batches:
            if not batch.tries:
                batch.epoch, batch.base_sequence = self._epoch, self._sequence
                self._sequence += len(batch.values)
        send = self._producer.send
        errors = await asyncio.gather(*(send(self._partition, batch) for batch in batches))
        in_order = True
        for batch, error in zip(batches, errors, strict=True):
            if in_order and error in NEVER_APPENDED:
                error = self._refused(batch, error)
            if batch.epoch != self._epoch:
                in_order = False  # the batch belongs to an abandoned epoch
            elif error is ErrorCode.NONE:
                self.waiting.remove(batch)
                self._known = True
                self._last_acknowledged = max(self._last_acknowledged, batch.base_sequence)
            else:
                in_order = False
        return in_order

    def _refused(self, batch: Batch, error: ErrorCode) -> ErrorCode:
        """Handle an error for a batch that the log may have: the leader keeps a producer's last batches only, after a
        restart only the very last. Continue in a new epoch when the error is ambiguous, as Kafka's producer does."""
        if error is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            self._producer.check_refusal(self._partition, batch, error)
        elif batch.base_sequence < self._last_acknowledged:
            self._producer.implicitly_acknowledged(self._partition, batch)
            return ErrorCode.NONE
        elif batch.tries > 1 and any(other.tries for other in self.waiting if other is not batch):
            self.waiting = deque(other for other in self.waiting if not other.tries)
            self._epoch += 1
            self._sequence = 0
            self._last_acknowledged = -1
            self._known = False
        else:
            self._producer.check_refusal(self._partition, batch, error)
        return error
