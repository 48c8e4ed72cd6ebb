"""`Cluster` on a thread and in a child process, with an unmodified client."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from odradek import BrokerProcessError, Cluster, KafkaError, NotRunningError, SettingsError
from odradek_log import disk

WAIT_S = 20
DAY_MS = 24 * 3600 * 1000


@pytest.fixture(params=[False, True], ids=["thread", "process"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(topics={"orders": 2}, process=request.param) as made:
        yield made


def produce(cluster: Cluster, topic: str, *values: str, **config: object) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, **config})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(WAIT_S) == 0


def read(cluster: Cluster, topic: str, count: int) -> list[str]:
    """Read the records of partition 0, and assert that it has `count`."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "reader"})
    try:
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), WAIT_S) == (0, count)
        consumer.assign([TopicPartition(topic, 0, 0)])
        found = consumer.consume(count, WAIT_S) if count else []
        return [message.value().decode() for message in found]
    finally:
        consumer.close()


def topic_names(cluster: Cluster) -> set[str]:
    return set(AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=WAIT_S).topics)


def test_produced_records_can_be_read(cluster: Cluster) -> None:
    produce(cluster, "orders", "a", "b")
    assert read(cluster, "orders", 2) == ["a", "b"]


def test_stop_and_start_keep_the_data_and_the_address(cluster: Cluster) -> None:
    address = cluster.bootstrap_servers
    produce(cluster, "orders", "a")
    cluster.stop()
    cluster.start()
    assert cluster.bootstrap_servers == address
    assert read(cluster, "orders", 1) == ["a"]


def test_a_killed_broker_restarts_with_every_acknowledged_record(cluster: Cluster) -> None:
    produce(cluster, "orders", "a", "b", "c")
    cluster.kill()
    cluster.start()
    produce(cluster, "orders", "d")
    assert read(cluster, "orders", 4) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("durable", [True, False])
def test_a_durable_cluster_syncs_before_it_acknowledges(
    durable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    sync = disk._sync_data

    def watched(fd: int) -> None:
        sync(fd)
        synced.append(os.fstat(fd).st_ino)

    monkeypatch.setattr(disk, "_sync_data", watched)
    with Cluster(topics=["orders"], durable=durable, data=tmp_path / "data") as cluster:
        for number in range(3):
            synced.clear()
            produce(cluster, "orders", str(number))
            (file,) = (tmp_path / "data").glob("**/orders-0/*.log")
            assert (file.stat().st_ino in synced) == durable


def test_a_reset_leaves_only_the_constructors_topics(cluster: Cluster) -> None:
    produce(cluster, "orders", "a")
    cluster.create_topic("more", 3)
    cluster.reset()
    assert topic_names(cluster) == {"orders"}
    assert read(cluster, "orders", 0) == []


def test_a_connected_client_continues_after_a_reset(cluster: Cluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce("orders", "before", partition=0)
    assert producer.flush(WAIT_S) == 0
    cluster.reset()
    producer.produce("orders", "after", partition=0)
    assert producer.flush(WAIT_S) == 0
    assert read(cluster, "orders", 1) == ["after"]


def test_an_idempotent_producer_continues_after_a_reset(cluster: Cluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
    for value in ("before", "more"):
        producer.produce("orders", value, partition=0)
        assert producer.flush(WAIT_S) == 0
    cluster.reset()
    producer.produce("orders", "after", partition=0)
    assert producer.flush(WAIT_S) == 0
    assert read(cluster, "orders", 1) == ["after"]


def test_a_reset_deletes_dynamic_configurations(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    initial = settings(admin)
    wanted = {"message.max.bytes": "1234", "log.retention.ms": "60000"}
    changes = [ConfigEntry(*each, incremental_operation=AlterConfigOpType.SET) for each in wanted.items()]
    resource = ConfigResource(ResourceType.BROKER, "0", incremental_configs=changes)
    admin.incremental_alter_configs([resource])[resource].result(WAIT_S)
    assert {name: value for name, value in settings(admin).items() if initial[name] != value} == wanted
    cluster.reset()
    assert settings(admin) == initial
    produce(cluster, "orders", "x" * 2000)


def settings(admin: AdminClient) -> dict[str, object]:
    """The settings of the broker in DescribeConfigs."""
    resource = ConfigResource(ResourceType.BROKER, "0")
    return {name: entry.value for name, entry in admin.describe_configs([resource])[resource].result(WAIT_S).items()}


def test_a_reset_clears_faults_also_for_the_next_start(cluster: Cluster) -> None:
    cluster.faults.error("Produce", "TOPIC_AUTHORIZATION_FAILED")
    cluster.faults.error("Produce", "TOPIC_AUTHORIZATION_FAILED", when="response")
    cluster.reset()
    produce(cluster, "orders", "a")
    cluster.stop()
    cluster.start()
    produce(cluster, "orders", "b")
    assert read(cluster, "orders", 2) == ["a", "b"]


def test_a_reset_restores_the_wall_clock_also_for_the_next_start(cluster: Cluster) -> None:
    cluster.advance(wall_ms=30 * DAY_MS)
    cluster.stop()
    cluster.start()
    assert days_from_now(cluster) == 30
    cluster.reset()
    assert days_from_now(cluster) == 0
    cluster.stop()
    cluster.start()
    assert days_from_now(cluster) == 0


def days_from_now(cluster: Cluster) -> int:
    """Produce and read a record; return the days by which its LogAppendTime is ahead of the real time."""
    name = f"stamped-{uuid4()}"
    cluster.create_topic(name, config={"message.timestamp.type": "LogAppendTime"})
    timestamps: list[int] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce(
        name, "x", partition=0, on_delivery=lambda error, message: timestamps.append(message.timestamp()[1])
    )
    assert producer.flush(WAIT_S) == 0
    assert read(cluster, name, 1) == ["x"]
    return round((timestamps[0] - time.time() * 1000) / DAY_MS)


def test_a_lost_response_duplicates_records_unless_idempotent(cluster: Cluster) -> None:
    timeouts = {"socket.timeout.ms": 1000, "request.timeout.ms": 1000, "retry.backoff.ms": 10}
    cluster.faults.disconnect("Produce", when="response", times=1)
    produce(cluster, "orders", "twice", **timeouts)
    cluster.faults.disconnect("Produce", when="response", times=1)
    produce(cluster, "orders", "once", **timeouts, **{"enable.idempotence": True})
    assert read(cluster, "orders", 3) == ["twice", "twice", "once"]


def test_an_injected_error_reaches_the_client_until_it_is_cleared(cluster: Cluster) -> None:
    cluster.faults.error("Produce", "TOPIC_AUTHORIZATION_FAILED")
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    errors: list[str] = []
    producer.produce("orders", "x", partition=0, on_delivery=lambda error, message: errors.append(error.name()))
    assert producer.flush(WAIT_S) == 0
    assert errors == ["TOPIC_AUTHORIZATION_FAILED"]
    cluster.faults.clear()
    produce(cluster, "orders", "y")
    assert read(cluster, "orders", 1) == ["y"]


def test_advancing_the_clock_of_timeouts_ends_a_session(cluster: Cluster) -> None:
    """The coordinator removes a silent member after its session timeout of a minute."""
    config = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "session.timeout.ms": 60_000}
    consumer = Consumer({**config, "heartbeat.interval.ms": 50_000, "max.poll.interval.ms": 60_000})
    consumer.subscribe(["orders"])
    assert consumer.poll(1) is None
    cluster.wait_for_group("g", members=1, timeout_s=WAIT_S)
    cluster.advance(timeouts_ms=60_001)
    cluster.wait_for_group("g", members=0, state="Empty", timeout_s=WAIT_S)
    consumer.close()


def test_a_restart_after_advancing_timeouts_expels_no_member(cluster: Cluster) -> None:
    cluster.advance(timeouts_ms=60_001)
    config = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "session.timeout.ms": 60_000}
    consumer = Consumer({**config, "heartbeat.interval.ms": 50_000, "max.poll.interval.ms": 60_000})
    consumer.subscribe(["orders"])
    assert consumer.poll(1) is None
    cluster.wait_for_group("g", members=1, timeout_s=WAIT_S)
    cluster.kill()
    cluster.start()
    cluster.wait_for_group("g", members=1, timeout_s=WAIT_S)
    consumer.close()


def offsets_left(cluster: Cluster, topic: str) -> list[int]:
    """The offsets of the records in partition 0."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "reader", "enable.partition.eof": True}
    )
    try:
        start, _ = consumer.get_watermark_offsets(TopicPartition(topic, 0), WAIT_S)
        consumer.assign([TopicPartition(topic, 0, start)])
        found = []
        while (message := consumer.poll(WAIT_S)) is not None and message.error() is None:
            found.append(message.offset())
        return found
    finally:
        consumer.close()


def test_clean_logs_and_delete_old_segments_run_immediately(cluster: Cluster) -> None:
    # Each record has its own segment, and only the last one is active.
    config = {"segment.ms": 1, "min.cleanable.dirty.ratio": 0, "retention.ms": DAY_MS}
    cluster.create_topic("latest", config={**config, "cleanup.policy": "compact,delete"})
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    now_ms = int(time.time() * 1000)
    for at in range(6):
        producer.produce("latest", b"v", b"key %d" % (at % 2), timestamp=now_ms + 10 * at)
        assert producer.flush(WAIT_S) == 0
    cluster.clean_logs()
    assert offsets_left(cluster, "latest") == [3, 4, 5]
    cluster.advance(wall_ms=2 * DAY_MS)
    cluster.delete_old_segments()
    assert offsets_left(cluster, "latest") == []


def test_the_cleaner_and_retention_follow_the_advanced_wall_clock(
    cluster: Cluster,
) -> None:
    policies = {
        "latest": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0, "min.compaction.lag.ms": DAY_MS},
        "little": {"retention.bytes": 200},
        "deleted": {},
    }
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    now_ms = int(time.time() * 1000)
    for topic, config in policies.items():
        cluster.create_topic(topic, config={**config, "segment.ms": 1})
        for at in range(6):
            producer.produce(topic, b"v" * 50, b"key", timestamp=now_ms + 10 * at)
            assert producer.flush(WAIT_S) == 0
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    (deleted,) = admin.delete_records([TopicPartition("deleted", 0, 4)]).values()
    deleted.result(WAIT_S)
    cluster.clean_logs()
    assert {topic: len(offsets_left(cluster, topic)) for topic in policies} == {"latest": 6, "little": 6, "deleted": 2}
    cluster.advance(wall_ms=2 * DAY_MS)
    cluster.clean_logs()
    cluster.delete_old_segments()
    assert offsets_left(cluster, "latest") == [4, 5]
    assert offsets_left(cluster, "little") == [4, 5]
    assert offsets_left(cluster, "deleted") == [4, 5]


def test_a_refused_topic_raises_kafkas_error_code(cluster: Cluster) -> None:
    with pytest.raises(KafkaError, match="Topic 'orders' already exists") as refused:
        cluster.create_topic("orders")
    assert refused.value.code.name == "TOPIC_ALREADY_EXISTS"


def test_the_next_cluster_has_the_data_of_the_last(tmp_path: Path) -> None:
    with Cluster(topics={"orders": 1}, data=tmp_path / "data") as first:
        produce(first, "orders", "a")
    with Cluster(topics={"orders": 1, "more": 2}, data=tmp_path / "data") as second:
        assert topic_names(second) == {"orders", "more"}
        assert read(second, "orders", 1) == ["a"]


def test_a_process_can_have_several_clusters() -> None:
    with Cluster(topics=["a"]) as first, Cluster(topics=["b"]) as second:
        produce(first, "a", "1")
        produce(second, "b", "2")
        assert (topic_names(first), topic_names(second)) == ({"a"}, {"b"})


def test_an_unknown_setting_is_refused_before_anything_starts() -> None:
    with pytest.raises(SettingsError, match=r"did you mean num\.partitions"):
        Cluster(config={"num.partition": 2})


@pytest.mark.parametrize("process", [False, True], ids=["thread", "process"])
def test_a_start_warns_of_settings_without_effect(process: bool) -> None:
    with Cluster(config={"ssl.protocol": "TLSv1.3", "num.partitions": 2}, process=process) as cluster:
        warnings = [entry for entry in cluster.logs if entry["event"] == "setting has no effect"]
    assert [(entry["level"], entry["setting"]) for entry in warnings] == [("warning", "ssl.protocol")]


def test_async_with_does_not_block_the_event_loop() -> None:
    async def use() -> set[str]:
        async with Cluster(topics=["a"]) as cluster:
            return await asyncio.to_thread(topic_names, cluster)

    assert asyncio.run(use()) == {"a"}


def test_a_dead_child_process_raises_an_error() -> None:
    with Cluster(topics=["orders"], process=True) as cluster:
        os.kill(cluster._host.pid, signal.SIGKILL)  # type: ignore[attr-defined]  # kill -9 from outside
        with pytest.raises(BrokerProcessError, match="the broker's process ended with exit code -9"):
            cluster.reset()
        with pytest.raises(NotRunningError):
            cluster.reset()
        cluster.start()
        assert topic_names(cluster) == {"orders"}


def test_a_child_that_does_not_reply_is_killed_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with Cluster(topics=["orders"], process=True) as cluster:
        produce(cluster, "orders", "a")
        pid = cluster._host.pid  # type: ignore[attr-defined]
        os.kill(pid, signal.SIGSTOP)
        monkeypatch.setattr("odradek.hosts.process._REPLY_TIMEOUT_S", 0.1)
        with pytest.raises(
            TimeoutError, match=rf"process {pid} did not reply to 'advance' within 0\.1 s.*Cluster\.logs"
        ):
            cluster.advance(timeouts_ms=1)
        monkeypatch.undo()
        cluster.start()
        assert read(cluster, "orders", 1) == ["a"]


def test_a_child_that_does_not_stop_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    with Cluster(process=True) as cluster:
        pid = cluster._host.pid  # type: ignore[attr-defined]
        os.kill(pid, signal.SIGSTOP)
        monkeypatch.setattr("odradek.hosts.process._STOP_TIMEOUT_S", 1)
        with pytest.raises(TimeoutError, match="did not reply to 'stop' within 1 s"):
            cluster.stop()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_stopped_broker_does_not_respond() -> None:
    with Cluster(topics=["a"]) as cluster:
        cluster.stop()
        with pytest.raises(KafkaException):
            AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=0.5)


def test_a_first_start_that_fails_leaves_nothing_running() -> None:
    cluster = Cluster(topics={"not a name": 1})
    with pytest.raises(KafkaError):
        cluster.start()
    with pytest.raises(NotRunningError):
        cluster.reset()


def test_a_failed_start_can_be_repeated() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        cluster = Cluster(topics=["orders"], port=taken.getsockname()[1])
        with pytest.raises(OSError, match="in use"):
            cluster.start()
    with cluster:
        assert topic_names(cluster) == {"orders"}
