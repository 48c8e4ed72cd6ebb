"""Transactors: they write numbers and how far they have come, in transactions of which some are aborted; and who reads
what was committed.

As Kafka's producer they go by what the cluster says of `transaction.version`: with version 2 partitions are added by
writing to them, and every end gives a new epoch.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from odradek_wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from odradek_wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek_wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek_wire.messages.fetch import FetchRequest, FetchResponse
from odradek_wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from odradek_wire.messages.produce import ProduceRequest, ProduceResponse
from odradek_wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from odradek_wire.records.batch import iterate
from odradek_wire.records.builder import BatchBuilder
from odradek_wire.records.control import ControlRecordType, decode_control_record
from odradek_wire.records.records import read_records
from simulation.client import Client, UnreachableError
from simulation.transaction_checks import TransactionChecks

GROUP = "transfers"
TRANSACTIONS, GROUPS = 1, 0
TIMEOUT_MS = 20_000
READ_COMMITTED = 1
FETCH_VERSION = 12
TRIES = 4
AGAIN = frozenset(
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
    """The transaction does not go on: begin anew."""


class Transactor:
    """Writes to the partitions of `topic`; how far it has come is kept as an offset of `(source, number)`."""

    def __init__(
        self, client: Client, checks: TransactionChecks, topic: str, partitions: int, source: str, number: int
    ) -> None:
        self._client = client
        self._checks = checks
        self._topic = topic
        self._partitions = partitions
        self._source = (source, number)
        self._id = client.host
        self._name = client.host.encode()
        self._transactions = 0
        self._position = 0
        self._implicit = False
        self._producer = (-1, -1)
        self._sequences: dict[int, int] = {}
        self._stopping = False
        self.committed = 0
        """How many transactions were."""

    def stop(self) -> None:
        self._stopping = True

    async def run(self, mean_pause_s: float) -> None:
        chance = self._client.chance
        while True:
            try:
                await self._begin()
                while not self._stopping:
                    await asyncio.sleep(chance.expovariate(1 / mean_pause_s))
                    await self._transact()
                return
            except (UnreachableError, GivenUpError) as error:
                self._client.note(f"begins anew: {type(error).__name__}: {error}")
                self._forget_all()
                await asyncio.sleep(chance.uniform(0.05, 0.5))

    # -- requests -----------------------------------------------------------------------------------------------------

    def _forget_all(self) -> None:
        self._client.forget_coordinator(self._id, TRANSACTIONS)
        self._client.forget_coordinator(GROUP)
        for partition in range(self._partitions):
            self._client.forget_leader(self._topic, partition)

    async def _ask(self, request: Message, version: int, answer: type[R], *, of_group: bool = False) -> R:
        key = (GROUP, GROUPS) if of_group else (self._id, TRANSACTIONS)
        return await (await self._client.coordinator(*key)).ask(request, version, answer)

    async def _again(self, what: str, error: int) -> None:
        """Wait before it is asked again. Raises GivenUpError if that is of no use."""
        if error not in AGAIN:
            raise GivenUpError(f"{what}: {ErrorCode(error).name}")
        self._forget_all()
        await asyncio.sleep(self._client.chance.uniform(0.01, 0.2))

    async def _begin(self) -> None:
        found = await self._client.ask_any(ApiVersionsRequest("simulation", "1"), 3, ApiVersionsResponse)
        levels = {feature.name: feature.max_version_level for feature in found.finalized_features}
        self._implicit = levels.get("transaction.version", 0) >= 2
        while True:
            request = InitProducerIdRequest(self._id, TIMEOUT_MS)
            begun = await self._ask(request, 4, InitProducerIdResponse)
            if not begun.error_code:
                break
            await self._again("InitProducerId", begun.error_code)
        self._use((begun.producer_id, begun.producer_epoch))
        while True:
            topic = OffsetFetchRequest.OffsetFetchRequestTopic(self._source[0], [self._source[1]])
            stable = OffsetFetchRequest(GROUP, [topic])
            stable.require_stable = True
            answer = await self._ask(stable, 7, OffsetFetchResponse, of_group=True)
            error = answer.error_code or answer.topics[0].partitions[0].error_code
            if not error:
                break
            await self._again("OffsetFetch", error)
        self._position = max(answer.topics[0].partitions[0].committed_offset, 0)
        self._checks.position_told(self._name, self._position)

    def _use(self, producer: tuple[int, int]) -> None:
        if producer != self._producer:
            self._producer = producer
            self._sequences = {}

    # -- a transaction ------------------------------------------------------------------------------------------------

    async def _transact(self) -> None:
        chance = self._client.chance
        self._transactions += 1
        transaction = b"%s#%d" % (self._name, self._transactions)
        written: dict[int, list[bytes]] = {}
        for number in range(self._position, self._position + chance.randint(1, 4)):
            value = b"%s:%d#%d" % (self._name, number, self._transactions)
            written.setdefault(chance.randrange(self._partitions), []).append(value)
        self._checks.writing(transaction, (value for values in written.values() for value in values))
        end = self._position + sum(map(len, written.values()))
        if not self._implicit:
            await self._add(sorted(written))
        for partition, values in written.items():
            await self._write(partition, values)
        await self._commit_offset(end)
        what = chance.random()
        if what < 0.1:
            raise GivenUpError("as one that crashes")
        commit = what < 0.75
        if commit:
            self._checks.committing(transaction)
        await self._end(commit=commit)
        self._client.note(f"{transaction.decode()} is {'committed' if commit else 'aborted'} at {end}")
        if commit:
            self._checks.ended(self._name, transaction, end)
            self._position = end
            self.committed += 1

    async def _add(self, partitions: list[int]) -> None:
        for _ in range(TRIES):
            topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(self._topic, partitions)
            request = AddPartitionsToTxnRequest()
            request.v3_and_below_transactional_id = self._id
            request.v3_and_below_producer_id, request.v3_and_below_producer_epoch = self._producer
            request.v3_and_below_topics = [topic]
            answer = await self._ask(request, 3, AddPartitionsToTxnResponse)
            results = answer.results_by_topic_v3_and_below[0].results_by_partition
            error = next((each.partition_error_code for each in results if each.partition_error_code), 0)
            if not error:
                return
            await self._again("AddPartitionsToTxn", error)
        raise GivenUpError("AddPartitionsToTxn, again and again")

    async def _write(self, partition: int, values: list[bytes]) -> None:
        """What was not answered may have been written: it is sent again as it was."""
        place = (self._topic, partition)
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
                wire = await self._client.leader(*place)
                version = 12 if self._implicit else 9
                answer = await wire.ask(request, version, ProduceResponse)
            except UnreachableError:
                self._client.forget_leader(*place)
                await asyncio.sleep(self._client.chance.uniform(0.05, 0.3))
                continue
            error = answer.responses[0].partition_responses[0].error_code
            if error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._sequences[partition] = sequence + len(values)
                return
            await self._again("Produce", error)
        raise GivenUpError("Produce, again and again")

    async def _commit_offset(self, offset: int) -> None:
        producer_id, epoch = self._producer
        for _ in range(TRIES):
            if not self._implicit:
                adding = AddOffsetsToTxnRequest(self._id, producer_id, epoch, GROUP)
                added = await self._ask(adding, 3, AddOffsetsToTxnResponse)
                if added.error_code:
                    await self._again("AddOffsetsToTxn", added.error_code)
                    continue
            request = TxnOffsetCommitRequest(self._id, GROUP, producer_id, epoch)
            partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(self._source[1], offset)
            partition.committed_metadata = ""
            request.topics = [TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(self._source[0], [partition])]
            version = 5 if self._implicit else 3
            answer = await self._ask(request, version, TxnOffsetCommitResponse, of_group=True)
            error = answer.topics[0].partitions[0].error_code
            if not error:
                return
            await self._again("TxnOffsetCommit", error)
        raise GivenUpError("TxnOffsetCommit, again and again")

    async def _end(self, *, commit: bool) -> None:
        for _ in range(TRIES):
            request = EndTxnRequest(self._id, *self._producer, commit)
            answer = await self._ask(request, 5 if self._implicit else 3, EndTxnResponse)
            if not answer.error_code:
                if self._implicit:
                    self._use((answer.producer_id, answer.producer_epoch))
                return
            await self._again("EndTxn", answer.error_code)
        raise GivenUpError("EndTxn, again and again")


class CommittedReader:
    """Reads the committed records of all partitions of a topic, from the beginning, as Kafka's consumer does."""

    def __init__(self, client: Client, checks: TransactionChecks | None, topic: str, partitions: int) -> None:
        self._client = client
        self._checks = checks
        self._topic = topic
        self.positions = [0] * partitions
        self.found: dict[tuple[str, int], dict[int, bytes]] = {(topic, at): {} for at in range(partitions)}
        self.ends = [-1] * partitions
        """The high watermarks as they were told last."""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for partition in range(len(self.positions)):
                group.create_task(self._read(partition))

    async def _read(self, partition: int) -> None:
        while True:
            if not await self._fetch(partition):
                self._client.forget_leader(self._topic, partition)
                await asyncio.sleep(self._client.chance.uniform(0.1, 0.4))

    async def _fetch(self, partition: int) -> bool:
        place = (self._topic, partition)
        wanted = FetchRequest.FetchPartition(partition, -1, self.positions[partition], partition_max_bytes=2_000)
        request = FetchRequest(max_wait_ms=300, min_bytes=1, max_bytes=1 << 20, isolation_level=READ_COMMITTED)
        request.topics = [FetchRequest.FetchTopic(self._topic, partitions=[wanted])]
        try:
            answer = await (await self._client.leader(*place)).ask(request, FETCH_VERSION, FetchResponse)
        except UnreachableError:
            return False
        data = answer.responses[0].partitions[0]
        if data.error_code:
            return False
        self.ends[partition] = data.high_watermark
        self._take(place, data)
        return True

    def _take(self, place: tuple[str, int], data: FetchResponse.PartitionData) -> None:
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
                    if record.offset >= self.positions[place[1]]:
                        self.found[place][record.offset] = record.value or b""
                        if self._checks is not None:
                            self._checks.read(place, record.offset, record.value or b"")
            self.positions[place[1]] = max(self.positions[place[1]], header.next_offset)
