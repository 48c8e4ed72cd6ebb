"""Transactional clients of librdkafka that record the outcome of each transaction (`history`).

All processes that keep the books of a bank use one transactional id: the process that started last fences the others,
which then restart. The members of a group copy the records that they read and commit the offsets in the same
transaction, each with its own transactional id.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition

from compat_tests.netns.bank import ACCOUNTS, Ledger, Statement, barrier
from compat_tests.netns.history import Kind, Operation, Outcome, copy_of, target_of
from compat_tests.netns.job import COMMON, Job, consumer_for, offset_of, partition_of

_TIMEOUT_S = 20.0
_CATCH_UP_S = 60.0
_TRANSACTION_MS = 10_000
_PAUSE_S = 0.03
_BATCH = 500
_POLL_S = 0.1
_ABORT_PROBABILITY = 0.2
_RESTART_PAUSE_MAX_S = 3.0
_HANG_S = 15.0


class _ProducerEnded(Exception):
    """This producer cannot continue: a rival has fenced it, or the job ends, or a call has failed."""


class _Transactions:
    """A transactional producer. Its creation ends the transaction that an earlier producer left open."""

    def __init__(self, job: Job, transactional_id: str, topic: str) -> None:
        self._job = job
        self._topic = topic
        self._producer = Producer(
            {
                **COMMON,
                "bootstrap.servers": job.servers,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": _TRANSACTION_MS,
                "linger.ms": 0,
                "request.timeout.ms": 3000,
                "socket.timeout.ms": 6000,
            }
        )
        self._retry(lambda: self._producer.init_transactions(_TIMEOUT_S))

    def write(
        self,
        rows: list[tuple[int, str]],
        *,
        abort: bool = False,
        group: str = "",
        finish: Callable[[Producer], None] = lambda producer: None,
    ) -> bool:
        """Write partitions and values in a transaction, record it, and return whether it was committed. `finish` may
        add to the transaction. Raises _Over after the outcome is recorded."""
        begin, outcome, notes = time.monotonic(), Outcome.FAIL, []
        try:
            self._producer.begin_transaction()
            for partition, value in rows:
                self._producer.produce(self._topic, value.encode(), partition=partition)
            finish(self._producer)
            if abort:
                self._retry(lambda: self._producer.abort_transaction(_TIMEOUT_S))
            else:
                outcome = Outcome.INFO
                self._retry(lambda: self._producer.commit_transaction(_TIMEOUT_S))
                outcome = Outcome.OK
        except KafkaException as failure:
            notes.append(str(failure))
            if not failure.args[0].txn_requires_abort():
                raise _ProducerEnded(notes) from failure
            try:
                self._retry(lambda: self._producer.abort_transaction(_TIMEOUT_S))
            except KafkaException as abort_failure:
                notes.append(str(abort_failure))
                raise _ProducerEnded(notes) from abort_failure
            outcome = Outcome.FAIL
        finally:
            self._job.recorder.write(
                Operation(
                    self._job.name, Kind.TRANSACTION, begin, time.monotonic(), outcome, self._topic,
                    values=tuple(value for _, value in rows), group=group, note=" ".join(notes),
                )
            )  # fmt: skip
        return outcome is Outcome.OK

    def _retry(self, call: Callable[[], object]) -> None:
        """Repeat a call of librdkafka while it fails with a retriable error, such as a timeout."""
        while True:
            try:
                call()
                return
            except KafkaException as failure:
                if not failure.args[0].retriable() or self._job.stopping.is_set():
                    raise
                print(f"{time.monotonic():.3f} retries after {failure}", flush=True)


def make_transfers(job: Job) -> None:
    """Keep the books of a bank. The job's group is the bank's name and transactional id."""
    rng = random.Random(job.name)
    for incarnation in count():
        with suppress(_ProducerEnded, KafkaException):
            _transfer_until_fenced(job, f"{job.name}.{incarnation}", rng)
        if job.stopping.wait(rng.uniform(0, _RESTART_PAUSE_MAX_S)):
            return


def _transfer_until_fenced(job: Job, attempt: str, rng: random.Random) -> None:
    """Make transfers until the job ends or a rival fences this producer."""
    bank = job.group
    transactions = _Transactions(job, bank, job.topic)
    barriers = [(partition, barrier(bank, attempt, partition)) for partition in range(job.partitions)]
    while not transactions.write(barriers):
        pass
    ledger = _ledger(job, [value for _, value in barriers])

    def write(statements: list[Statement], *, abort: bool = False) -> None:
        rows = [(each.account % job.partitions, str(each)) for each in statements]
        if transactions.write(rows, abort=abort):
            for each in statements:
                ledger.read(each)

    for number in count():
        if job.stopping.wait(_PAUSE_S):
            return
        if ledger.transfer < 0:
            write(ledger.opening(bank, f"{attempt}.{number}"))
            continue
        giver, taker = rng.sample(range(ACCOUNTS), 2)
        statements = ledger.transferred(bank, f"{attempt}.{number}", giver, taker, rng.randint(1, 20))
        write(statements, abort=rng.random() < _ABORT_PROBABILITY)


def _ledger(job: Job, barriers: list[str]) -> Ledger:
    """Read the statements that were committed before the barriers; each partition has one. A deposed leader that is
    cut off does not have the barrier, so no ledger comes from such a leader."""
    ledger, missing = Ledger(), set(barriers)
    deadline = time.monotonic() + _CATCH_UP_S
    with _committed_values(job) as messages:
        for value in messages:
            missing.discard(value)
            statement = Statement.parse(value)
            if statement is not None and statement.bank == job.group:
                ledger.read(statement)
            if not missing:
                return ledger
            if time.monotonic() > deadline or job.stopping.is_set():
                break
    raise _ProducerEnded(missing)


@contextmanager
def _committed_values(job: Job) -> Iterator[Iterator[str]]:
    """Yield all committed values of the topic from the beginning on, and an empty value before each poll."""
    consumer = consumer_for(job, **{"isolation.level": "read_committed", "group.id": f"{job.name}.reader"})
    consumer.assign([TopicPartition(job.topic, each.partition, OFFSET_BEGINNING) for each in job.topic_partitions])

    def values() -> Iterator[str]:
        while True:
            yield ""
            for message in consumer.consume(_BATCH, _POLL_S):
                if message.error() is None:
                    yield _value(message)

    try:
        yield values()
    finally:
        consumer.close()


def read_committed(job: Job) -> None:
    """Read the committed records of assigned partitions from the beginning on."""
    consumer = consumer_for(job, **{"isolation.level": "read_committed"})
    consumer.assign([TopicPartition(job.topic, each.partition, OFFSET_BEGINNING) for each in job.topic_partitions])
    while not job.stopping.is_set():
        begin = time.monotonic()
        messages = [message for message in consumer.consume(_BATCH, _POLL_S) if message.error() is None]
        for partition in sorted({partition_of(message) for message in messages}):
            of_partition = [message for message in messages if partition_of(message) == partition]
            job.recorder.write(
                Operation(
                    job.name, Kind.READ_COMMITTED, begin, time.monotonic(), Outcome.OK, job.topic, partition,
                    offset_of(of_partition[0]), tuple(map(_value, of_partition)),
                )
            )  # fmt: skip
    consumer.close()


def copy(job: Job) -> None:
    """Run a member of the group, which copies each record to the target partition of the same number."""
    while not job.stopping.wait(_PAUSE_S):
        consumer: Consumer | None = None
        try:
            transactions = _Transactions(job, job.name, target_of(job.topic))
            consumer = consumer_for(
                job,
                **{
                    "isolation.level": "read_committed",
                    "session.timeout.ms": 6000,
                    "heartbeat.interval.ms": 500,
                    "auto.offset.reset": "earliest",
                },
            )
            _copy(job, consumer, transactions, f"{job.name}.{time.monotonic_ns()}")
        except (_ProducerEnded, KafkaException):
            pass
        finally:
            if consumer is not None:
                consumer.close()


def _copy(job: Job, consumer: Consumer, transactions: _Transactions, name: str) -> None:
    """Copy records in transactions until the job ends or this producer raises _Over."""
    records: list[Message] = []
    attempts, rng = count(), random.Random(name)

    def changed(_: Consumer, __: list[TopicPartition]) -> None:
        # The records are of an earlier generation: the new owner of the partition reads them again.
        records.clear()

    consumer.subscribe([job.topic], on_assign=changed, on_revoke=changed, on_lost=changed)
    while not job.stopping.is_set():
        end = time.monotonic() + 2 * _POLL_S
        while len(records) < _BATCH and time.monotonic() < end:
            message = consumer.poll(_POLL_S)
            if message is not None and message.error() is None:
                records.append(message)
        if not records:
            continue
        positions: dict[int, int] = {}
        for message in records:
            positions[partition_of(message)] = offset_of(message) + 1
        offsets = [TopicPartition(job.topic, *each) for each in positions.items()]
        attempt = f"{name}.{next(attempts)}"
        rows = [(partition_of(message), copy_of(_value(message), attempt)) for message in records]
        finish = partial(_send_offsets, job, offsets, consumer.consumer_group_metadata())
        abort = rng.random() < _ABORT_PROBABILITY
        committed = transactions.write(rows, abort=abort, group=job.group, finish=finish)
        if not committed:
            firsts: dict[int, int] = {}
            for message in records:
                firsts.setdefault(partition_of(message), offset_of(message))
            for first in firsts.items():
                consumer.seek(TopicPartition(job.topic, *first))
        records.clear()


def _send_offsets(job: Job, offsets: list[TopicPartition], metadata: object, producer: Producer) -> None:
    with _restart_if_hung(job):
        producer.send_offsets_to_transaction(offsets, metadata, _TIMEOUT_S)


@contextmanager
def _restart_if_hung(job: Job) -> Iterator[None]:
    """Restart the process if the block hangs. librdkafka 2.16 waits without end, and without a way to interrupt it, for
    a group's coordinator that has gone away (its issues 5456 and 5511)."""

    def restart() -> None:
        print(f"{time.monotonic():.3f} restarts because librdkafka hangs", flush=True)
        if job.stopping.is_set():
            os._exit(0)
        os.execv(sys.executable, sys.orig_argv)

    timer = threading.Timer(_HANG_S, restart)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _value(message: Message) -> str:
    return bytes(message.value() or b"").decode()
