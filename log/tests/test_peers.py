"""Apache Kafka as the oracle: its tool reads our files, and each broker opens the directories of the other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from log.tests.log_kit import START_MS, TOPIC_ID, RecordingReporter, Time, append, batch, open_directory, read_all
from odradek_peers import KAFKA_3_9, KAFKA_4_3, ApacheKafka, JavaTools

from odradek_log.append import AppendInfo
from odradek_log.log import Log
from odradek_log.log_config import LogConfig
from odradek_log.producer_state_manager import AppendOrigin
from odradek_wire.records.attributes import Compression
from odradek_wire.records.control import end_txn_marker_batch

pytestmark = pytest.mark.peers

_COMPLAINTS = re.compile(r"mismatch|non-?consecutive|corrupt|exception|not sane|invalid|isvalid: false|error", re.I)


_FILES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


def _dump(directory: Path, *options: str, suffixes: tuple[str, ...] = _FILES) -> str:
    files = sorted(str(file) for file in directory.iterdir() if file.suffix in suffixes)
    assert files
    return JavaTools(KAFKA_4_3).run("kafka-dump-log", "--files", ",".join(files), *options)


def _fill(log: Log, batches: int) -> None:
    """Append batches of many sizes, codecs, producers and two epochs."""
    for at in range(batches):
        records = batch(
            *(b"%d-%d" % (at, number) * (1 + at % 7) for number in range(1 + at % 5)),
            timestamp=START_MS + 10 * at,
            step_ms=3,
            compression=list(Compression)[at % 5],
        )
        assert isinstance(log.append(records, 0 if at < batches // 2 else 3), AppendInfo)
    for sequence in range(7):
        assert isinstance(log.append(batch(b"once", producer=(42, 1, sequence)), 3), AppendInfo)


def test_dump_log_segments_reads_every_file_of_a_closed_partition(tmp_path: Path) -> None:
    directory = open_directory(tmp_path, Time())
    log = directory.create_log("t", 0, TOPIC_ID, LogConfig(segment_bytes=20_000, index_interval_bytes=300))
    _fill(log, 400)
    directory.close()
    assert len(list((tmp_path / "t-0").glob("*.log"))) > 2
    deep = _dump(tmp_path / "t-0", "--deep-iteration", "--print-data-log")
    assert not _COMPLAINTS.search(deep), deep
    assert deep.count("| offset: ") == log.log_end_offset
    assert "producerId: 42 producerEpoch: 1" in deep
    assert "lastSequence: 6" in deep
    sane = _dump(tmp_path / "t-0", "--index-sanity-check", suffixes=(".index", ".timeindex"))
    assert sane.count("passed sanity check") == len(list((tmp_path / "t-0").glob("*index"))), sane


def test_dump_log_segments_reads_a_recovered_and_truncated_log(tmp_path: Path) -> None:
    time = Time()
    directory = open_directory(tmp_path, time)
    config = LogConfig(segment_bytes=20_000, index_interval_bytes=300)
    _fill(directory.create_log("t", 0, TOPIC_ID, config), 300)
    directory.close_without_writing()
    with sorted((tmp_path / "t-0").glob("*.log"))[-1].open("ab") as torn:
        torn.write(b"\0" * 30)
    directory = open_directory(tmp_path, time)
    directory.load(lambda _: config)
    log = directory.logs["t", 0]
    log.truncate_to(log.log_end_offset - 200)
    append(log, b"after", epoch=4)
    directory.close()
    output = _dump(tmp_path / "t-0", "--deep-iteration")
    assert not _COMPLAINTS.search(output), output
    sane = _dump(tmp_path / "t-0", "--index-sanity-check", suffixes=(".index", ".timeindex"))
    assert "passed sanity check" in sane
    assert not _COMPLAINTS.search(sane), sane


def test_dump_log_segments_reads_transactions_and_their_markers(tmp_path: Path) -> None:
    directory = open_directory(tmp_path, Time())
    log = directory.create_log("t", 0, TOPIC_ID, LogConfig())
    for commit in (True, False):
        log.append(batch(b"a", b"b", producer=(7, 0, 0 if commit else 2), transactional=True), 0)
        marker = end_txn_marker_batch(
            commit=commit, coordinator_epoch=2, producer_id=7, producer_epoch=0, timestamp=START_MS
        )
        log.append(marker, 0, origin=AppendOrigin.COORDINATOR)
    directory.close()
    output = _dump(tmp_path / "t-0", "--deep-iteration")
    assert not _COMPLAINTS.search(output), output
    assert "endTxnMarker: COMMIT coordinatorEpoch: 2" in output
    assert "endTxnMarker: ABORT coordinatorEpoch: 2" in output
    assert "version: 0 producerId: 7 firstOffset: 3 lastOffset: 5 lastStableOffset: 6" in output


def _consume(kafka: ApacheKafka, topic: str, partition: int, count: int) -> list[tuple[int, bytes | None]]:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "w", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        found: list[tuple[int, bytes | None]] = []
        while len(found) < count:
            messages = consumer.consume(count - len(found), timeout=30)
            assert messages, f"only {len(found)} of {count} records of {topic}"
            for message in messages:
                assert message.error() is None
                found.append((message.offset() or 0, message.value()))
        return found
    finally:
        consumer.close()


def _rebuilt_files_are_kafkas(partition: Path, copy: Path, config: LogConfig) -> None:
    """Assert that the files rebuilt from Kafka's log files equal Kafka's, byte for byte."""
    files = {file.name: file.read_bytes() for file in partition.iterdir()}
    (copy / partition.name).mkdir(parents=True)
    for name, content in files.items():
        if name.endswith((".log", ".metadata")):
            (copy / partition.name / name).write_bytes(content)
    directory = open_directory(copy, Time())
    directory.load(lambda _: config)
    directory.close()
    rebuilt = {file.name: file.read_bytes() for file in (copy / partition.name).iterdir()}
    # Only the snapshot at the end of the log is written again.
    lost = {name for name in files if name.endswith(".snapshot")} - {max(n for n in files if n.endswith(".snapshot"))}
    assert len(lost) == len(list(partition.glob("*.log"))) - 1
    assert rebuilt == {name: content for name, content in files.items() if name not in lost}


@pytest.mark.parametrize("version", [KAFKA_4_3, KAFKA_3_9])
def test_kafka_and_odradek_use_one_data_directory_in_turn(version: str, tmp_path: Path) -> None:
    segment = {"segment.bytes": "1048576", "index.interval.bytes": "500"}
    kafka = ApacheKafka(version, directory=tmp_path)
    try:
        kafka.start()
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        topics = [NewTopic("many", 1, 1, config=segment), NewTopic("empty", 1, 1), NewTopic("txn", 1, 1)]
        for future in admin.create_topics(topics).values():
            future.result()
        producer = Producer(
            {"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True, "compression.type": "lz4"}
        )
        sent = [b"%d" % number * 20 for number in range(20_000)]
        for at, value in enumerate(sent):
            producer.produce("many", value)
            if at % 100 == 0:
                producer.flush()
        producer.flush()
        transactional = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "t"})
        transactional.init_transactions()
        for commit in (True, False, True):
            transactional.begin_transaction()
            transactional.produce("txn", b"commit" if commit else b"abort")
            transactional.flush()
            (transactional.commit_transaction if commit else transactional.abort_transaction)()
        kafka.stop()

        config = LogConfig.from_configs(segment)
        _rebuilt_files_are_kafkas(kafka.data_directory / "many-0", tmp_path / "rebuilt", config)
        _rebuilt_files_are_kafkas(kafka.data_directory / "txn-0", tmp_path / "rebuilt too", LogConfig())
        time, reporter = Time(), RecordingReporter()
        directory = open_directory(kafka.data_directory, time, reporter=reporter)
        assert directory.meta is not None
        assert (directory.meta.version, directory.meta.node_id) == (1, kafka.node_id)
        directory.load(lambda topic: config if topic == "many" else LogConfig())
        assert directory.clean_shutdown
        assert directory.failed == {}
        assert reporter.logged == []
        many = directory.logs["many", 0]
        assert [record.value for record in read_all(many)] == sent
        assert [entry.last_offset for entry in many.producers] == [19_999]
        assert [entry.current_txn_first_offset for entry in directory.logs["txn", 0].producers] == [None]
        txn = directory.logs["txn", 0]
        assert len(read_all(txn)) == 6
        assert [(each.first_offset, each.last_offset) for each in txn.aborted_transactions(0, 6)] == [(2, 3)]
        assert directory.logs["empty", 0].log_end_offset == 0
        epoch = many.leader_epochs.latest
        time.now_ms = read_all(many, 19_999)[0].timestamp
        for number in range(300):
            append(many, b"ours %d" % number * 30, epoch=epoch, timestamp=time.now_ms)
        append(directory.logs["empty", 0], b"first", epoch=0, timestamp=time.now_ms)
        directory.close(directory.previous_broker_epoch)

        kafka.start()
        everything = _consume(kafka, "many", 0, 20_300)
        assert everything == list(enumerate([*sent, *(b"ours %d" % number * 30 for number in range(300))]))
        assert _consume(kafka, "empty", 0, 1) == [(0, b"first")]
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        producer.produce("many", b"theirs again")
        producer.flush()
        kafka.stop()
        log = (tmp_path / "server.log").read_text()
        assert not re.search(r"Corrupt|stray|rebuilding index|truncat.*many|marked as offline", log, re.I), log

        directory = open_directory(kafka.data_directory, time)
        directory.load(lambda topic: config if topic == "many" else LogConfig())
        assert [record.value for record in read_all(directory.logs["many", 0], 20_299)] == [
            b"ours 299" * 30,
            b"theirs again",
        ]
        directory.close_without_writing()
    finally:
        kafka.close()


def test_odradek_recovers_the_directory_of_a_killed_kafka_broker(tmp_path: Path) -> None:
    kafka = ApacheKafka(KAFKA_4_3, directory=tmp_path)
    try:
        kafka.start()
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True})
        sent = [b"%d" % number * 50 for number in range(5_000)]
        for at, value in enumerate(sent):
            producer.produce("killed", value)
            if at % 50 == 0:
                producer.flush()
        producer.flush()
        kafka.kill()
        reporter = RecordingReporter()
        directory = open_directory(kafka.data_directory, Time(), reporter=reporter)
        directory.load(lambda _: LogConfig())
        assert not directory.clean_shutdown
        assert directory.failed == {}
        log = directory.logs["killed", 0]
        assert [record.value for record in read_all(log)] == sent
        assert [entry.last_offset for entry in log.producers] == [4_999]
        directory.close()
    finally:
        kafka.close()


def test_kafka_recovers_the_directory_of_a_killed_odradek_broker(tmp_path: Path) -> None:
    kafka = ApacheKafka(KAFKA_4_3, directory=tmp_path)
    try:
        kafka.start()
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        segment = {"segment.bytes": "1048576"}
        topics = [NewTopic("ours", 1, 1, config=segment), NewTopic("unused", 1, 1)]
        for future in admin.create_topics(topics).values():
            future.result()
        kafka.stop()
        for file in (kafka.data_directory / "unused-0").iterdir():
            if file.name != "partition.metadata":
                file.unlink()  # as of a partition that was created here and never used
        time = Time()
        directory = open_directory(kafka.data_directory, time)
        directory.load(lambda _: LogConfig.from_configs(segment))
        log = directory.logs["ours", 0]
        sent = [b"%d" % number * 100 for number in range(3000)]
        for number, value in enumerate(sent):
            log.append(batch(value, timestamp=START_MS + number, producer=(1 << 40, 0, number)), 0)
        assert len(log.segments) > 1
        directory.close_without_writing()
        with (Path(log.directory) / f"{log.segments[-1].base_offset:020d}.log").open("ab") as torn:
            torn.write(batch(b"torn")[:-1])
        kafka.start()
        assert _consume(kafka, "ours", 0, len(sent)) == list(enumerate(sent))
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        producer.produce("unused", b"first")
        producer.flush()
        assert _consume(kafka, "unused", 0, 1) == [(0, b"first")]
    finally:
        kafka.close()
