"""The requests of a transactional producer; `transactional_copiers` and `bank_producers` choose the records.

As Kafka's producer, it follows the cluster's `transaction.version`: with version 2, a Produce request adds its
partition to the transaction, and each EndTxn response has a new epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar

from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from odradek_wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from odradek_wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek_wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek_wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek_wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from odradek_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from odradek_wire.messages.produce import ProduceRequest, ProduceResponse
from odradek_wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from odradek_wire.records.builder import BatchBuilder
from simulation.client import Client, TopicPartition, UnreachableError
from simulation.transaction_checks import TransactionChecks

GROUP = "transfers"
TRANSACTIONS, GROUPS = 1, 0
TIMEOUT_MS = 20_000
TRIES = 4
RETRIABLE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
R = TypeVar("R", bound=Message)


class GivenUpError(Exception):
    """The transaction failed: the producer must start again with `begin`."""


class TransactionalProducer:
    """Writes to the partitions of `topic`. Every coroutine may raise UnreachableError and GivenUpError; the caller then
    calls `begin` again."""

    def __init__(
        self, client: Client, checks: TransactionChecks, transactional_id: str, topic: str, partitions: int
    ) -> None:
        self._client = client
        self._checks = checks
        self._id = transactional_id
        self._topic = topic
        self._partitions = partitions
        self._implicit = False
        self._producer = (-1, -1)
        self._sequences: dict[int, int] = {}

    @property
    def is_fenced(self) -> bool:
        """Whether another producer has called InitProducerId with the same transactional id since."""
        return self._checks.is_fenced(self._id, self._producer)

    async def begin(self) -> None:
        """Send InitProducerId, which fences earlier producers with this id and aborts their open transaction."""
        found = await self._client.ask_any(ApiVersionsRequest("simulation", "1"), 3, ApiVersionsResponse)
        levels = {feature.name: feature.max_version_level for feature in found.finalized_features}
        self._implicit = levels.get("transaction.version", 0) >= 2
        while True:
            begun = await self._ask(InitProducerIdRequest(self._id, TIMEOUT_MS), 4, InitProducerIdResponse)
            if not begun.error_code:
                break
            await self._back_off("InitProducerId", begun.error_code)
        self._use((begun.producer_id, begun.producer_epoch))
        self._checks.begun(self._id, self._producer)

    def forget_all(self) -> None:
        """Forget the known coordinators and leaders."""
        self._client.forget_coordinator(self._id, TRANSACTIONS)
        self._client.forget_coordinator(GROUP)
        for partition in range(self._partitions):
            self._client.forget_leader(self._topic, partition)

    async def _ask(self, request: Message, version: int, response_class: type[R], *, of_group: bool = False) -> R:
        key = (GROUP, GROUPS) if of_group else (self._id, TRANSACTIONS)
        return await (await self._client.coordinator(*key)).ask(request, version, response_class)

    async def _back_off(self, what: str, error: int) -> None:
        """Wait before the next try. Raises GivenUpError for an error that a retry cannot mend."""
        if error not in RETRIABLE:
            raise GivenUpError(f"{what}: {ErrorCode(error).name}")
        self.forget_all()
        await asyncio.sleep(self._client.chance.uniform(0.01, 0.2))

    def _use(self, producer: tuple[int, int]) -> None:
        if producer != self._producer:
            self._producer = producer
            self._sequences = {}

    # -- a transaction ------------------------------------------------------------------------------------------------

    async def add(self, partitions: list[int]) -> None:
        """Add partitions to the transaction."""
        if self._implicit:
            return
        for _ in range(TRIES):
            topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(self._topic, partitions)
            request = AddPartitionsToTxnRequest()
            request.v3_and_below_transactional_id = self._id
            request.v3_and_below_producer_id, request.v3_and_below_producer_epoch = self._producer
            request.v3_and_below_topics = [topic]
            response = await self._ask(request, 3, AddPartitionsToTxnResponse)
            results = response.results_by_topic_v3_and_below[0].results_by_partition
            error = next((each.partition_error_code for each in results if each.partition_error_code), 0)
            if not error:
                return
            await self._back_off("AddPartitionsToTxn", error)
        raise GivenUpError(f"AddPartitionsToTxn: every one of {TRIES} tries failed")

    async def write(self, partition: int, values: Sequence[bytes]) -> None:
        """Write a batch. A request without a response is retried with the same sequence numbers."""
        topic_partition = (self._topic, partition)
        producer_id, epoch = self._producer
        sequence = self._sequences.get(partition, 0)
        builder = BatchBuilder(
            producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=True
        )
        for value in values:
            builder.append(self._client.wall_ms(), None, value)
        records = bytes(builder.build())
        for _ in range(TRIES):
            data = ProduceRequest.PartitionProduceData(partition, records)
            request = ProduceRequest(self._id, -1, 3_000)
            request.topic_data = [ProduceRequest.TopicProduceData(self._topic, partition_data=[data])]
            try:
                connection = await self._client.leader(*topic_partition)
                version = 12 if self._implicit else 9
                response = await connection.ask(request, version, ProduceResponse)
            except UnreachableError:
                self._client.forget_leader(*topic_partition)
                await asyncio.sleep(self._client.chance.uniform(0.05, 0.3))
                continue
            error = response.responses[0].partition_responses[0].error_code
            if error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._sequences[partition] = sequence + len(values)
                return
            await self._back_off("Produce", error)
        raise GivenUpError(f"Produce: every one of {TRIES} tries failed")

    async def end(self, transaction: bytes, *, commit: bool) -> None:
        """End the transaction, and report the request and the response to the checks."""
        self._checks.ending(transaction, self._id, self._producer, commit=commit)
        for _ in range(TRIES):
            request = EndTxnRequest(self._id, *self._producer, commit)
            response = await self._ask(request, 5 if self._implicit else 3, EndTxnResponse)
            if not response.error_code:
                self._client.note(f"{transaction.decode()} is {'committed' if commit else 'aborted'}")
                self._checks.ended(transaction, commit=commit)
                if self._implicit:
                    self._use((response.producer_id, response.producer_epoch))
                return
            await self._back_off("EndTxn", response.error_code)
        raise GivenUpError(f"EndTxn: every one of {TRIES} tries failed")

    # -- offsets ------------------------------------------------------------------------------------------------------

    async def offset(self, source: TopicPartition) -> int:
        """Return the committed offset of `source`, -1 if there is none.

        A broker that does not know yet that it is no longer the coordinator returns old offsets, as Kafka's does. Only
        the real coordinator can replicate a commit, so an OffsetCommit for another partition is sent first.
        """
        while True:
            nothing = OffsetCommitRequest(GROUP)
            partition = OffsetCommitRequest.OffsetCommitRequestPartition(0)
            nothing.topics = [OffsetCommitRequest.OffsetCommitRequestTopic(self._topic, partitions=[partition])]
            committed = await self._ask(nothing, 7, OffsetCommitResponse, of_group=True)
            error = committed.topics[0].partitions[0].error_code
            if error:
                await self._back_off("OffsetCommit", error)
                continue
            topic = OffsetFetchRequest.OffsetFetchRequestTopic(source[0], [source[1]])
            stable = OffsetFetchRequest(GROUP, [topic])
            stable.require_stable = True
            response = await self._ask(stable, 7, OffsetFetchResponse, of_group=True)
            error = response.error_code or response.topics[0].partitions[0].error_code
            if not error:
                return response.topics[0].partitions[0].committed_offset
            await self._back_off("OffsetFetch", error)

    async def commit_offset(self, source: TopicPartition, offset: int) -> None:
        """Commit the offset of `source` in the transaction."""
        producer_id, epoch = self._producer
        for _ in range(TRIES):
            if not self._implicit:
                adding = AddOffsetsToTxnRequest(self._id, producer_id, epoch, GROUP)
                added = await self._ask(adding, 3, AddOffsetsToTxnResponse)
                if added.error_code:
                    await self._back_off("AddOffsetsToTxn", added.error_code)
                    continue
            request = TxnOffsetCommitRequest(self._id, GROUP, producer_id, epoch)
            partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(source[1], offset)
            partition.committed_metadata = ""
            request.topics = [TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(source[0], [partition])]
            version = 5 if self._implicit else 3
            response = await self._ask(request, version, TxnOffsetCommitResponse, of_group=True)
            error = response.topics[0].partitions[0].error_code
            if not error:
                return
            await self._back_off("TxnOffsetCommit", error)
        raise GivenUpError(f"TxnOffsetCommit: every one of {TRIES} tries failed")
