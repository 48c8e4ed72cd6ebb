"""Kafka's DumpLogSegments reads every file of Odradek's log directories without an error."""

from pathlib import Path

import pytest
from confluent_kafka import Producer
from odradek_peers import KAFKA_3_9, KAFKA_4_3, JavaTools

from compat_tests.clients import LIBRARIES, Message
from compat_tests.clients.kafka_python import KafkaPython
from odradek import Cluster

pytestmark = pytest.mark.peers
_COMPLAINTS = ("Exception", "ERROR", "Found timestamp mismatch", "Index is corrupted", "Mismatches in", "not valid")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, broker_name: str) -> Path:
    """A data directory with segments, indexes, groups and producers, after a restart and a kill."""
    if broker_name != "odradek":
        pytest.skip("only Odradek's files are checked")
    directory = tmp_path_factory.mktemp("data")
    config = {"node.id": "1", "log.segment.bytes": "1048576", "log.index.interval.bytes": "1024"}
    with Cluster(process=True, data=directory, config=config) as cluster:
        servers = cluster.bootstrap_servers
        cluster.create_topics({"mixed": 1, "long": 2})
        cluster.create_topic("compact", config={"cleanup.policy": "compact"})
        for client in LIBRARIES:
            for codec in client.abilities.codecs:
                client.produce(servers, "mixed", [Message(b"v" * 100, b"k")] * 20, codec=codec)
            client.consume_as_group(servers, "mixed", 10, group=client.name)
        KafkaPython(old=True, api_version=(0, 10, 0)).produce(servers, "mixed", [Message(b"old")] * 5, codec="gzip")
        cluster.stop()
        cluster.start()
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
        for number in range(40_000):
            producer.produce("long", b"x" * 100, b"%d" % number)
            producer.poll(0)
        assert producer.flush(60) == 0
        cluster.kill()
        cluster.start()
        LIBRARIES[0].produce(cluster.bootstrap_servers, "compact", [Message(b"v", b"k")] * 10)
        cluster.stop()
    return directory


@pytest.mark.parametrize("version", [KAFKA_4_3, KAFKA_3_9])
@pytest.mark.parametrize("option", ["--deep-iteration", "--index-sanity-check", "--verify-index-only"])
def test_dump_log_reads_every_file(option: str, version: str, data: Path) -> None:
    suffixes = (".log",) if option == "--deep-iteration" else (".index", ".timeindex")
    files = [file for file in data.rglob("*") if file.suffix in suffixes and file.parent.name != "__cluster_metadata-0"]
    assert len(files) > 10

    output = JavaTools(version).run("kafka-dump-log", option, "--files", ",".join(map(str, files)))

    assert [line for line in output.splitlines() if any(each in line for each in _COMPLAINTS)] == []
    assert output.count("Dumping ") == len(files)


@pytest.mark.parametrize("version", [KAFKA_4_3, KAFKA_3_9])
def test_dump_log_reads_the_files_of_a_running_broker(version: str, tmp_path: Path, broker_name: str) -> None:
    if broker_name != "odradek":
        pytest.skip("only Odradek's files are checked")
    tools = JavaTools(version)
    with Cluster(process=True, data=tmp_path, config={"log.index.interval.bytes": "1024"}) as cluster:
        cluster.create_topics({"long": 1, "short": 1})
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "batch.size": 2000})
        for number in range(20_000):
            producer.produce("long", b"x" * 100, b"%d" % number)
            producer.poll(0)
        producer.produce("short", b"x")
        assert producer.flush(60) == 0
        logs = [tmp_path / topic / f"{0:020d}.log" for topic in ("long-0", "short-0")]
        indexes = [log.with_suffix(suffix) for log in logs for suffix in (".index", ".timeindex")]
        before = {path: path.read_bytes() for path in indexes}
        assert len(before[indexes[0]]) > 8 * 64
        assert len(before[indexes[1]]) > 0
        for options in ([], ["--deep-iteration"], ["--index-sanity-check"], ["--verify-index-only"]):
            output = tools.run("kafka-dump-log", *options, "--files", ",".join(map(str, [*logs, *indexes])))
            assert [line for line in output.splitlines() if any(each in line for each in _COMPLAINTS)] == []
            assert output.count("Dumping ") == 6
        assert {path: path.read_bytes() for path in (tmp_path / "long-0").glob("*index")} == {
            path: before[path] for path in indexes[:2]
        }


@pytest.mark.parametrize("version", [KAFKA_4_3, KAFKA_3_9])
def test_dump_log_reads_snapshots_offsets_and_metadata(version: str, data: Path) -> None:
    tools = JavaTools(version)

    def dump(pattern: str, *options: str) -> str:
        files = [str(file) for file in data.rglob(pattern)]
        assert files, pattern
        output = tools.run("kafka-dump-log", *options, "--files", ",".join(files))
        assert [line for line in output.splitlines() if any(each in line for each in _COMPLAINTS)] == []
        return output

    assert "producerId: " in dump("long-*/*.snapshot")
    offsets = dump("__consumer_offsets-*/*.log", "--offsets-decoder")
    assert all(client.name in offsets for client in LIBRARIES)
    metadata = dump("__cluster_metadata-0/*.log", "--cluster-metadata-decoder")
    assert all(f'"name":"{topic}"' in metadata for topic in ("mixed", "long", "compact"))
