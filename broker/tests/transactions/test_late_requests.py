"""Requests of a transaction that arrive when the producer's next transaction is open: with transaction version 1 they
change that transaction, with version 2 they do not (KIP-890).

A client whose request times out continues on another connection, while the request may still arrive on the old one. The
tests keep the bytes of such a request, and deliver them later.
"""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
from broker.tests.alone import Node
from broker.tests.conftest import Connect, StartNode, produce_request

from odradek_broker.transactions.core.transaction_metadata import Producer
from odradek_wire.errors import ErrorCode
from odradek_wire.frames import decode_response, encode_request
from odradek_wire.message import Message
from odradek_wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from odradek_wire.messages.describe_transactions import DescribeTransactionsRequest
from odradek_wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek_wire.messages.fetch import FetchRequest
from odradek_wire.messages.find_coordinator import FindCoordinatorRequest
from odradek_wire.messages.init_producer_id import InitProducerIdRequest
from odradek_wire.messages.produce import ProduceResponse
from odradek_wire.messages.update_features import UpdateFeaturesRequest
from odradek_wire.records.batch import iterate
from odradek_wire.records.builder import BatchBuilder
from odradek_wire.records.record_codec import read_records

DOWNGRADE = 2
READ_COMMITTED = 1


class LaggingProducer:
    """A producer of one transaction version, and the records that consumers read. Requests are sent on `connection`;
    the producer replaces it when a response is late."""

    def __init__(self, node: Node, connect: Connect, version: int, name: str = "t") -> None:
        """`name` is the transactional id and the topic."""
        self.name = name
        self._node = node
        self._connect = connect
        self.version = version
        self._versions = {"produce": 12, "end": 5} if version == 2 else {"produce": 11, "end": 4}
        self.producer = Producer(-1, -1)
        self.connection: Any = None

    async def start(self) -> None:
        await self.reconnect()
        await self.connection.create_topic(self.name)
        await self.connection.ask(FindCoordinatorRequest(self.name, 1), 3)
        while (answer := await self.connection.ask(InitProducerIdRequest(self.name, 60_000), 4)).error_code:
            assert answer.error_code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
        self.producer = Producer(answer.producer_id, answer.producer_epoch)

    async def reconnect(self) -> None:
        self.connection = await self._connect(self._node)

    # -- a transaction ------------------------------------------------------------------------------------------------

    async def add_partition(self) -> None:
        """Add the partition, as clients of version 1 do before they produce."""
        if self.version == 1:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=self.producer.id,
                v3_and_below_producer_epoch=self.producer.epoch,
                v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(self.name, [0])],
            )
            error = ErrorCode.CONCURRENT_TRANSACTIONS
            while error == ErrorCode.CONCURRENT_TRANSACTIONS:
                answer = await self.connection.ask(request, 3)
                error = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            assert error == ErrorCode.NONE

    def produce_request(self, value: bytes, sequence: int = 0) -> tuple[Message, int]:
        builder = BatchBuilder(
            producer_id=self.producer.id,
            producer_epoch=self.producer.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        builder.append(int(time.time() * 1000), None, value)
        return produce_request(self.name, bytes(builder.build()), transactional_id=self.name), self._versions["produce"]

    def end_request(self, *, commit: bool) -> tuple[Message, int]:
        return EndTxnRequest(self.name, *self.producer, commit), self._versions["end"]

    async def produce(self, value: bytes, sequence: int = 0) -> int:
        request, version = self.produce_request(value, sequence)
        return _produced(await self.connection.ask(request, version))

    async def end(self, *, commit: bool) -> int:
        request, version = self.end_request(commit=commit)
        error = ErrorCode.CONCURRENT_TRANSACTIONS
        while error == ErrorCode.CONCURRENT_TRANSACTIONS:
            answer = await self.connection.ask(request, version)
            error = answer.error_code
        if self.version == 2 and not error:
            self.producer = Producer(answer.producer_id, answer.producer_epoch)
        return error

    # -- late ---------------------------------------------------------------------------------------------------------

    def hold_back(self, request: Message, version: int) -> Late:
        """Return a request that the client sends now, and that the network delivers later."""
        return Late(self.connection, encode_request(request, version, 77, "producer"), version)

    # -- consumers ----------------------------------------------------------------------------------------------

    async def state(self) -> str:
        (found,) = (await self.connection.ask(DescribeTransactionsRequest([self.name]), 0)).transaction_states
        return str(found.transaction_state)

    async def committed(self) -> list[bytes]:
        """Wait until no transaction is about to end; return the values that a read_committed consumer reads then."""
        while (await self.state()).startswith("Prepare"):
            pass
        partition = FetchRequest.FetchPartition(partition=0, partition_max_bytes=1 << 20)
        wanted = [FetchRequest.FetchTopic(topic=self.name, partitions=[partition])]
        request = FetchRequest(max_wait_ms=0, min_bytes=0, isolation_level=READ_COMMITTED, topics=wanted)
        (data,) = (await self.connection.ask(request, 11)).responses[0].partitions
        records = bytes(data.records or b"")
        to_come = sorted(data.aborted_transactions or (), key=lambda each: -each.first_offset)
        aborted: set[int] = set()
        values = []
        for header in iterate(records, allow_partial=True):
            batch = records[header.position : header.end]
            while to_come and to_come[-1].first_offset <= header.base_offset:
                aborted.add(to_come.pop().producer_id)
            if header.is_control:
                aborted.discard(header.producer_id)
            elif header.producer_id not in aborted:
                values += [record.value or b"" for record in read_records(batch, _at_start(header))]
        return values


class Late:
    """A request on its way, and the connection on which it will arrive."""

    def __init__(self, connection: Any, frame: bytes, version: int) -> None:
        self._connection = connection
        self._frame = frame
        self._version = version

    async def arrives(self, answer: type[Message]) -> Any:
        self._connection.send_frame(self._frame)
        return decode_response(answer, self._version, await self._connection.receive_frame())[1]


def _at_start(header: Any) -> Any:
    header.position = 0
    return header


def _produced(answer: Any) -> int:
    return int(answer.responses[0].partition_responses[0].error_code)


async def downgrade(client: Any) -> None:
    """Change the cluster's `transaction.version` to 1."""
    update = UpdateFeaturesRequest.FeatureUpdateKey("transaction.version", 1, False, DOWNGRADE)
    assert (await client.ask(UpdateFeaturesRequest(feature_updates=[update]), 1)).error_code == 0


@pytest.fixture(params=["union", "3.9"])
async def old(request: pytest.FixtureRequest, start_node: StartNode, connect: Connect) -> LaggingProducer:
    """A producer of transaction version 1, in a cluster of that version and in one of Kafka 3.9."""
    node = await start_node(odradek_emulate=request.param)
    if request.param == "union":
        await downgrade(await connect(node))
    lagging = LaggingProducer(node, connect, 1)
    await lagging.start()
    return lagging


@pytest.fixture
async def new(start_node: StartNode, connect: Connect) -> LaggingProducer:
    lagging = LaggingProducer(await start_node(), connect, 2)
    await lagging.start()
    return lagging


async def produce_comes_late(lagging: LaggingProducer) -> int:
    """Deliver a late batch in the next transaction of its producer, which has aborted the first one and commits the
    second. Return the error of the late batch."""
    await lagging.add_partition()
    late = lagging.hold_back(*lagging.produce_request(b"aborted"))
    await lagging.reconnect()
    assert await lagging.end(commit=False) == 0

    await lagging.add_partition()
    if lagging.version == 2:
        assert await lagging.produce(b"committed") == 0
    answer = _produced(await late.arrives(ProduceResponse))
    if lagging.version == 1:
        assert await lagging.produce(b"committed", sequence=0 if answer else 1) == 0
    assert await lagging.end(commit=True) == 0
    return answer


async def test_v1_a_late_batch_is_committed_with_the_next_transaction(old: LaggingProducer) -> None:
    assert await produce_comes_late(old) == ErrorCode.NONE
    assert await old.committed() == [b"aborted", b"committed"]


async def test_v2_a_late_batch_does_not_join_the_next_transaction(new: LaggingProducer) -> None:
    assert await produce_comes_late(new) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await new.committed() == [b"committed"]


async def test_v2_a_late_batch_does_not_begin_its_transaction_again(new: LaggingProducer) -> None:
    """The partition does not know the producer's new epoch, but the coordinator does, and refuses the verification."""
    assert await new.produce(b"first") == 0
    assert await new.end(commit=True) == 0
    late = new.hold_back(*new.produce_request(b"late"))
    await new.reconnect()
    assert await new.end(commit=False) == 0
    assert _produced(await late.arrives(ProduceResponse)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await new.committed() == [b"first"]


async def test_v1_verification_refuses_a_late_batch_without_a_transaction(old: LaggingProducer) -> None:
    """Without verification the batch would begin a transaction that never ends."""
    await old.add_partition()
    late = old.hold_back(*old.produce_request(b"aborted"))
    await old.reconnect()
    assert await old.end(commit=False) == 0
    assert _produced(await late.arrives(ProduceResponse)) in (
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
    )
    await old.add_partition()
    assert await old.produce(b"committed") == 0
    assert await old.end(commit=True) == 0
    assert await old.committed() == [b"committed"]


async def end_comes_late(lagging: LaggingProducer) -> int:
    """Deliver a late EndTxn, after a retry has succeeded and half of the next transaction is written, which the
    producer aborts. Return the error of the late request."""
    await lagging.add_partition()
    assert await lagging.produce(b"one") == 0
    late = lagging.hold_back(*lagging.end_request(commit=True))
    await lagging.reconnect()
    assert await lagging.end(commit=True) == 0

    await lagging.add_partition()
    assert await lagging.produce(b"half", sequence=0 if lagging.version == 2 else 1) == 0
    return int((await late.arrives(EndTxnResponse)).error_code)


async def test_v1_a_late_end_txn_commits_half_of_the_next_transaction(old: LaggingProducer) -> None:
    assert await end_comes_late(old) == ErrorCode.NONE
    assert await old.end(commit=False) == ErrorCode.INVALID_TXN_STATE
    assert await old.committed() == [b"one", b"half"]


async def test_v2_a_late_end_txn_does_not_end_the_next_transaction(new: LaggingProducer) -> None:
    assert await end_comes_late(new) in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    assert await new.state() == "Ongoing"
    assert await new.end(commit=False) == 0
    assert await new.committed() == [b"one"]


async def walk(lagging: LaggingProducer, rng: random.Random) -> list[bytes]:
    """Run transactions while the network holds requests back and delivers them late. The producer aborts after a lost
    response to Produce, and retries after a lost response to EndTxn. Return the records that consumers should read:
    those of acknowledged commits."""
    expected: list[bytes] = []
    in_flight: list[tuple[Late, type[Message]]] = []
    sequence = 0

    async def some_arrive(chance: float) -> None:
        for each in [each for each in in_flight if rng.random() < chance]:
            in_flight.remove(each)
            late, answer = each
            await late.arrives(answer)

    for number in range(8):
        written: list[bytes] = []
        missed = False
        await lagging.add_partition()
        for _ in range(rng.randint(1, 3)):
            value = b"%d of %d" % (len(written), number)
            if rng.random() < 0.3:
                in_flight.append((lagging.hold_back(*lagging.produce_request(value, sequence)), ProduceResponse))
                await lagging.reconnect()
                missed = True
                break
            missed = bool(await lagging.produce(value, sequence))
            if missed:
                break
            written.append(value)
            sequence += 1
            await some_arrive(0.2)
        commit = not missed and rng.random() < 0.7
        if rng.random() < 0.3:
            in_flight.append((lagging.hold_back(*lagging.end_request(commit=commit)), EndTxnResponse))
            await lagging.reconnect()
        await some_arrive(0.2)
        if not await lagging.end(commit=commit) and commit:
            expected += written
        if lagging.version == 2:
            sequence = 0
    await some_arrive(1)
    return expected


async def test_v2_late_requests_do_not_change_committed_records(start_node: StartNode, connect: Connect) -> None:
    node = await start_node()
    for seed in range(30):
        lagging = LaggingProducer(node, connect, 2, f"walk-{seed}")
        await lagging.start()
        expected = await walk(lagging, random.Random(seed))
        assert await lagging.committed() == expected, f"seed {seed}"


async def test_v1_late_requests_change_committed_records(start_node: StartNode, connect: Connect) -> None:
    """Run the requests of the test above, which shows that they would find a violation of version 2."""
    node = await start_node()
    await downgrade(await connect(node))
    changed = 0
    for seed in range(30):
        lagging = LaggingProducer(node, connect, 1, f"walk-{seed}")
        await lagging.start()
        expected = await walk(lagging, random.Random(seed))
        changed += await lagging.committed() != expected
    assert changed
