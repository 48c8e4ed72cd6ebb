"""Clients that work all the time while a cluster changes under them, and what they can say of it afterwards.

Two idempotent producers, a group with one reader, and somebody who looks at latest and committed offsets. Each thread
writes down what cannot be; `finish` asks whether all of it is there.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from types import TracebackType
from typing import Self, cast

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from compat_tests.zookeeper.members import WAIT_S

_PRODUCERS = 2
_PAUSE_S = 0.02
_BURST = 10
"""Records of a producer for each partition; the next are made when all are acknowledged. With five requests on their
way and more to send, librdkafka's idempotent producer asks its clock without a pause, on a thread for each broker:
brokers on the same machine hardly answer then, and it goes on."""
_COMMIT_S = 0.5
_LOOK_S = 0.25


class Load:
    """As a context manager it is at work inside."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        self._settings = {
            "bootstrap.servers": bootstrap_servers,
            "reconnect.backoff.max.ms": 1000,
            # The bootstrap servers may be gone for good: who has begun goes on with those it knows.
            "metadata.recovery.strategy": "none",
            "log_level": 0,
        }
        self._topic = topic
        self._partitions = [TopicPartition(topic, index) for index in range(partitions)]
        self._ending = threading.Event()
        self._wrong: list[str] = []
        self._sent: dict[tuple[int, int], int] = defaultdict(int)
        """By partition and producer: how many values, which are numbers from 0 on."""
        self._acknowledged = [0] * _PRODUCERS
        self._read_to = [0] * partitions
        """What the group's reader has seen without a gap."""
        self._threads = [threading.Thread(target=self._produce, args=(number,)) for number in range(_PRODUCERS)]
        self._threads += [threading.Thread(target=self._consume), threading.Thread(target=self._look)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()

    @property
    def acknowledged(self) -> int:
        """How many values."""
        return sum(self._acknowledged)

    def until_more(self, count: int = 500) -> None:
        """So many more are acknowledged: it goes on."""
        wanted = self.acknowledged + count
        _until(lambda: self.acknowledged >= wanted)
        assert self._wrong == []

    def finish(self, bootstrap_servers: str) -> None:
        """After the end: every value is there once and in order, and the group has read them all."""
        assert self._wrong == []
        found: dict[tuple[int, int], list[int]] = defaultdict(list)
        consumer = self._consumer("nobody", **{"bootstrap.servers": bootstrap_servers})
        ends = [consumer.get_watermark_offsets(each, WAIT_S)[1] for each in self._partitions]
        assert sum(ends) == sum(self._sent.values()) == self.acknowledged
        assert self._read_to == ends
        consumer.assign([TopicPartition(self._topic, each.partition, 0) for each in self._partitions])
        for _ in range(sum(ends)):
            message = consumer.poll(WAIT_S)
            assert message is not None
            assert message.error() is None
            producer, number = map(int, (message.value() or b"").split())
            found[cast(int, message.partition()), producer].append(number)
        consumer.close()
        assert {key for key, numbers in found.items() if numbers != list(range(len(numbers)))} == set()
        assert {key: len(numbers) for key, numbers in found.items()} == dict(self._sent)

    # -- the threads --------------------------------------------------------------------------------------------------

    def _produce(self, number: int) -> None:
        producer = Producer(
            {
                **self._settings,
                "enable.idempotence": True,
                "message.timeout.ms": int(2 * WAIT_S * 1000),
                "linger.ms": 5,
                "client.id": f"producer-{number}",
            }
        )

        def delivered(error: object, message: Message) -> None:
            if error is None:
                self._acknowledged[number] += 1
            else:
                self._wrong.append(f"producer {number}: {error}")

        while not self._ending.is_set():
            if not len(producer):
                for partition in range(len(self._partitions)):
                    for _ in range(_BURST):
                        value = b"%d %d" % (number, self._sent[partition, number])
                        producer.produce(self._topic, value, partition=partition, on_delivery=delivered)
                        self._sent[partition, number] += 1
            producer.poll(_PAUSE_S)
            self._ending.wait(_PAUSE_S)
        if producer.flush(WAIT_S):
            self._wrong.append(f"producer {number} could not send all it had")

    def _consume(self) -> None:
        """Committed offsets are read back at every assignment: the reader goes on there, and nowhere else."""
        consumer = self._consumer("readers", **{"auto.offset.reset": "earliest", "session.timeout.ms": 10_000})
        positions: dict[int, int] = {}

        def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
            positions.clear()

        consumer.subscribe([self._topic], on_assign=assigned)
        committed_at = time.monotonic()
        deadline: float | None = None
        while deadline is None or (time.monotonic() < deadline and not self._all_read()):
            if (
                deadline is None
                and self._ending.is_set()
                and not any(map(threading.Thread.is_alive, self._threads[:2]))
            ):
                deadline = time.monotonic() + WAIT_S
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                self._saw(positions, cast(int, message.partition()), cast(int, message.offset()))
            if time.monotonic() - committed_at > _COMMIT_S and positions:
                committed_at = time.monotonic()
                try:
                    consumer.commit(
                        offsets=[TopicPartition(self._topic, *each) for each in positions.items()], asynchronous=False
                    )
                except KafkaException:
                    continue  # its coordinator is on its way: the next commit has more
        consumer.close()

    def _saw(self, positions: dict[int, int], partition: int, offset: int) -> None:
        expected = positions.get(partition)
        if expected is not None and offset != expected:
            self._wrong.append(f"partition {partition}: the reader got {offset} where {expected} comes next")
        if offset > self._read_to[partition]:
            self._wrong.append(f"partition {partition}: the reader never got {self._read_to[partition]} to {offset}")
        positions[partition] = offset + 1
        self._read_to[partition] = max(self._read_to[partition], offset + 1)

    def _all_read(self) -> bool:
        return sum(self._read_to) >= self.acknowledged

    def _look(self) -> None:
        """Latest and committed offsets never go back."""
        consumer = self._consumer("readers")
        latest = [0] * len(self._partitions)
        committed = [0] * len(self._partitions)
        while not self._ending.wait(_LOOK_S):
            try:
                ends = [consumer.get_watermark_offsets(each, 5.0)[1] for each in self._partitions]
                kept = [max(each.offset, 0) for each in consumer.committed(self._partitions, 5.0)]
            except KafkaException:
                continue  # no leader, or no coordinator, just now
            for name, before, now in (("latest", latest, ends), ("committed", committed, kept)):
                self._wrong += [
                    f"the {name} offset of partition {index} went from {old} to {new}"
                    for index, (old, new) in enumerate(zip(before, now, strict=True))
                    if new < old
                ]
            latest, committed = ends, kept
        consumer.close()

    def _consumer(self, group: str, **settings: object) -> Consumer:
        return Consumer({**self._settings, "group.id": group, "enable.auto.commit": False, **settings})


def _until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"did not come true in {WAIT_S:g} s"
        time.sleep(0.05)
