"""Unmodified clients that send requests all the time, and record requests and responses (`history`).

    python -m compat_tests.netns.clients KIND NAME FILE BOOTSTRAP TOPIC PARTITIONS [GROUP]

Each client is a process, so that none waits for another's interpreter. On SIGTERM it completes its pending requests and
ends. Most clients use librdkafka; `probe` uses Odradek's client, because it must find a new leader faster than
librdkafka looks for one.
"""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from kafka import KafkaProducer
from kafka.errors import KafkaTimeoutError

from compat_tests.netns.history import Kind, Operation, Outcome, Recorder
from compat_tests.netns.job import COMMON, HUNG_EXIT_CODE, Job, consumer_for, offset_of, partition_of
from compat_tests.netns.transactional_clients import copy, make_transfers, read_committed
from odradek.client.client import Client
from odradek.client.records import RecordProducer
from odradek.exceptions import ClientError
from odradek_wire.records.record import Record

_POLL_S = 0.1
_TIMEOUT_S = 2.0
_FLUSH_S = 60.0
_FORCED_EXIT_S = 75.0
_BATCH = 500
_PROBE_S = 0.5
_MEMBERS = 10
_PROBE_PAUSE_S = 0.05
_FAILED_PROBE_PAUSE_S = 0.01
_TAIL = 20
# Errors with which the broker refuses a commit; after others the commit may have taken effect.
_REFUSED_COMMIT = {
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError._ASSIGNMENT_LOST,
    KafkaError._NO_OFFSET,
}


class _ProduceOutcomes:
    """Records the outcome of each record of an idempotent producer, at the end also for those without a response."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._begins: dict[str, float] = {}

    def values(self) -> Iterator[tuple[str, int]]:
        """Yield some hundred values a second, with their partitions, until the job ends."""
        for number in count():
            if self._job.stopping.wait(0.005):
                return
            value = f"{self._job.name}:{number}"
            self._begins[value] = time.monotonic()
            yield value, number % self._job.partitions

    def record(self, value: str, offset: int | None, error: object) -> None:
        """Record the outcome of a value. The offset may be unknown (None), even after a success."""
        begin = self._begins.pop(value)
        partition = int(value.rpartition(":")[2]) % self._job.partitions
        self._job.recorder.write(
            Operation(
                self._job.name,
                Kind.PRODUCE,
                begin,
                time.monotonic(),
                Outcome.OK if error is None else Outcome.INFO,
                self._job.topic,
                partition,
                -1 if error is not None or offset is None else offset,
                (value,),
                idempotent=True,
                note="" if error is None else str(error),
            )
        )

    def close(self) -> None:
        """Record the values without a response."""
        for value in list(self._begins):
            self.record(value, None, "no response")


def produce(job: Job) -> None:
    """Produce with librdkafka's idempotent producer; a record that fails is not sent again."""
    producer = Producer(
        {
            **COMMON,
            "bootstrap.servers": job.servers,
            "enable.idempotence": True,
            "linger.ms": 5,
            "request.timeout.ms": 5000,
            "socket.timeout.ms": 6000,
            "message.timeout.ms": 120_000,
        }
    )
    outcomes = _ProduceOutcomes(job)

    def delivered(error: KafkaError | None, message: Message) -> None:
        outcomes.record(bytes(message.value() or b"").decode(), message.offset(), error)

    for value, partition in outcomes.values():
        producer.produce(job.topic, value.encode(), partition=partition, on_delivery=delivered)
        producer.poll(0)
    producer.flush(_FLUSH_S)
    outcomes.close()


def produce_kafka_python(job: Job) -> None:
    """Produce with kafka-python's idempotent producer."""
    producer = KafkaProducer(
        bootstrap_servers=job.servers.split(","),
        enable_idempotence=True,
        linger_ms=5,
        request_timeout_ms=5000,
        delivery_timeout_ms=120_000,
        reconnect_backoff_max_ms=500,
        metadata_max_age_ms=1000,
    )
    outcomes = _ProduceOutcomes(job)
    for value, partition in outcomes.values():
        response = producer.send(job.topic, value.encode(), partition=partition)
        response.add_callback(lambda metadata, value=value: outcomes.record(value, metadata.offset, None))
        response.add_errback(lambda error, value=value: outcomes.record(value, None, error))
    with suppress(KafkaTimeoutError):
        producer.flush(_FLUSH_S)
    outcomes.close()


def probe(job: Job) -> None:
    """Write one record after another to each partition, each to the leader that a new Metadata response names."""
    servers = job.servers.split(",")

    def probe_partition(partition: int) -> None:
        client: Client | None = None
        for number in count():
            value = f"{job.name}-{partition}:{number}"
            begin, leader, outcome, note = time.monotonic(), -1, Outcome.FAIL, ""
            try:
                if client is None:
                    servers.append(servers.pop(0))
                    client = Client(",".join(servers), timeout_s=_PROBE_S)
                leader = client.topic(job.topic).partitions[partition].leader_id
                writer = RecordProducer(client, job.topic)
                writer.write(Record(0, time.time_ns() // 1_000_000, None, value.encode()), partition)
                outcome = Outcome.INFO
                writer.flush()
                outcome = Outcome.OK
            except ClientError as error:
                note = str(error)
                if client is not None:
                    client.close()
                client = None
            job.recorder.write(
                Operation(
                    job.name, Kind.PRODUCE, begin, time.monotonic(), outcome, job.topic, partition,
                    values=(value,), leader=leader, note=note,
                )
            )  # fmt: skip
            if job.stopping.wait(_PROBE_PAUSE_S if client is not None else _FAILED_PROBE_PAUSE_S):
                return

    _run_threads([lambda partition=partition: probe_partition(partition) for partition in range(job.partitions)])  # type: ignore[misc]


def _record_read(job: Job, process: str, begin: float, messages: Iterable[Message], generation: int = -1) -> None:
    """Record one operation for each sequence of records without a gap."""
    now = time.monotonic()
    runs: list[tuple[int, int, list[str]]] = []
    for message in sorted(messages, key=partition_of):
        partition, offset, value = partition_of(message), offset_of(message), message.value()
        assert value is not None
        if not runs or runs[-1][0] != partition or runs[-1][1] + len(runs[-1][2]) != offset:
            runs.append((partition, offset, []))
        runs[-1][2].append(bytes(value).decode())
    for partition, offset, values in runs:
        job.recorder.write(
            Operation(
                process, Kind.READ, begin, now, Outcome.OK, job.topic, partition, offset, tuple(values),
                group=job.group, generation=generation,
            )
        )  # fmt: skip


def read(job: Job) -> None:
    """Read assigned partitions from the beginning on."""
    consumer = consumer_for(job)
    consumer.assign([TopicPartition(job.topic, each.partition, OFFSET_BEGINNING) for each in job.topic_partitions])
    now = time.monotonic()
    for each in job.topic_partitions:
        job.recorder.write(Operation(job.name, Kind.BEGIN, now, now, Outcome.OK, job.topic, each.partition, offset=0))
    while not job.stopping.is_set():
        begin = time.monotonic()
        messages = consumer.consume(_BATCH, _POLL_S)
        for message in messages:
            error = message.error()
            if error is not None and not error.retriable() and error.code() != KafkaError._TRANSPORT:
                job.recorder.write(
                    Operation(
                        job.name, Kind.READ, begin, time.monotonic(), Outcome.FAIL, job.topic,
                        partition_of(message), note=str(error),
                    )
                )  # fmt: skip
        _record_read(job, job.name, begin, [message for message in messages if message.error() is None])
    consumer.close()


def watch(job: Job) -> None:
    """Request the latest offsets, and a group's committed offsets."""
    consumer = consumer_for(job)

    def query(kind: Kind, tp: TopicPartition, read_offset: Callable[[], int]) -> None:
        begin, offset, outcome, note = time.monotonic(), -1, Outcome.OK, ""
        try:
            offset = read_offset()
        except KafkaException as error:
            outcome, note = Outcome.FAIL, str(error)
        job.recorder.write(
            Operation(
                job.name, kind, begin, time.monotonic(), outcome, job.topic, tp.partition, offset,
                group=job.group if kind is Kind.COMMITTED else "", note=note,
            )
        )  # fmt: skip

    while not job.stopping.wait(_POLL_S):
        for tp in job.topic_partitions:
            if job.stopping.is_set():
                break
            query(Kind.LATEST, tp, lambda tp=tp: consumer.get_watermark_offsets(tp, _TIMEOUT_S)[1])  # type: ignore[misc]
            if job.group:
                query(Kind.COMMITTED, tp, lambda tp=tp: _committed(consumer, tp))  # type: ignore[misc]
    consumer.close()


def _committed(consumer: Consumer, tp: TopicPartition) -> int:
    (found,) = consumer.committed([tp], _TIMEOUT_S)
    if found.error is not None:
        raise KafkaException(found.error)
    return max(found.offset, -1)


def read_tails(job: Job) -> None:
    """Start one new consumer after another; each reads the last records of a partition to the end."""
    for number in count():
        if job.stopping.is_set():
            return
        begin, name, partition = time.monotonic(), f"{job.name}.{number}", number % job.partitions
        consumer = consumer_for(job, **{"enable.partition.eof": True, "auto.offset.reset": "earliest"})
        tp = TopicPartition(job.topic, partition)
        outcome, offset, note = Outcome.FAIL, -1, ""
        try:
            low, high = consumer.get_watermark_offsets(tp, _TIMEOUT_S)
            consumer.assign([TopicPartition(job.topic, partition, max(low, high - _TAIL))])
            while time.monotonic() < begin + 3 * _TIMEOUT_S and not job.stopping.is_set():
                messages = consumer.consume(_BATCH, _POLL_S)
                _record_read(job, name, begin, [message for message in messages if message.error() is None])
                ends = [m for m in messages if (e := m.error()) is not None and e.code() == KafkaError._PARTITION_EOF]
                if ends:
                    outcome, offset = Outcome.OK, offset_of(ends[0])
                    break
        except KafkaException as error:
            note = str(error)
        job.recorder.write(
            Operation(
                name, Kind.END, begin, time.monotonic(), outcome, job.topic, partition, offset, note=note
            )
        )  # fmt: skip
        consumer.close()


def join(job: Job) -> None:
    """Run ten members of a group."""
    _run_threads([lambda member=member: _member(job, member) for member in members_of(job.name)])  # type: ignore[misc]


def members_of(process: str) -> list[str]:
    """Return the names of the members that `join` runs."""
    return [f"{process}.{number}" for number in range(_MEMBERS)]


def _member(job: Job, name: str) -> None:
    """Run a member. It records its reads before it commits, so that the history has every read before its commit."""
    time.sleep(random.uniform(0, 0.2))
    generation = -1

    def assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        nonlocal generation
        generation = _generation(consumer)
        now = time.monotonic()
        job.recorder.write(
            Operation(
                name, Kind.OWNS, now, now, Outcome.OK, job.topic, group=job.group, generation=generation,
                partitions=tuple(sorted(each.partition for each in partitions)),
            )
        )  # fmt: skip
        positions.clear()

    def revoked(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        positions.clear()

    positions: dict[int, int] = {}
    consumer = consumer_for(
        job,
        **{
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
            "auto.offset.reset": "earliest",
            "client.id": name,
        },
    )
    consumer.subscribe([job.topic], on_assign=assigned, on_revoke=revoked)
    while not job.stopping.is_set():
        begin = time.monotonic()
        messages = [message for message in consumer.consume(_BATCH, 5 * _POLL_S) if message.error() is None]
        _record_read(job, name, begin, messages, generation)
        for message in messages:
            positions[partition_of(message)] = offset_of(message) + 1
        if positions:
            _commit(job, name, consumer, dict(positions), generation)
            positions.clear()
    consumer.close()


def _commit(job: Job, name: str, consumer: Consumer, positions: dict[int, int], generation: int) -> None:
    begin, note = time.monotonic(), ""
    outcomes = dict.fromkeys(positions, Outcome.INFO)
    try:
        done = consumer.commit(
            offsets=[TopicPartition(job.topic, *each) for each in positions.items()], asynchronous=False
        )
        for each in done or ():
            outcomes[each.partition] = _outcome(each.error)
    except KafkaException as error:
        note = str(error)
        outcomes = dict.fromkeys(positions, _outcome(error.args[0]))
    for partition, offset in positions.items():
        job.recorder.write(
            Operation(
                name, Kind.COMMIT, begin, time.monotonic(), outcomes[partition], job.topic, partition, offset,
                group=job.group, generation=generation, note=note,
            )
        )  # fmt: skip


def _outcome(error: KafkaError | None) -> Outcome:
    if error is None:
        return Outcome.OK
    return Outcome.FAIL if error.code() in _REFUSED_COMMIT else Outcome.INFO


def _generation(consumer: Consumer) -> int:
    """Return the generation, which follows a magic prefix in librdkafka's group metadata."""
    prefix, metadata = b"CGMDv2:", bytes(consumer.consumer_group_metadata())
    assert metadata.startswith(prefix)
    return int.from_bytes(metadata[len(prefix) : len(prefix) + 4], sys.byteorder, signed=True)


def _run_threads(work: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=each) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


KINDS: dict[str, Callable[[Job], None]] = {
    "produce": produce,
    "produce-kafka-python": produce_kafka_python,
    "probe": probe,
    "read": read,
    "watch": watch,
    "read-tails": read_tails,
    "join": join,
    "bank": make_transfers,
    "copy": copy,
    "read-committed": read_committed,
}


def _end(stopping: threading.Event) -> None:
    """End the job on SIGTERM. librdkafka may hang when it destroys a client (its issues 1640 and 3470). The history is
    complete by then, so the process prints its stacks and exits."""
    signal.sigwait([signal.SIGTERM])
    stopping.set()
    time.sleep(_FORCED_EXIT_S)
    faulthandler.dump_traceback(sys.stderr)
    os._exit(HUNG_EXIT_CODE)


def main() -> None:
    kind, name, file, servers, topic, partitions, *group = sys.argv[1:]
    stopping = threading.Event()
    # Blocked in all threads: a thread that hangs in a library would never run a handler.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    threading.Thread(target=_end, args=(stopping,), daemon=True).start()
    job = Job(name, servers, topic, int(partitions), "".join(group), Recorder(Path(file)), stopping)
    KINDS[kind](job)


if __name__ == "__main__":
    main()
