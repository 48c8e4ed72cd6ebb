"""Apache Kafka as the oracle of the cleaner: it cleans a log to the same batches, and reads a log cleaned here."""

from __future__ import annotations

import random
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from log.tests.cleaner_kit import LIMITS, clean
from log.tests.log_kit import Time, open_directory
from odradek_peers import KAFKA_4_3, ApacheKafka, JavaTools

from odradek_log.log_config import LogConfig
from odradek_wire.records.batch import iterate
from odradek_wire.records.record_codec import read_records

pytestmark = pytest.mark.peers

SEGMENTS = {"segment.bytes": "1048576", "index.interval.bytes": "1000"}
COMPACT = LogConfig.from_configs({**SEGMENTS, "cleanup.policy": "compact"})


def _produce(kafka: ApacheKafka, topics: tuple[str, ...]) -> None:
    """Produce the same records to all topics: repeated keys, tombstones, committed and aborted transactions, all
    codecs, several producers."""
    chance = random.Random(5)
    own = {"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 5, "partitioner": "consistent"}
    for round_ in range(8):
        codec = ("none", "gzip", "snappy", "lz4", "zstd")[round_ % 5]
        idempotent = Producer({**own, "enable.idempotence": True, "compression.type": codec})
        for at in range(1500):
            key = b"key %d" % chance.randrange(900)
            value = None if chance.random() < 0.1 else chance.randbytes(chance.randrange(700))
            for topic in topics:
                idempotent.produce(topic, value, key, headers={"round": b"%d" % round_} if at % 9 == 0 else None)
        idempotent.flush()
        transactional = Producer({**own, "transactional.id": f"writer {round_ % 3}"})
        transactional.init_transactions()
        for commit in (True, False, True):
            transactional.begin_transaction()
            for _ in range(20):
                key = b"key %d" % chance.randrange(900)
                for topic in topics:
                    transactional.produce(topic, b"in a transaction", key)
            (transactional.commit_transaction if commit else transactional.abort_transaction)()


def _batches(partition: Path) -> list[object]:
    """Return every batch of the log files in a directory: offsets, producer and records."""
    found: list[object] = []
    for file in sorted(partition.glob("*.log")):
        data = file.read_bytes()
        for header in iterate(data):
            producer = header.producer_id, header.producer_epoch, header.base_sequence
            kind = header.attributes, header.delete_horizon_ms is None, header.max_timestamp
            place = header.base_offset, header.last_offset, header.partition_leader_epoch
            found.append((place, producer, kind, list(read_records(data, header))))
    return found


def _tombstones(partition: Path, end: int) -> list[int]:
    """Return the offsets of tombstones below `end`."""
    found: list[int] = []
    for file in sorted(partition.glob("*.log")):
        data = file.read_bytes()
        for header in iterate(data):
            found += [record.offset for record in read_records(data, header) if record.value is None]
    return [offset for offset in found if offset < end]


def _committed(kafka: ApacheKafka, topic: str) -> list[tuple[int, bytes | None, bytes | None]]:
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "w",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "check.crcs": True,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[tuple[int, bytes | None, bytes | None]] = []
        while (message := consumer.poll(30)) is not None:
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF
                return found
            found.append((message.offset() or 0, message.key(), message.value()))
        raise AssertionError(f"no end of {topic} after {len(found)} records")
    finally:
        consumer.close()


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _set(admin: AdminClient, topic: str, **configs: str) -> None:
    change = ConfigResource(ResourceType.TOPIC, topic)
    for name, value in configs.items():
        entry = ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        change.add_incremental_config(entry)
    for done in admin.incremental_alter_configs([change]).values():
        done.result()


def _clean_here(path: Path, topic: str, clock: Time) -> int:
    """Clean a partition in a directory that Kafka has closed; return the base offset of its active segment."""
    directory = open_directory(path, clock)
    directory.load(lambda _: COMPACT)
    assert directory.failed == {}
    log = directory.logs[topic, 0]
    size, end = log.size_bytes, log.segments.active.base_offset
    assert len(log.segments) > 3
    assert clean(log, config=LIMITS._replace(dedupe_buffer_bytes=1 << 24)).end_offset == end
    assert log.size_bytes < size / 2
    clock.advance(log.config.file_delete_delay_ms)
    directory.close(directory.previous_broker_epoch)
    return end


def _copied(kafka: ApacheKafka, path: Path) -> Path:
    """Copy the topic that Kafka cleans, and Kafka's cleaner checkpoint, to clean them here; return the copy's path."""
    path.mkdir()
    shutil.copytree(kafka.data_directory / "theirs-0", path / "theirs-0")
    checkpoint = kafka.data_directory / "cleaner-offset-checkpoint"
    if checkpoint.exists():
        shutil.copy(checkpoint, path)
    return path


def test_kafka_cleans_a_log_to_the_same_batches_and_reads_ours(tmp_path: Path) -> None:
    (tmp_path / "kafka").mkdir()
    kafka = ApacheKafka(KAFKA_4_3, directory=tmp_path / "kafka", config={"log.cleaner.backoff.ms": "100"})
    checkpoint = kafka.data_directory / "cleaner-offset-checkpoint"
    try:
        kafka.start()
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        topics = [NewTopic(name, 1, 1, config=SEGMENTS) for name in ("ours", "theirs")]
        for future in admin.create_topics(topics).values():
            future.result()
        _produce(kafka, ("ours", "theirs"))
        kafka.stop()
        clock = Time()
        clock.now_ms = time.time_ns() // 1_000_000
        first = _copied(kafka, tmp_path / "first")
        end = _clean_here(kafka.data_directory, "ours", clock)
        assert _clean_here(first, "theirs", clock) == end
        files = [file for file in (kafka.data_directory / "ours-0").iterdir() if file.name[0] == "0"]
        paths = ",".join(str(file) for file in sorted(files))
        dump = JavaTools(KAFKA_4_3).run("kafka-dump-log", "--files", paths, "--deep-iteration")
        assert not re.search(r"mismatch|non-?consecutive|corrupt|exception|not sane|isvalid: false", dump, re.I), dump

        kafka.start()
        assert checkpoint.read_text() == f"0\n1\nours 0 {end}\n"
        # The horizon of tombstones and markers has passed as soon as it is set.
        _set(admin, "theirs", cleanup_policy="compact", min_cleanable_dirty_ratio="0.0001", delete_retention_ms="1")
        _wait_for(lambda: f"theirs 0 {end}\n" in checkpoint.read_text())
        _set(admin, "theirs", min_cleanable_dirty_ratio="1")
        ours, theirs = _committed(kafka, "ours"), _committed(kafka, "theirs")
        assert ours == theirs
        assert len(ours) > 900
        assert _batches(first / "theirs-0") == _batches(kafka.data_directory / "theirs-0")

        _produce(kafka, ("theirs",))
        kafka.stop()
        clock.now_ms = time.time_ns() // 1_000_000
        second = _copied(kafka, tmp_path / "second")
        assert len(_tombstones(second / "theirs-0", end)) > 50
        was_end, end = end, _clean_here(second, "theirs", clock)
        assert _tombstones(second / "theirs-0", was_end) == []
        kafka.start()
        _set(admin, "theirs", min_cleanable_dirty_ratio="0.0001")
        _wait_for(lambda: f"theirs 0 {end}\n" in checkpoint.read_text())
        kafka.stop()
        assert _batches(second / "theirs-0") == _batches(kafka.data_directory / "theirs-0")
        log_text = (kafka.directory / "server.log").read_text()
        assert not re.search(r"Corrupt|stray|rebuilding index|truncat.*ours|marked as offline", log_text, re.I)
    finally:
        kafka.close()
