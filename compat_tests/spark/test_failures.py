"""Queries under failures: a killed broker, records removed by retention, a deleted topic."""

import time
from collections.abc import Callable, Mapping

import pytest
from pyspark.errors import StreamingQueryException

from compat_tests.brokers import Broker
from compat_tests.conftest import create_topic
from compat_tests.spark.job import Job, Sent, numbered, rows
from compat_tests.spark.queries import input_rows, values, wait_for_rows
from compat_tests.spark.sender import Sender, until

MakeTopic = Callable[..., str]
MakeBroker = Callable[[Mapping[str, str]], Broker]
JobOn = Callable[[str], Job]

_OLD_MS = int(time.time() * 1000) - 20 * 24 * 3_600_000
_DAYS_7 = str(7 * 24 * 3_600_000)


# A query that stops waits for its admin client's timeout with a dead broker: a minute by default, which is also the
# time that Spark waits for the query.
_SHORT_TIMEOUTS = {"kafka.request.timeout.ms": 5_000, "kafka.default.api.timeout.ms": 10_000}


@pytest.mark.long
def test_a_query_resumes_from_its_checkpoint_after_kill_9(own_broker: Broker, job_on: JobOn) -> None:
    job = job_on(own_broker.bootstrap_servers)
    topic = create_topic(job.servers, "survivor", partitions=3)
    job.send(topic, numbered(0, 3000, partitions=3))
    first = job.into_parquet(subscribe=topic, maxOffsetsPerTrigger=300, **_SHORT_TIMEOUTS)
    until(lambda: input_rows(first) != [])

    own_broker.kill()
    first.stop()
    own_broker.start()
    job.send(topic, numbered(3000, 3500, partitions=3))
    second = job.into_parquet(subscribe=topic)
    wait_for_rows(second, job, 3500)
    second.stop()

    assert sum(input_rows(first)) < 3000, "the broker was killed too late"
    assert values(job) == [f"v{number}" for number in range(3500)]


@pytest.mark.long
def test_a_running_query_and_producer_survive_kill_9(own_broker: Broker, job_on: JobOn) -> None:
    job = job_on(own_broker.bootstrap_servers)
    topic = create_topic(job.servers, "patient", partitions=3)
    query = job.into_parquet(subscribe=topic)
    sender = Sender(job, topic, 0)

    sender.start()
    until(lambda: len(input_rows(query)) > 1)
    own_broker.kill()
    own_broker.start()
    at_restart = sender.sent
    until(lambda: sender.sent > at_restart + 500)
    sender.stop_requested.set()
    sender.join()
    if not query.isActive:  # Spark ends the query if the outage comes at certain moments; the test starts it again.
        query = job.into_parquet(subscribe=topic)
    wait_for_rows(query, job, sender.sent)
    query.stop()

    assert values(job) == [f"v{number}" for number in range(sender.sent)]


@pytest.fixture
def aged(job: Job, make_topic: MakeTopic) -> str:
    """A topic whose first 1000 records were deleted by retention after the query had read 400 of them."""
    topic = make_topic(config={"retention.ms": "-1", "message.timestamp.before.max.ms": str(2**63 - 1)})
    job.send(topic, [Sent(f"v{number}", timestamp_ms=_OLD_MS) for number in range(400)])
    job.available_into_parquet(subscribe=topic)
    job.send(topic, [Sent(f"v{number}", timestamp_ms=_OLD_MS) for number in range(400, 1000)])
    job.set_topic_config(topic, "retention.ms", _DAYS_7)
    deadline = time.monotonic() + 90
    while job.offsets(topic) != (1000, 1000):
        assert time.monotonic() < deadline, f"retention has not deleted the records: {job.offsets(topic)}"
        time.sleep(0.1)
    job.send(topic, numbered(1000, 1050))
    return topic


def test_records_lost_to_retention_fail_a_strict_query(job: Job, aged: str) -> None:
    with pytest.raises(StreamingQueryException, match=r"in offset \[400, 1050\)|Cannot fetch offset 400"):
        job.available_into_parquet(subscribe=aged, failOnDataLoss="true")

    assert values(job) == [f"v{number}" for number in range(400)]


def test_a_tolerant_query_skips_records_lost_to_retention(job: Job, aged: str) -> None:
    job.available_into_parquet(subscribe=aged, failOnDataLoss="false")

    assert values(job) == [f"v{number}" for number in [*range(400), *range(1000, 1050)]]


@pytest.fixture
def half_deleted(job: Job, make_topic: MakeTopic) -> tuple[str, str, str]:
    """A pattern over two topics that a query has read; then the second was deleted and the first got more records."""
    kept, deleted = make_topic(), make_topic()
    pattern = f"{kept}|{deleted}"
    for topic in (kept, deleted):
        job.send(topic, numbered(0, 10))
    job.available_into_parquet(subscribePattern=pattern)
    job.delete_topic(deleted)
    job.send(kept, numbered(10, 15))
    return pattern, kept, deleted


def test_a_deleted_topic_fails_a_strict_query(job: Job, half_deleted: tuple[str, str, str]) -> None:
    pattern, _, deleted = half_deleted

    with pytest.raises(StreamingQueryException, match=rf"Set\({deleted}-0\) (have been deleted|are gone)"):
        job.available_into_parquet(subscribePattern=pattern, failOnDataLoss="true")


def test_a_tolerant_query_skips_a_deleted_topic(job: Job, half_deleted: tuple[str, str, str]) -> None:
    pattern, kept, deleted = half_deleted

    job.available_into_parquet(subscribePattern=pattern, failOnDataLoss="false")

    expected = [(kept, offset, f"v{offset}") for offset in range(15)]
    expected += [(deleted, offset, f"v{offset}") for offset in range(10)]
    assert rows(job.written(), "topic", "offset", "value") == sorted(expected)


def test_a_topic_recreated_under_its_name_fails_a_strict_query(job: Job, servers: str, topic: str) -> None:
    job.send(topic, numbered(0, 10))
    job.available_into_parquet(subscribe=topic)
    job.delete_topic(topic)
    create_topic(servers, topic)
    job.send(topic, numbered(10, 14))

    with pytest.raises(StreamingQueryException, match=rf"{topic}-0('s)? offset was changed from 10 to 4"):
        job.available_into_parquet(subscribe=topic, failOnDataLoss="true")
