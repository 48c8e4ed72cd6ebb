"""Groups of unmodified clients: members join and leave under load, every record is processed, offsets survive."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from broker.tests.groups.scenario_sockets import Sockets
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer

from odradek_wire.errors import ErrorCode
from odradek_wire.messages.find_coordinator import FindCoordinatorRequest
from odradek_wire.messages.join_group import JoinGroupRequest

PARTITIONS = 6
RECORDS = 1200
PATIENCE_S = 40

Start = Callable[..., Any]


class Ledger:
    """The records that some member has processed, and the condition that all are."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.processed: set[tuple[int, int]] = set()

    def note(self, partition: int, offset: int) -> None:
        with self.changed:
            self.processed.add((partition, offset))
            self.changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.processed) >= count, PATIENCE_S), len(self.processed)


def fill(bootstrap: str, topic: str, records: int = RECORDS) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(10)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number in range(records):
        producer.produce(topic, str(number), partition=number % PARTITIONS)
    assert producer.flush(20) == 0


def confluent_member(bootstrap: str, ledger: Ledger, quota: int, assignor: str, stop: threading.Event) -> None:
    """A member that processes and commits one record after the other, and leaves after `quota` of them."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 100,
            "partition.assignment.strategy": assignor,
        }
    )
    consumer.subscribe(["load"])
    done = 0
    deadline = time.monotonic() + PATIENCE_S
    while done < quota and not stop.is_set():
        assert time.monotonic() < deadline, f"{done} records of {quota} after {PATIENCE_S} s"
        message = consumer.poll(0.05)
        if message is not None and message.error() is None:
            ledger.note(message.partition(), message.offset())
            consumer.commit(message, asynchronous=True)
            done += 1
    consumer.close()


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_librdkafka_members_process_every_record_across_rebalances(start_node: Start, assignor: str) -> None:
    node = start_node()
    fill(node.bootstrap, "load")
    ledger, stop = Ledger(), threading.Event()
    members = []
    for wanted, quota in ((0, 300), (100, 100), (250, RECORDS), (400, 50), (600, RECORDS)):
        ledger.wait_for(wanted)
        args = (node.bootstrap, ledger, quota, assignor, stop)
        members.append(threading.Thread(target=confluent_member, args=args))
        members[-1].start()
    ledger.wait_for(RECORDS)
    stop.set()
    for member in members:
        member.join(PATIENCE_S)
    assert {offset for _, offset in ledger.processed} == set(range(RECORDS // PARTITIONS))


def committed(bootstrap: str, group: str, topic: str, admin: AdminClient | None = None) -> list[int]:
    admin = admin or AdminClient({"bootstrap.servers": bootstrap})
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, index) for index in range(PARTITIONS)])
    found = admin.list_consumer_group_offsets([wanted])[group].result(10)
    return [partition.offset for partition in found.topic_partitions]


def test_committed_offsets_survive_a_restart(start_node: Start) -> None:
    node = start_node()
    fill(node.bootstrap, "load", 60)
    ledger = Ledger()
    confluent_member(node.bootstrap, ledger, 60, "range", threading.Event())
    assert committed(node.bootstrap, "g", "load") == [10] * PARTITIONS
    node.restart()
    assert committed(node.bootstrap, "g", "load") == [10] * PARTITIONS


def test_kafka_python_members_share_the_partitions(start_node: Start) -> None:
    node = start_node()
    fill(node.bootstrap, "load", 120)
    ledger, stop = Ledger(), threading.Event()

    def member() -> None:
        consumer = KafkaConsumer(
            "load",
            bootstrap_servers=node.bootstrap,
            group_id="g",
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
            enable_auto_commit=False,
        )
        deadline = time.monotonic() + PATIENCE_S
        while not stop.is_set() and time.monotonic() < deadline:
            # With short polls kafka-python 3.0.12 now and then misses a rebalance, on Apache Kafka too.
            for records in consumer.poll(1000).values():
                for record in records:
                    ledger.note(record.partition, record.offset)
        consumer.commit()
        consumer.close()

    members = [threading.Thread(target=member) for _ in range(2)]
    for thread in members:
        thread.start()
    ledger.wait_for(120)
    stop.set()
    for thread in members:
        thread.join(PATIENCE_S)
    assert committed(node.bootstrap, "g", "load") == [20] * PARTITIONS


def test_aiokafka_members_share_the_partitions(start_node: Start) -> None:
    node = start_node()
    fill(node.bootstrap, "load", 120)

    async def consume() -> set[tuple[int, int]]:
        seen: set[tuple[int, int]] = set()
        consumers = [
            AIOKafkaConsumer(
                "load",
                bootstrap_servers=node.bootstrap,
                group_id="g",
                auto_offset_reset="earliest",
                heartbeat_interval_ms=100,
                enable_auto_commit=False,
            )
            for _ in range(2)
        ]
        for consumer in consumers:
            await consumer.start()
        while len(seen) < 120:
            for consumer in consumers:
                for records in (await consumer.getmany(timeout_ms=50)).values():
                    seen.update((record.partition, record.offset) for record in records)
        for consumer in consumers:
            await consumer.commit()
            await consumer.stop()
        return seen

    seen = asyncio.run(asyncio.wait_for(consume(), PATIENCE_S))
    assert seen == {(partition, offset) for partition in range(PARTITIONS) for offset in range(20)}
    assert committed(node.bootstrap, "g", "load") == [20] * PARTITIONS


def test_a_node_stops_immediately_while_joins_are_pending(start_node: Start) -> None:
    node = start_node(group_initial_rebalance_delay_ms="60000")
    setup = Sockets(node.node.port)
    setup.ask("setup", FindCoordinatorRequest(key="g"), 3)
    member = Sockets(node.node.port)
    protocol = JoinGroupRequest.JoinGroupRequestProtocol("range", b"")
    join = JoinGroupRequest("g", 10_000, 60_000, "", None, "consumer", [protocol])
    assert member.ask("m", join, 3, due=False) is None
    begun = time.monotonic()
    node.call(node.node.stop())
    assert time.monotonic() - begun < 5  # the grace period for pending responses
    response: Any = member.answer("m")
    assert response.error_code == ErrorCode.NOT_COORDINATOR
    member.close()
    setup.close()


def test_a_reset_fails_pending_joins_and_the_group_starts_empty(start_node: Start) -> None:
    node = start_node()
    fill(node.bootstrap, "load", 60)
    ledger = Ledger()
    confluent_member(node.bootstrap, ledger, 60, "range", threading.Event())
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    assert committed(node.bootstrap, "g", "load", admin) == [10] * PARTITIONS
    node.call(node.node.reset())
    assert committed(node.bootstrap, "g", "load", admin) == [-1001] * PARTITIONS
    fill(node.bootstrap, "load", 60)
    again = Ledger()
    confluent_member(node.bootstrap, again, 60, "range", threading.Event())
    assert committed(node.bootstrap, "g", "load") == [10] * PARTITIONS


def test_offsets_expire_after_their_retention_on_the_brokers_clocks(start_node: Start) -> None:
    node = start_node(offsets_retention_minutes="10")
    fill(node.bootstrap, "load", 60)
    confluent_member(node.bootstrap, Ledger(), 60, "range", threading.Event())
    clock = node.node.broker.clock

    async def pass_time(minutes: int) -> None:
        clock.advance_wall(minutes * 60_000)
        clock.advance_timeouts(minutes * 60_000)

    node.call(pass_time(9))
    assert committed(node.bootstrap, "g", "load") == [10] * PARTITIONS
    node.call(pass_time(11))
    assert committed(node.bootstrap, "g", "load") == [-1001] * PARTITIONS
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    assert admin.list_consumer_groups().result(10).valid == []


def test_deleting_a_topic_deletes_its_offsets(start_node: Start) -> None:
    node = start_node()
    fill(node.bootstrap, "load", 60)
    confluent_member(node.bootstrap, Ledger(), 60, "range", threading.Event())
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.delete_topics(["load"])["load"].result(10)
    fill(node.bootstrap, "load", 6)
    assert committed(node.bootstrap, "g", "load") == [-1001] * PARTITIONS
    assert [group.group_id for group in admin.list_consumer_groups().result(10).valid] == ["g"]
