"""One member of a consumer group in its own process, until SIGTERM (it leaves the group) or SIGKILL.

    python group_member.py confluent|kafka-python|aiokafka SERVERS GROUP TOPIC

Prints the JSON lines that Kafka's VerifiableConsumer prints: partitions_assigned, partitions_revoked, records_consumed,
shutdown_complete. It commits records after it has printed them, so that no unreported record is committed.
"""

import asyncio
import json
import signal
import sys
from collections.abc import Iterable
from typing import Any

_SESSION_MS = 6_000
_stopping = False


def _report(name: str, **fields: object) -> None:
    print(json.dumps({"name": name, **fields}), flush=True)


def _partitions(partitions: Iterable[Any]) -> list[dict[str, object]]:
    return [{"topic": each.topic, "partition": each.partition} for each in partitions]


def _report_records(positions: Iterable[tuple[int, int]]) -> None:
    """Report positions, given in the order of delivery, as ranges like VerifiableConsumer."""
    ranges: list[dict[str, int]] = []
    for partition, offset in positions:
        if ranges and ranges[-1]["partition"] == partition and ranges[-1]["maxOffset"] == offset - 1:
            ranges[-1]["maxOffset"] = offset
        else:
            ranges.append({"partition": partition, "minOffset": offset, "maxOffset": offset})
    _report("records_consumed", partitions=ranges)


def _confluent(servers: str, group: str, topic: str) -> None:
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "range",
            "session.timeout.ms": _SESSION_MS,
            "heartbeat.interval.ms": 500,
        }
    )
    consumer.subscribe(
        [topic],
        on_assign=lambda _, partitions: _report("partitions_assigned", partitions=_partitions(partitions)),
        on_revoke=lambda _, partitions: _report("partitions_revoked", partitions=_partitions(partitions)),
    )
    while not _stopping:
        messages = [each for each in consumer.consume(500, timeout=0.1) if each.error() is None]
        if messages:
            _report_records((each.partition(), each.offset()) for each in messages)  # type: ignore[misc]  # never None
            _ignoring_rebalances(lambda: consumer.commit(asynchronous=False))
    consumer.close()


def _kafka_python(servers: str, group: str, topic: str) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.coordinator.assignors.range import RangePartitionAssignor

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            _report("partitions_revoked", partitions=_partitions(revoked))

        def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            _report("partitions_assigned", partitions=_partitions(assigned))

    consumer = KafkaConsumer(
        bootstrap_servers=servers,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        partition_assignment_strategy=[RangePartitionAssignor],
        session_timeout_ms=_SESSION_MS,
        heartbeat_interval_ms=500,
    )
    consumer.subscribe([topic], listener=Listener())
    while not _stopping:
        # kafka-python 3.0.12 can stay in a rebalance without end if polls are short, with Apache Kafka 4.3 too: in 5 of
        # 40 runs with polls of 100 ms, in none of 40 with polls of a second.
        batches = consumer.poll(timeout_ms=1000)
        if batches:
            _report_records((each.partition, each.offset) for batch in batches.values() for each in batch)
            _ignoring_rebalances(consumer.commit)
    consumer.close()


async def _aiokafka(servers: str, group: str, topic: str) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            _report("partitions_revoked", partitions=_partitions(revoked))

        async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            _report("partitions_assigned", partitions=_partitions(assigned))

    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        partition_assignment_strategy=(RangePartitionAssignor,),
        session_timeout_ms=_SESSION_MS,
        heartbeat_interval_ms=500,
    )
    consumer.subscribe([topic], listener=Listener())
    async with consumer:
        while not _stopping:
            batches = await consumer.getmany(timeout_ms=100)
            if batches:
                _report_records((each.partition, each.offset) for batch in batches.values() for each in batch)
                try:
                    await consumer.commit()
                except KafkaError as error:
                    _report("commit_failed", error=repr(error))


def _ignoring_rebalances(commit: Any) -> None:
    """Commit, and ignore a failure because of a rebalance: the next owner reads the records again."""
    try:
        commit()
    except Exception as error:  # each library has its own type for it
        _report("commit_failed", error=repr(error))


def _stop(*_: object) -> None:
    global _stopping
    _stopping = True


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _stop)
    library, *where = sys.argv[1:]
    if library == "aiokafka":
        asyncio.run(_aiokafka(*where))
    else:
        {"confluent": _confluent, "kafka-python": _kafka_python}[library](*where)
    _report("shutdown_complete")
