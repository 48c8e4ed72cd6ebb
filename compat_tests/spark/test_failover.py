"""A query over three brokers, killed one after the other: Spark reports an offset that goes back as lost data."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql.streaming.query import StreamingQuery

from compat_tests.cluster.clusters import BrokerCluster, running
from compat_tests.spark.job import Job
from compat_tests.spark.queries import values, wait_for_rows
from compat_tests.spark.sender import Sender, until

_SECONDS = 30.0
_ROUNDS = 4
# Not broker 0, which in Kafka's cluster is the only controller.
_VICTIMS = (1, 2)


@pytest.fixture
def three(broker_name: str) -> Iterator[BrokerCluster]:
    """Brokers 0, 1 and 2, of the kind under test."""
    with running("odradek" if broker_name == "odradek" else "kafka") as cluster:
        yield cluster


def in_sync(admin: AdminClient, topic: str, count: int) -> bool:
    """Return whether each partition has `count` replicas in sync."""
    with suppress(KeyError):
        partitions = admin.list_topics(topic, timeout=_SECONDS).topics[topic].partitions
        return len(partitions) == 3 and all(len(each.isrs) == count for each in partitions.values())
    return False


def batches(query: StreamingQuery) -> int:
    """Return the id of the last micro-batch, 0 before the first one."""
    report: Any = query.lastProgress
    return 0 if report is None else int(report["batchId"])


@pytest.mark.long
def test_a_strict_query_reads_every_record_once_while_brokers_are_killed(
    three: BrokerCluster, job_on: Callable[[str], Job]
) -> None:
    job = job_on(three.bootstrap_servers)
    admin = AdminClient({"bootstrap.servers": job.servers})
    new = NewTopic("kept", num_partitions=3, replication_factor=3, config={"min.insync.replicas": "2"})
    admin.create_topics([new])["kept"].result(_SECONDS)
    query = job.into_parquet(subscribe="kept")
    sender = Sender(job, "kept", 0)
    sender.start()

    def survive(victim: int) -> None:
        until(lambda: in_sync(admin, "kept", 3))
        before, batch = sender.sent, batches(query)
        three.kill(victim)
        until(lambda: sender.sent > before + 500)
        until(lambda: batches(query) > batch or not query.isActive)
        three.start(victim)

    try:
        for turn in range(_ROUNDS):
            survive(_VICTIMS[turn % len(_VICTIMS)])
    finally:
        sender.stop_requested.set()
        sender.join()
    assert query.isActive, query.exception()
    wait_for_rows(query, job, sender.sent)
    query.stop()
    assert values(job) == [f"v{number}" for number in range(sender.sent)]
