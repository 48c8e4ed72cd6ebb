"""Queries with `isolation.level=read_committed`: they read committed records exactly once and no aborted ones, and they
end although the last offsets are those of markers or of an open transaction."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import pytest

from compat_tests.clients.confluent import Confluent
from compat_tests.clients.transactional import TRANSACTIONAL, Transactions
from compat_tests.spark.job import POSITION_AND_VALUE, Job, numbered, rows
from compat_tests.spark.queries import input_rows, values, wait_for_rows

MakeTopic = Callable[..., str]

COMMITTED = {"kafka.isolation.level": "read_committed"}
PARTITIONS = 2


@pytest.fixture
def producer(servers: str, topic_of_transactions: str) -> Iterator[Transactions]:
    """The producer of the test's transactions."""
    with TRANSACTIONAL[0].open(servers, topic_of_transactions) as opened:
        yield opened


@pytest.fixture
def topic_of_transactions(make_topic: MakeTopic) -> str:
    return make_topic(partitions=PARTITIONS)


def write(producer: Transactions, topic: str, first: int, end: int) -> None:
    """Send the records v<first> ... v<end - 1> to the partitions in turn, in the open transaction."""
    for partition in range(PARTITIONS):
        producer.send(
            topic, *(b"v%d" % n for n in range(first, end) if n % PARTITIONS == partition), partition=partition
        )


def transaction(producer: Transactions, topic: str, first: int, end: int, *, commit: bool = True) -> None:
    """Send the records in a new transaction, and commit or abort it."""
    producer.begin()
    write(producer, topic, first, end)
    producer.commit() if commit else producer.abort()


def values_of(*ranges: Iterable[int]) -> list[str]:
    """Return the values of these numbers."""
    return [f"v{number}" for number in chain(*ranges)]


@pytest.fixture
def mixed(producer: Transactions, topic_of_transactions: str) -> str:
    """v0 ... v19 committed, v20 ... v39 aborted, v40 ... v49 committed, v50 ... v59 aborted, v60 ... v69 open.

    In each partition: offsets 0-9, a marker, 11-20, a marker, 22-26, a marker, 28-32, a marker, and 34-38.
    """
    topic = topic_of_transactions
    for first, end, commit in ((0, 20, True), (20, 40, False), (40, 50, True), (50, 60, False)):
        transaction(producer, topic, first, end, commit=commit)
    producer.begin()
    write(producer, topic, 60, 70)
    return topic


MIXED_COMMITTED = values_of(range(20), range(40, 50))


def in_order(found: Iterable[str]) -> list[str]:
    return sorted(found, key=lambda value: int(value[1:]))


def batch(job: Job, topic: str, **options: object) -> list[str]:
    """Return the values that a batch query reads, duplicates included, in the order of their numbers."""
    frame = job.read(subscribe=topic, **COMMITTED, **options)
    return in_order(value for (value,) in rows(frame, "CAST(value AS STRING)"))


def test_a_batch_query_reads_committed_records_only(job: Job, mixed: str, offset_fetching: str) -> None:
    found = rows(job.read(subscribe=mixed, endingOffsets="latest", **COMMITTED), *POSITION_AND_VALUE)

    positions = [*((offset, 2 * offset) for offset in range(10)), *((22 + n, 40 + 2 * n) for n in range(5))]
    assert found == [
        (index, offset, f"v{number + index}") for index in range(PARTITIONS) for offset, number in positions
    ]


def test_a_batch_without_isolation_sees_every_record(job: Job, mixed: str) -> None:
    found = [value for (value,) in rows(job.read(subscribe=mixed), "CAST(value AS STRING)")]

    assert in_order(found) == values_of(range(70))


def test_ranges_of_markers_and_aborted_records_are_empty(job: Job, mixed: str, offset_fetching: str) -> None:
    def between(start: int, end: int) -> list[str]:
        bounds = [{mixed: dict.fromkeys(map(str, range(PARTITIONS)), offset)} for offset in (start, end)]
        return batch(job, mixed, startingOffsets=bounds[0], endingOffsets=bounds[1])

    assert between(10, 11) == []  # the marker of a commit
    assert between(10, 22) == []  # the marker of a commit, and an aborted transaction with its marker
    assert between(12, 20) == []  # part of an aborted transaction
    assert between(8, 11) == values_of(range(16, 20))
    assert between(20, 24) == values_of(range(40, 44))


def test_a_split_range_may_begin_and_end_at_any_offset(job: Job, mixed: str) -> None:
    frame = job.read(subscribe=mixed, minPartitions=12, **COMMITTED)

    assert frame.rdd.getNumPartitions() == 12
    assert in_order(value for (value,) in rows(frame, "CAST(value AS STRING)")) == MIXED_COMMITTED


def test_a_topic_without_committed_records_is_an_empty_frame(
    job: Job, producer: Transactions, topic_of_transactions: str, offset_fetching: str
) -> None:
    transaction(producer, topic_of_transactions, 0, 10, commit=False)
    assert batch(job, topic_of_transactions) == []

    producer.begin()
    write(producer, topic_of_transactions, 10, 20)
    assert batch(job, topic_of_transactions) == []


def test_an_open_transaction_holds_back_later_records(
    job: Job, mixed: str, producer: Transactions, offset_fetching: str
) -> None:
    job.send(mixed, numbered(70, 80, partitions=PARTITIONS))
    assert batch(job, mixed) == MIXED_COMMITTED

    producer.abort()
    assert batch(job, mixed) == MIXED_COMMITTED + values_of(range(70, 80))


@pytest.mark.long
def test_a_stream_resumes_at_a_transaction_that_was_open(
    job: Job, mixed: str, producer: Transactions, offset_fetching: str
) -> None:
    job.available_into_parquet(subscribe=mixed, **COMMITTED)
    assert values(job) == MIXED_COMMITTED

    idle = job.available_into_parquet(subscribe=mixed, **COMMITTED)
    assert input_rows(idle) == []

    producer.commit()
    transaction(producer, mixed, 70, 80, commit=False)
    job.available_into_parquet(subscribe=mixed, **COMMITTED)
    assert values(job) == MIXED_COMMITTED + values_of(range(60, 70))


@pytest.mark.long
def test_micro_batches_may_end_at_markers_and_in_aborted_transactions(
    job: Job, mixed: str, offset_fetching: str
) -> None:
    query = job.available_into_parquet(subscribe=mixed, maxOffsetsPerTrigger=6, **COMMITTED)

    assert values(job) == MIXED_COMMITTED
    assert max(input_rows(query)) <= 6


def test_a_running_stream_reads_each_transaction_after_its_commit(
    job: Job, mixed: str, producer: Transactions, offset_fetching: str
) -> None:
    query = job.into_parquet(subscribe=mixed, **COMMITTED)
    try:
        wait_for_rows(query, job, len(MIXED_COMMITTED))
        producer.abort()
        for first in range(70, 100, 10):
            transaction(producer, mixed, first, first + 10, commit=first != 80)
        producer.begin()
        write(producer, mixed, 100, 110)
        wait_for_rows(query, job, len(MIXED_COMMITTED) + 20)
        query.processAllAvailable()
    finally:
        query.stop()

    assert values(job) == MIXED_COMMITTED + values_of(range(70, 80), range(90, 100))


def test_a_chain_of_queries_reads_committed_records(
    job: Job, servers: str, mixed: str, producer: Transactions, make_topic: MakeTopic
) -> None:
    target = make_topic()

    def copy() -> None:
        frame = job.stream(subscribe=mixed, **COMMITTED).select("key", "value")
        sink = frame.writeStream.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", target)
        sink.option("checkpointLocation", job.checkpoint).trigger(availableNow=True).start().awaitTermination()

    copy()
    producer.commit()
    copy()

    expected = MIXED_COMMITTED + values_of(range(60, 70))
    assert batch(job, target) == expected
    records = Confluent().consume(servers, target, len(expected))
    assert in_order(str(record.value, "ascii") for record in records if record.value is not None) == expected
