"""Kafka Connect with exactly-once source support: its worker is killed, and each line of a file arrives once."""

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from compat_tests.exactly_once.reader import Reader
from compat_tests.exactly_once.worker import Worker

pytestmark = pytest.mark.peers

_FIRST, _MORE, _LAST = 200, 1500, 100
_LINES_IN_TRANSACTION = "10"


def _line(number: int) -> str:
    """Return a line that fills more than half of the source's buffer. The buffer must not hold two lines: the source
    returns a full batch, and reads the rest of its buffer only when the file grows."""
    return f"line {number} ".ljust(600, ".")


def _append(file: Path, numbers: range) -> None:
    with file.open("a") as output:
        output.writelines(f"{_line(number)}\n" for number in numbers)


def test_a_killed_worker_copies_every_line_once(servers: str, make_topic: Callable[..., str], tmp_path: Path) -> None:
    topic = make_topic()
    reader, written = Reader(servers, topic), Reader(servers, topic, isolation="read_uncommitted")
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    _append(source, range(_FIRST))
    admin = AdminClient({"bootstrap.servers": servers})

    def sink_has_committed(offset: int) -> bool:
        group = ConsumerGroupTopicPartitions("connect-sink", [TopicPartition(topic, 0)])
        committed = admin.list_consumer_group_offsets([group])["connect-sink"].result(30).topic_partitions or []
        return any(each.offset >= offset for each in committed)

    with Worker(servers, topic, tmp_path) as worker:
        worker.create(
            "source",
            {
                "connector.class": "FileStreamSource",
                "file": str(source),
                "topic": topic,
                "batch.size": _LINES_IN_TRANSACTION,
                "exactly.once.support": "required",
                # A starting worker reads all offsets, for which the killed worker's open transaction must end first.
                "producer.override.transaction.timeout.ms": "6000",
            },
        )
        worker.create(
            "sink",
            {
                "connector.class": "FileStreamSink",
                "file": str(sink),
                "topics": topic,
                "consumer.override.isolation.level": "read_committed",
                "consumer.override.auto.offset.reset": "earliest",
                "consumer.override.session.timeout.ms": "3000",
                "consumer.override.heartbeat.interval.ms": "500",
            },
        )
        reader.read_count(_FIRST, program=worker.running)
        # A sink that is killed between a line and its offset writes the line again, so it is paused before.
        worker.until(lambda: sink_has_committed((reader.records[-1].offset() or 0) + 1))
        worker.pause("sink")

        _append(source, range(_FIRST, _FIRST + _MORE))
        written.read_count(_FIRST + _MORE // 3, program=worker.running)
        worker.kill()
        reader.read_rest()
        assert _FIRST < len(reader.records) < _FIRST + _MORE, "the worker was not killed in the middle"

        _append(source, range(_FIRST + _MORE, _FIRST + _MORE + _LAST))
        worker.start()
        everything = _FIRST + _MORE + _LAST
        reader.read_count(everything, program=worker.running)
        worker.resume("sink")
        worker.until(lambda: sink_has_committed((reader.records[-1].offset() or 0) + 1))
        worker.pause("source")
    reader.read_rest()
    expected = [_line(number) for number in range(everything)]

    assert reader.values == expected
    assert sink.read_text().splitlines() == expected
    reader.close()
    written.close()
