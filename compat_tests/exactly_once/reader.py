"""A reader of a topic from its first record on, and waits that fail if a running program ends."""

import time
from collections.abc import Callable

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition
from odradek_peers import RunningTool

_TIMEOUT_S = 120.0


def until(condition: Callable[[], bool], *, program: RunningTool) -> None:
    """Wait for a condition; fail after the timeout, or if the running program ends."""
    deadline = time.monotonic() + _TIMEOUT_S
    while not condition():
        program.poll_line(0.05)
        assert time.monotonic() < deadline, f"not within {_TIMEOUT_S:.0f} s\n{program.errors()}"


class Reader:
    """Reads all partitions of a topic, by default the records of committed transactions only."""

    def __init__(self, servers: str, topic: str, *, isolation: str = "read_committed") -> None:
        self.records: list[Message] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "none",
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 100,
            }
        )
        described = self._consumer.list_topics(topic, 30).topics[topic]
        self._partitions = set(described.partitions)
        assert self._partitions, f"there is no topic {topic}"
        self._consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in self._partitions])

    @property
    def values(self) -> list[str]:
        """The values read so far."""
        return [(record.value() or b"").decode() for record in self.records]

    def read_count(self, count: int, *, program: RunningTool) -> None:
        """Read until there are at least `count` records in all; fail as `until` does."""
        deadline = time.monotonic() + _TIMEOUT_S
        while len(self.records) < count:
            self._poll(0.1)
            program.poll_line(0)
            assert time.monotonic() < deadline, f"only {len(self.records)} of {count} records\n{program.errors()}"

    def read_rest(self) -> None:
        """Read up to the current end of every partition."""
        deadline = time.monotonic() + _TIMEOUT_S
        # A new assignment makes the consumer report the ends of the partitions again.
        reached = self._consumer.position(self._consumer.assignment())
        self._consumer.assign(
            [TopicPartition(each.topic, each.partition, max(each.offset, OFFSET_BEGINNING)) for each in reached]
        )
        missing = set(self._partitions)
        while missing:
            missing.discard(self._poll(0.1))
            assert time.monotonic() < deadline, f"partitions {missing} have no end"

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _poll(self, seconds: float) -> int:
        """Consume the next message. Return the partition whose end it reports, or -1."""
        message = self._consumer.poll(seconds)
        if message is None:
            return -1
        error = message.error()
        if error is None:
            self.records.append(message)
            return -1
        assert error.code() == KafkaError._PARTITION_EOF, error
        return message.partition() or 0
