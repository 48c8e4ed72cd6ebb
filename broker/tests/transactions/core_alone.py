"""A `TransactionShard` with a log in memory, for tests.

Records take effect immediately, unless the log holds them back. Tests write the markers by `write_markers`.
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

Outcome = tuple[ErrorCode, Producer]
"""The error and the producer of a response."""


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
        self.responses: dict[object, TransactionResponse] = {}
        self.markers: list[TransactionMarkers] = []
        """The markers that are not written yet."""
        self.events: list[str] = []
        self.holds = False
        """Whether the log holds records back, without a result of the append."""
        self.held: list[TransactionStep] = []
        self.refuses = ErrorCode.NONE
        """The error of appends."""
        self.ids = count(1000)
        self._request_ids = count()
        for key, value in self.log:
            record = decode_record(key, value)
            assert record is not None
            self.shard.replay(record)
        self.apply(self.shard.loaded(coordinator_epoch, now))

    def restarted(self) -> CoreAlone:
        """Return the next coordinator, loaded from the same log."""
        level, settings = self.shard.transaction_version, self.shard.settings
        return CoreAlone(level, settings, self.log, self.now, self.coordinator_epoch + 1)

    # -- the shell, in a few lines

    def apply(self, step: TransactionStep) -> None:
        for request_id, response in step.responses:
            assert request_id not in self.responses, "every request gets one response"
            self.responses[request_id] = response
        self.markers.extend(step.markers)
        self.events.extend(event.message for event in step.events)
        assert (step.write is not None) == bool(step.records)
        if step.write is None:
            return
        if self.refuses:
            self.apply(self.shard.written(step.write, self.refuses, self.now))
            return
        self.log.extend(encode_record(record) for record in step.records)
        self.held.append(step)
        if not self.holds:
            self.let_through()

    def let_through(self) -> None:
        """Let all records take effect that the log holds back."""
        while self.held:
            self.let_one_through()

    def let_one_through(self) -> None:
        step = self.held.pop(0)
        assert step.write is not None
        self.take_effect(step.records)
        self.apply(self.shard.written(step.write, ErrorCode.NONE, self.now))

    def take_effect(self, records: Iterable[TransactionRecord]) -> None:
        for record in records:
            self.shard.replay(record)

    def time_out(self) -> None:
        """Let all writes time out that the log holds back."""
        for step in self.held:
            assert step.write is not None
            self.apply(self.shard.written(step.write, ErrorCode.REQUEST_TIMED_OUT, self.now))

    def write_markers(self, *partitions: TopicPartition) -> None:
        """Report the first markers as written, in these partitions or in all."""
        markers = self.markers[0]
        if not partitions or set(partitions) == markers.partitions:
            self.markers.pop(0)
        self.apply(self.shard.markers_written(markers, partitions or markers.partitions, self.now))

    def pass_time(self, ms: int) -> None:
        end = self.now.monotonic_ms + ms
        while True:
            next_ms = self.shard.next_ms()
            at_ms = end if next_ms is None or next_ms > end else max(next_ms, self.now.monotonic_ms)
            self.now = Instant(self.now.wall_ms + at_ms - self.now.monotonic_ms, at_ms)
            for step in self.shard.handle_deadlines(self.now, self.generate_producer_id):
                self.apply(step)
            if at_ms == end:
                return

    def generate_producer_id(self) -> int | None:
        return next(self.ids)

    def expire_ids(self) -> None:
        for step in self.shard.expire_ids(self.now):
            self.apply(step)

    # -- requests; None while the response is pending

    def init(
        self,
        transactional_id: str = "t",
        expected: Producer = NO_PRODUCER,
        timeout_ms: int = 60_000,
        version: int = 5,
        request_id: object = None,
    ) -> Outcome | None:
        request = InitProducerIdRequest(transactional_id, timeout_ms, expected.id, expected.epoch)
        fresh_producer_id = (
            self.generate_producer_id() if self.shard.init_may_need_producer_id(transactional_id) else None
        )
        request_id = request_id or next(self._request_ids)
        self.apply(self.shard.init_producer_id(request, version, fresh_producer_id, request_id, self.now))
        return self.outcome(request_id)

    def add(
        self,
        producer: Producer,
        *partitions: TopicPartition,
        transactional_id: str = "t",
        version: int = 4,
        request_id: object = None,
    ) -> ErrorCode | None:
        request_id = request_id or next(self._request_ids)
        self.apply(self.shard.add_partitions(transactional_id, producer, partitions, version, request_id, self.now))
        response = self.responses.get(request_id)
        assert response is None or isinstance(response, ErrorCode)
        return response

    def end(
        self,
        producer: Producer,
        commit: bool = True,
        transactional_id: str = "t",
        version: int = 5,
        request_id: object = None,
    ) -> Outcome | None:
        request = EndTxnRequest(transactional_id, producer.id, producer.epoch, commit)
        fresh_producer_id = (
            self.generate_producer_id() if self.shard.end_may_need_producer_id(transactional_id) else None
        )
        request_id = request_id or next(self._request_ids)
        self.apply(self.shard.end_txn(request, version, fresh_producer_id, request_id, self.now))
        return self.outcome(request_id)

    def outcome(self, request_id: object) -> Outcome | None:
        response = self.responses.get(request_id)
        if response is None:
            return None
        assert isinstance(response, InitProducerIdResponse | EndTxnResponse)
        return ErrorCode(response.error_code), Producer(response.producer_id, response.producer_epoch)

    # -- preparation

    def begun(self, *partitions: TopicPartition, timeout_ms: int = 60_000) -> Producer:
        """Initialize a producer of "t", and begin its transaction."""
        outcome = self.init(timeout_ms=timeout_ms)
        assert outcome is not None
        version = 4 if self.shard.transaction_version else 3
        assert self.add(outcome[1], *partitions, version=version) == ErrorCode.NONE
        return outcome[1]

    def put(self, transaction: TransactionMetadata, transactional_id: str = "t") -> None:
        """Append and replay this metadata."""
        record = TransactionRecord(transactional_id, transaction)
        self.log.append(encode_record(record))
        self.shard.replay(record)

    def state(self, transactional_id: str = "t") -> TransactionState:
        return self.shard.transactions[transactional_id].state
