"""Clients that work without a break while the brokers of a cluster change, and the checks of their results.

Two idempotent producers, a group with one consumer, and a client that queries latest and committed offsets. Each thread
records violations; `finish` checks that all records are stored. When the whole cluster is killed, `cut` ends the
clients; new clients continue with the next cluster.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from types import TracebackType
from typing import Self, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from compat_tests.zookeeper.cluster import WAIT_S

_PRODUCERS = 2
_PAUSE_S = 0.02
_BURST = 10
"""Records of a producer for each partition; the next burst waits until all are acknowledged. With five requests in
flight and more to send, librdkafka's idempotent producer polls without a pause, on a thread for each broker, and takes
the processors that the brokers on the same machine need to respond."""
_COMMIT_S = 0.5
_WATCH_S = 0.25
_PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)


class Load:
    """A context manager: the clients work inside it. After a cut, new clients continue with the same topic."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        self._settings = {
            "bootstrap.servers": bootstrap_servers,
            "reconnect.backoff.max.ms": 1000,
            # The bootstrap servers may be gone for good: a running client continues with the brokers that it knows.
            "metadata.recovery.strategy": "none",
            "log_level": 0,
        }
        self._topic = topic
        self._partitions = [TopicPartition(topic, index) for index in range(partitions)]
        self._ending = threading.Event()
        self._cut = threading.Event()
        self._wrong: list[str] = []
        self._sent: dict[tuple[int, int], int] = defaultdict(int)
        """The number of values sent, by partition and producer; the values are numbers from 0 on."""
        self._acknowledged: dict[tuple[int, int], int] = defaultdict(int)
        """The number of values acknowledged, by partition and producer."""
        self._producers = range(0)
        self._cut_off: set[int] = set()
        """Producers that do not know the outcome of their last records."""
        self._read_to = [0] * partitions
        """The offsets up to which the group's consumer has read without a gap."""
        self._latest = [0] * partitions
        self._committed = [0] * partitions
        """The largest committed offsets that any client has received."""
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._ending.clear()
        self._cut.clear()
        self._producers = range(self._producers.stop, self._producers.stop + _PRODUCERS)
        self._threads = [threading.Thread(target=self._produce, args=(number,)) for number in self._producers]
        # Daemon threads, because librdkafka may wait without end for the response of a broker that is gone.
        self._threads += [threading.Thread(target=work, daemon=True) for work in (self._consume, self._watch_offsets)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(2 * WAIT_S)
        self._wrong += [f"{thread.name} does not end" for thread in self._threads if thread.is_alive()]

    @property
    def acknowledged(self) -> int:
        """The number of acknowledged values."""
        return sum(list(self._acknowledged.values()))

    def until_more(self, count: int = 500) -> None:
        """Wait until `count` more values are acknowledged."""
        target = self.acknowledged + count
        _until(lambda: self.acknowledged >= target)
        assert not self._wrong, self._wrong[:5]

    def cut(self) -> None:
        """End the producers after all brokers were killed, and drop unacknowledged records. Leave the context only when
        there are new brokers: librdkafka may wait without limit for a coordinator to commit to."""
        self._cut_off.update(self._producers)
        self._cut.set()
        self._ending.set()
        for thread in self._threads[:_PRODUCERS]:
            thread.join()

    def finish(self, bootstrap_servers: str) -> None:
        """Assert that every acknowledged value is stored once and in order, and that the group has read all of them.
        Values without an acknowledgement before a cut may be stored."""
        assert not self._wrong, self._wrong[:5]
        found: dict[tuple[int, int], list[int]] = defaultdict(list)
        consumer = self._consumer("no-group", **{"bootstrap.servers": bootstrap_servers})
        ends = [consumer.get_watermark_offsets(each, WAIT_S)[1] for each in self._partitions]
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
        expected = {
            key: (sent if key[1] not in self._cut_off else self._acknowledged[key], sent)
            for key, sent in self._sent.items()
        }
        assert self.acknowledged == sum(least for least, _ in expected.values())
        assert found.keys() <= expected.keys()
        stored = {key: len(found[key]) for key in expected}
        assert {key: stored[key] for key, (least, most) in expected.items() if not least <= stored[key] <= most} == {}

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

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self._acknowledged[cast(int, message.partition()), number] += 1
            elif not (self._cut.is_set() and error.code() in _PURGED):
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
        if self._cut.is_set():
            producer.purge()
        if producer.flush(WAIT_S):
            self._wrong.append(f"producer {number} has unsent values")

    def _consume(self) -> None:
        """Consume as the group, from the committed offsets on after every assignment."""
        consumer = self._consumer("readers", **{"auto.offset.reset": "earliest", "session.timeout.ms": 10_000})
        positions: dict[int, int] = {}

        def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
            positions.clear()

        consumer.subscribe([self._topic], on_assign=assigned)
        committed_at = time.monotonic()
        deadline: float | None = None
        while not self._cut.is_set() and (
            deadline is None or (time.monotonic() < deadline and not self._all_read(consumer))
        ):
            if (
                deadline is None
                and self._ending.is_set()
                and not any(map(threading.Thread.is_alive, self._threads[:_PRODUCERS]))
            ):
                deadline = time.monotonic() + WAIT_S
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                self._check_offset(positions, cast(int, message.partition()), cast(int, message.offset()))
            if time.monotonic() - committed_at > _COMMIT_S and positions:
                committed_at = time.monotonic()
                try:
                    consumer.commit(
                        offsets=[TopicPartition(self._topic, *each) for each in positions.items()], asynchronous=False
                    )
                except KafkaException:
                    continue  # the coordinator is moving: a later commit covers these offsets
                for index, offset in positions.items():
                    self._committed[index] = max(self._committed[index], offset)
        consumer.close()

    def _check_offset(self, positions: dict[int, int], partition: int, offset: int) -> None:
        expected = positions.get(partition)
        if expected is not None and offset != expected:
            self._wrong.append(f"partition {partition}: the consumer read offset {offset}, expected {expected}")
        if offset > self._read_to[partition]:
            self._wrong.append(
                f"partition {partition}: the consumer skipped offsets {self._read_to[partition]} to {offset}"
            )
        positions[partition] = offset + 1
        self._read_to[partition] = max(self._read_to[partition], offset + 1)

    def _all_read(self, consumer: Consumer) -> bool:
        return sum(self._read_to) >= self.acknowledged and self._read_to == [
            consumer.get_watermark_offsets(each, WAIT_S)[1] for each in self._partitions
        ]

    def _watch_offsets(self) -> None:
        """Record a violation if a latest or committed offset goes back."""
        consumer = self._consumer("readers")
        while not self._ending.wait(_WATCH_S):
            latest, committed = self._latest, self._committed.copy()
            try:
                ends = [consumer.get_watermark_offsets(each, 5.0)[1] for each in self._partitions]
                kept = [max(each.offset, 0) for each in consumer.committed(self._partitions, 5.0)]
            except KafkaException:
                continue  # there is no leader or no coordinator at this moment
            for name, before, now in (("latest", latest, ends), ("committed", committed, kept)):
                self._wrong += [
                    f"the {name} offset of partition {index} went from {old} to {new}"
                    for index, (old, new) in enumerate(zip(before, now, strict=True))
                    if new < old
                ]
            self._latest = ends
            self._committed = [*map(max, self._committed, kept)]
        consumer.close()

    def _consumer(self, group: str, **settings: object) -> Consumer:
        return Consumer({**self._settings, "group.id": group, "enable.auto.commit": False, **settings})


def _until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"condition is not true after {WAIT_S:g} s"
        time.sleep(0.05)
