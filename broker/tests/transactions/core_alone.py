"""The transaction coordinator's core with a log in memory, for tests.

What it decides takes effect at once, unless the log holds it back. Markers are written when a test says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from odradek_broker.coordination.core.deadlines import Instant
from odradek_broker.transactions.core.transaction_metadata import (
    Producer,
    TopicPartition,
    TransactionMetadata,
    TransactionState,
)
from odradek_broker.transactions.core.transaction_records import TransactionRecord, decode_record, encode_record
from odradek_broker.transactions.core.transaction_rules import NO_PRODUCER
from odradek_broker.transactions.core.transaction_shard import TransactionShard
from odradek_broker.transactions.core.transaction_step import (
    TransactionMarkers,
    TransactionResponse,
    TransactionSettings,
    TransactionStep,
)
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek_wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

BEGIN = Instant(1_700_000_000_000, 5_000)
MAX_EPOCH = 32767
A0: TopicPartition = ("a", 0)
A1: TopicPartition = ("a", 1)
B0: TopicPartition = ("b", 0)

Told = tuple[ErrorCode, Producer]
"""An error, and who produces from now on."""


class CoreAlone:
    def __init__(
        self,
        level: int = 2,
        settings: TransactionSettings | None = None,
        log: Iterable[tuple[bytes, bytes | None]] = (),
        now: Instant = BEGIN,
        coordinator_epoch: int = 3,
    ) -> None:
        self.shard = TransactionShard(settings or TransactionSettings())
        self.shard.transaction_version = level
        self.coordinator_epoch = coordinator_epoch
        self.now = now
        self.log = list(log)
        self.answers: dict[object, TransactionResponse] = {}
        self.markers: list[TransactionMarkers] = []
        """Not written yet."""
        self.events: list[str] = []
        self.holds = False
        """The log takes records, but does not say what becomes of them."""
        self.held: list[TransactionStep] = []
        self.refuses = ErrorCode.NONE
        """With which error the log refuses records."""
        self.ids = count(1000)
        self._tokens = count()
        for key, value in self.log:
            record = decode_record(key, value)
            assert record is not None
            self.shard.replay(record)
        self.carry_out(self.shard.loaded(coordinator_epoch, now))

    def restarted(self) -> CoreAlone:
        """The next coordinator, with what is in the log."""
        level, settings = self.shard.transaction_version, self.shard.settings
        return CoreAlone(level, settings, self.log, self.now, self.coordinator_epoch + 1)

    # -- the shell, in a few lines

    def carry_out(self, step: TransactionStep) -> None:
        for token, answer in step.responses:
            assert token not in self.answers, "every request is answered once"
            self.answers[token] = answer
        self.markers.extend(step.markers)
        self.events.extend(event.message for event in step.events)
        assert (step.write is not None) == bool(step.records)
        if step.write is None:
            return
        if self.refuses:
            self.carry_out(self.shard.written(step.write, self.refuses, self.now))
            return
        self.log.extend(encode_record(record) for record in step.records)
        self.held.append(step)
        if not self.holds:
            self.let_through()

    def let_through(self) -> None:
        """What the log holds back takes effect."""
        while self.held:
            self.let_one_through()

    def let_one_through(self) -> None:
        step = self.held.pop(0)
        assert step.write is not None
        self.take_effect(step.records)
        self.carry_out(self.shard.written(step.write, ErrorCode.NONE, self.now))

    def take_effect(self, records: Iterable[TransactionRecord]) -> None:
        for record in records:
            self.shard.replay(record)

    def time_out(self) -> None:
        """Nobody waits any longer for what the log holds back."""
        for step in self.held:
            assert step.write is not None
            self.carry_out(self.shard.written(step.write, ErrorCode.REQUEST_TIMED_OUT, self.now))

    def write_markers(self, *partitions: TopicPartition) -> None:
        """Into these partitions of the first work, or all of it."""
        work = self.markers[0]
        if not partitions or set(partitions) == work.partitions:
            self.markers.pop(0)
        self.carry_out(self.shard.markers_written(work, partitions or work.partitions, self.now))

    def pass_time(self, ms: int) -> None:
        end = self.now.timeout_ms + ms
        while True:
            next_ms = self.shard.next_ms()
            at_ms = end if next_ms is None or next_ms > end else max(next_ms, self.now.timeout_ms)
            self.now = Instant(self.now.wall_ms + at_ms - self.now.timeout_ms, at_ms)
            for step in self.shard.expired(self.now, self.next_id):
                self.carry_out(step)
            if at_ms == end:
                return

    def next_id(self) -> int | None:
        return next(self.ids)

    def expire_ids(self) -> None:
        for step in self.shard.expire_ids(self.now):
            self.carry_out(step)

    # -- requests; None while there is no answer

    def init(
        self,
        transactional_id: str = "t",
        expected: Producer = NO_PRODUCER,
        timeout_ms: int = 60_000,
        version: int = 5,
        token: object = None,
    ) -> Told | None:
        request = InitProducerIdRequest(transactional_id, timeout_ms, expected.id, expected.epoch)
        fresh_id = self.next_id() if self.shard.init_takes_id(transactional_id) else None
        token = token or next(self._tokens)
        self.carry_out(self.shard.init_producer_id(request, version, fresh_id, token, self.now))
        return self.told(token)

    def add(
        self,
        producer: Producer,
        *partitions: TopicPartition,
        transactional_id: str = "t",
        version: int = 4,
        token: object = None,
    ) -> ErrorCode | None:
        token = token or next(self._tokens)
        self.carry_out(self.shard.add_partitions(transactional_id, producer, partitions, version, token, self.now))
        answer = self.answers.get(token)
        assert answer is None or isinstance(answer, ErrorCode)
        return answer

    def end(
        self,
        producer: Producer,
        commit: bool = True,
        transactional_id: str = "t",
        version: int = 5,
        token: object = None,
    ) -> Told | None:
        request = EndTxnRequest(transactional_id, producer.id, producer.epoch, commit)
        fresh_id = self.next_id() if self.shard.end_takes_id(transactional_id) else None
        token = token or next(self._tokens)
        self.carry_out(self.shard.end_txn(request, version, fresh_id, token, self.now))
        return self.told(token)

    def told(self, token: object) -> Told | None:
        answer = self.answers.get(token)
        if answer is None:
            return None
        assert isinstance(answer, InitProducerIdResponse | EndTxnResponse)
        return ErrorCode(answer.error_code), Producer(answer.producer_id, answer.producer_epoch)

    # -- what comes before

    def begun(self, *partitions: TopicPartition, timeout_ms: int = 60_000) -> Producer:
        """A producer of "t" that has begun a transaction."""
        told = self.init(timeout_ms=timeout_ms)
        assert told is not None
        version = 4 if self.shard.transaction_version else 3
        assert self.add(told[1], *partitions, version=version) == ErrorCode.NONE
        return told[1]

    def put(self, transaction: TransactionMetadata, transactional_id: str = "t") -> None:
        """As if the log had said so."""
        record = TransactionRecord(transactional_id, transaction)
        self.log.append(encode_record(record))
        self.shard.replay(record)

    def state(self, transactional_id: str = "t") -> TransactionState:
        return self.shard.transactions[transactional_id].state
