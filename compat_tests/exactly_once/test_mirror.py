"""MirrorMaker 2 between the broker under test and Apache Kafka, in both directions, exactly once: a group continues in
the other cluster at its offset."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from odradek_peers import ApacheKafka, RunningTool, connect_libs
from odradek_peers.processes import LOOPBACK, free_ports

from compat_tests.conftest import create_topic
from compat_tests.exactly_once.java import JavaProgram, compiled
from compat_tests.exactly_once.reader import Reader, until

pytestmark = pytest.mark.peers

_BEFORE, _AFTER = 40, 20
_IN_TRANSACTION = 10
_TOPIC = "orders"


@dataclass(frozen=True)
class Side:
    """A cluster and its MirrorMaker alias."""

    name: str
    servers: str
    other: str
    admin: AdminClient

    @property
    def group(self) -> str:
        """The group that reads this side's own topic, first here and then from its mirror on the other side."""
        return f"readers-of-{self.name}"

    @property
    def mirror(self) -> str:
        """The mirror of the other side's topic on this side."""
        return f"{self.other}.{_TOPIC}"

    def values(self, numbers: range) -> list[str]:
        """Return the values that `write` produces on this side."""
        return [f"{self.name} {number}" for number in numbers]

    def write(self, numbers: range) -> None:
        """Write committed transactions with aborted ones between them, so that the mirror has other offsets."""
        producer = Producer({"bootstrap.servers": self.servers, "transactional.id": f"{self.name}-writer"})
        producer.init_transactions(60)
        for first in numbers[::_IN_TRANSACTION]:
            producer.begin_transaction()
            for value in self.values(range(first, first + _IN_TRANSACTION)):
                producer.produce(_TOPIC, value)
            producer.commit_transaction(60)
            producer.begin_transaction()
            for _ in range(_IN_TRANSACTION):
                producer.produce(_TOPIC, "aborted")
            producer.flush(60)
            producer.abort_transaction(60)

    def read_as_group(self, group: str, topic: str, total: int) -> list[Message]:
        """Read `total` records from the group's committed offset on, and commit."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([topic])
        messages: list[Message] = []
        while len(messages) < total:
            polled = consumer.consume(total - len(messages), 60)
            assert polled, f"only {len(messages)} of {total} records of {topic}"
            messages += polled
        consumer.commit(asynchronous=False)
        consumer.close()
        return messages

    def committed(self, group: str, topic: str) -> int | None:
        """Return the group's committed offset in the topic's only partition."""
        partitions = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
        (partition,) = self.admin.list_consumer_group_offsets([partitions])[group].result(60).topic_partitions or []
        return partition.offset if partition.offset >= 0 else None


def _values(messages: list[Message]) -> list[str]:
    return [(each.value() or b"").decode() for each in messages]


@pytest.fixture
def sides(servers: str) -> Iterator[tuple[Side, Side]]:
    """The broker under test, and Apache Kafka."""
    with ApacheKafka(heap="256M") as kafka:
        near, far = (
            Side(name, address, other, AdminClient({"bootstrap.servers": address}))
            for name, address, other in (("near", servers, "far"), ("far", kafka.bootstrap_servers, "near"))
        )
        for side in (near, far):
            create_topic(side.servers, _TOPIC)
        yield near, far


def _mirror_maker(near: Side, far: Side, directory: Path) -> RunningTool:
    (port,) = free_ports(1)
    settings = {
        "clusters": f"{near.name}, {far.name}",
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": f"http://{LOOPBACK}:{port}",
        "replication.factor": "1",
        **{f"{topic}.storage.replication.factor": "1" for topic in ("config", "offset", "status")},
        **{f"{topic}.topic.replication.factor": "1" for topic in ("checkpoints", "heartbeats", "offset-syncs")},
        "offset.storage.partitions": "2",
        "status.storage.partitions": "2",
        "tasks.max": "1",
        "emit.heartbeats.enabled": "false",
        "offset.lag.max": "0",
        "offset.flush.interval.ms": "500",
        "emit.checkpoints.interval.seconds": "1",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "1",
    }
    for side in (near, far):
        settings |= {
            f"{side.name}.bootstrap.servers": side.servers,
            f"{side.name}.exactly.once.source.support": "enabled",
            f"{side.name}.consumer.isolation.level": "read_committed",
            f"{side.name}->{side.other}.enabled": "true",
            f"{side.name}->{side.other}.topics": _TOPIC,
            f"{side.name}->{side.other}.groups": side.group,
        }
    file = directory / "mirror.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return JavaProgram("org.apache.kafka.connect.mirror.MirrorMaker", f"{connect_libs()}/*").start(str(file))


def _wait_for_mirror(origin: Side, target: Side, running: RunningTool) -> Reader:
    """Wait until the mirror is complete, and MirrorMaker has translated the group's offset to the end of the mirror."""
    until(lambda: target.mirror in target.admin.list_topics(timeout=60).topics, program=running)
    mirror = Reader(target.servers, target.mirror)
    mirror.read_count(_BEFORE, program=running)
    end = (mirror.records[-1].offset() or 0) + 1
    until(lambda: target.committed(origin.group, target.mirror) == end, program=running)
    return mirror


def test_a_group_continues_in_the_mirror_at_its_offset(
    sides: tuple[Side, Side], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    near, far = sides
    directions = [(near, far), (far, near)]
    for side in sides:
        side.write(range(_BEFORE))
        assert _values(side.read_as_group(side.group, _TOPIC, _BEFORE)) == side.values(range(_BEFORE))
    everything = range(_BEFORE + _AFTER)

    with _mirror_maker(near, far, tmp_path) as running:
        mirrors = [_wait_for_mirror(origin, target, running) for origin, target in directions]
        for mirror, (origin, _) in zip(mirrors, directions, strict=True):
            origin.write(everything[_BEFORE:])
            mirror.read_count(len(everything), program=running)
        assert running.terminate(60) == 143
    for mirror, (origin, _) in zip(mirrors, directions, strict=True):
        mirror.read_rest()
        mirror.close()
        assert mirror.values == origin.values(everything)

    translate = compiled("TranslatedOffsets", connect_libs(), tmp_path_factory.mktemp("classes"))
    arguments = [word for origin, target in directions for word in (target.servers, origin.name, origin.group)]
    with translate.start(*arguments) as translated:
        assert [translated.next_line() for _ in directions] == [
            f"{target.mirror}-0 {target.committed(origin.group, target.mirror)}" for origin, target in directions
        ]
    for origin, target in directions:
        rest = target.read_as_group(origin.group, target.mirror, _AFTER)
        assert _values(rest) == origin.values(everything[_BEFORE:])
