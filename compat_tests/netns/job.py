"""The arguments of a client's process, and the common parts of librdkafka's clients."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Message, TopicPartition

from compat_tests.netns.history import Recorder

# librdkafka's defaults, but with shorter waits for a broker that is gone.
COMMON: dict[str, Any] = {
    "log_level": 0,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "socket.connection.setup.timeout.ms": 1000,
    "topic.metadata.refresh.interval.ms": 1000,
    "retry.backoff.ms": 50,
}

# The exit code of a client's process that completed its history and then hung at its end.
HUNG_EXIT_CODE = 3


class Job(NamedTuple):
    """The work of a process, and the file of its history."""

    name: str
    servers: str
    topic: str
    partitions: int
    group: str
    recorder: Recorder
    stopping: threading.Event

    @property
    def topic_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.topic, partition) for partition in range(self.partitions)]


def consumer_for(job: Job, **settings: object) -> Consumer:
    return Consumer(
        {
            **COMMON,
            "bootstrap.servers": job.servers,
            "group.id": job.group or job.name,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 200,
            "socket.timeout.ms": 5000,
            **settings,
        }
    )


def partition_of(message: Message) -> int:
    partition = message.partition()
    return -1 if partition is None else partition


def offset_of(message: Message) -> int:
    offset = message.offset()
    return -1 if offset is None else offset
