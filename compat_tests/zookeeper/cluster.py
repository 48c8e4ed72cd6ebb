"""A cluster over a real ZooKeeper, whose brokers are processes of `odradek up --zookeeper` and of Apache Kafka 3.9."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from odradek_peers import KAFKA_3_9, ApacheKafka, ZooKeeperServer
from odradek_peers.processes import LOOPBACK, free_ports

from compat_tests.odradek_up import up
from compat_tests.zookeeper.tap import Tap

WAIT_S = 60.0
SESSION_MS = 4_000
_BATCH = 500
CONFIG = {"zookeeper.session.timeout.ms": str(SESSION_MS), "offsets.topic.num.partitions": "4"}


class OdradekBroker:
    """`odradek up --zookeeper` in its own process; `prefix` begins its command."""

    def __init__(
        self,
        broker: int,
        zookeeper: str,
        directory: Path,
        *,
        host: str = LOOPBACK,
        prefix: tuple[str, ...] = (),
        options: Mapping[str, str] = CONFIG,
        port: int = 0,
    ) -> None:
        self._broker = broker
        self._zookeeper = zookeeper
        self._directory = directory
        self._host = host
        self._prefix = prefix
        self._options = options
        self._process: subprocess.Popen[str] | None = None
        self._port = port

    @property
    def bootstrap_servers(self) -> str:
        return f"{self._host}:{self._port}"

    def start(self) -> None:
        self._directory.mkdir(exist_ok=True)
        arguments = [f"--zookeeper={self._zookeeper}", f"--broker-id={self._broker}", f"--host={self._host}"]
        if "listeners" not in self._options:
            arguments.append(f"--port={self._port}")
        if "log.dirs" not in self._options:
            arguments.append(f"--data={self._directory / 'data'}")
        self._process, address = up(self._directory / "log", arguments, self._options, prefix=self._prefix)
        self._port = int(address.rpartition(":")[2])

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        assert self._process.wait(WAIT_S) == 0, self.log_tail()

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def log_tail(self, lines: int = 40) -> str:
        return "\n".join((self._directory / "log").read_text().splitlines()[-lines:])

    def pause(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()


class ZooKeeperCluster:
    """Starts, replaces and ends brokers of either kind, and sends the requests of an operator and of clients."""

    def __init__(self, server: ZooKeeperServer, chroot: str, directory: Path, *, session_ms: int = SESSION_MS) -> None:
        """`session_ms`: short if a test waits for a session to expire, long if no session may expire by itself."""
        self.zookeeper = server.connect_string + chroot
        self._session = {"zookeeper.session.timeout.ms": str(session_ms)}
        self.directory = directory
        self.brokers: dict[int, OdradekBroker | ApacheKafka] = {}
        self._ports: dict[int, int] = {}
        """The ports of brokers that replace another one or have more than one listener."""
        self._taps: list[Tap] = []
        self._produced: dict[str, set[bytes]] = {}

    def control_plane(self, broker: int) -> tuple[Tap, dict[str, str]]:
        """Return a tap on the control-plane listener of a broker, and the settings of the broker's listeners."""
        port, control_port = free_ports(2)
        self._ports[broker] = port
        tap = Tap(control_port)
        self._taps.append(tap)
        return tap, {
            "listeners": f"PLAINTEXT://{LOOPBACK}:{port},CONTROL://{LOOPBACK}:{control_port}",
            "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port},CONTROL://{LOOPBACK}:{tap.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROL:PLAINTEXT",
            "control.plane.listener.name": "CONTROL",
        }

    def odradek(self, broker: int, **config: str) -> None:
        """Start another Odradek broker; the names of settings have underscores for dots."""
        options = {**CONFIG, **self._session, **_dotted(config)}
        self.brokers[broker] = OdradekBroker(
            broker, self.zookeeper, self.directory / str(broker), options=options, port=self._ports.get(broker, 0)
        )
        self.brokers[broker].start()

    def kafka(self, *brokers: int, **options: str) -> None:
        """Start Kafka's brokers together; the names of settings have underscores for dots."""
        config = {
            **self._session,
            "offsets.topic.replication.factor": "3",
            "offsets.topic.num.partitions": "4",
            **_dotted(options),
        }
        started = []
        for broker in brokers:
            earlier_port = self._ports.get(broker)
            self.brokers[broker] = kafka = ApacheKafka(
                KAFKA_3_9,
                directory=self.directory / str(broker),
                config=config,
                node_id=broker,
                heap="320M",
                zookeeper=self.zookeeper,
            )
            kafka.port = kafka.port if earlier_port is None else earlier_port
            kafka.launch()
            started.append(kafka)
        for kafka in started:
            kafka.wait(brokers=len(self.brokers))

    def replace(self, broker: int) -> None:
        """Stop a broker with a controlled shutdown, and start one of the other kind with its directory and address."""
        before = self.brokers[broker]
        before.stop()
        self._ports[broker] = int(before.bootstrap_servers.rpartition(":")[2])
        if isinstance(before, ApacheKafka):
            self.odradek(broker)
        else:
            self.kafka(broker)

    def kill(self) -> None:
        """Kill all brokers together with SIGKILL."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda broker: broker.kill(), self.brokers.values()))
        for broker, process in self.brokers.items():
            self._ports[broker] = int(process.bootstrap_servers.rpartition(":")[2])

    def take_over(self) -> None:
        """After `kill`, start brokers of the other kind with the same directories and addresses, as soon as the old
        sessions have expired. Kafka's brokers do not wait for that themselves."""
        kazoo = KazooClient(self.zookeeper)
        kazoo.start()
        try:
            self.until(lambda: not kazoo.get_children("/brokers/ids") and kazoo.exists("/controller") is None)
        finally:
            kazoo.stop()
            kazoo.close()
        before, self.brokers = self.brokers, {}
        if all(isinstance(broker, OdradekBroker) for broker in before.values()):
            self.kafka(*before)
        else:
            for broker in before:
                self.odradek(broker)

    def remove(self, broker: int) -> None:
        """Stop a broker with a controlled shutdown, for good."""
        self.brokers.pop(broker).stop()

    def close(self) -> None:
        """Kill all brokers: the last of Kafka's brokers would wait for another broker to take over its partitions."""
        for broker in self.brokers.values():
            if isinstance(broker, ApacheKafka):
                broker.kill()
            else:
                broker.close()
        for tap in self._taps:
            tap.close()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    # -- as an operator -----------------------------------------------------------------------------------------------

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})

    def create(self, topic: str, assignment: list[list[int]], **config: str) -> None:
        new = NewTopic(
            topic,
            num_partitions=len(assignment),
            replica_assignment=assignment,
            config={"min.insync.replicas": "2", **_dotted(config)},
        )
        admin = self.admin()
        admin.create_topics([new], operation_timeout=WAIT_S)[topic].result(WAIT_S)
        brokers = {broker for replicas in assignment for broker in replicas}
        self.until(lambda: self.in_sync(topic) == [set(replicas) for replicas in assignment], brokers)

    def delete(self, topic: str) -> None:
        admin = self.admin()
        admin.delete_topics([topic], operation_timeout=WAIT_S)[topic].result(WAIT_S)
        self.until(lambda: topic not in admin.list_topics(timeout=WAIT_S).topics)

    def controller(self) -> int:
        return int(self.admin().list_topics(timeout=WAIT_S).controller_id)

    def make_controller(self, broker: int) -> None:
        kazoo = KazooClient(self.zookeeper)
        kazoo.start()
        try:
            elect_until(kazoo, broker)
        finally:
            kazoo.stop()
            kazoo.close()
        self.until(lambda: self.controller() == broker)

    def in_sync(self, topic: str) -> list[set[int]]:
        found = self.admin().list_topics(topic, timeout=WAIT_S).topics[topic].partitions
        return [set(found[index].isrs) for index in sorted(found)]

    def leaders(self, topic: str) -> list[int]:
        found = self.admin().list_topics(topic, timeout=WAIT_S).topics[topic].partitions
        return [found[index].leader for index in sorted(found)]

    def run(self, *arguments: str) -> str:
        """Return the output of the `odradek` command."""
        command = [sys.executable, "-c", "from odradek.cli import main; main()", *arguments]
        done = subprocess.run(
            [*command, "-b", self.bootstrap_servers],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=2 * WAIT_S,
            check=False,
        )
        assert done.returncode == 0, (arguments, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout

    def until_in_sync(self, *topics: str) -> None:
        """Wait until all replicas of these topics, which every broker has, are in sync."""

        def isrs() -> list[set[int]]:
            return [each for topic in topics for each in self.in_sync(topic)]

        self.until(lambda: all(isr == set(self.brokers) for isr in isrs()), isrs)

    def assert_replicas_agree(self, *topics: str) -> None:
        """Assert that the replicas are equal, that there are no other topics, and that no log became a stray."""
        rows = json.loads(self.run("verify", "--internal", "--json"))
        assert {row["topic"] for row in rows} == set(topics)
        assert {row["result"] for row in rows} == {"same"}
        assert [row for row in rows if row["end"] == 0 and not row["topic"].startswith("__")] == []
        assert list(self.directory.glob("*/data/*-stray")) == []

    def until(self, condition: Callable[[], object], context: object = "") -> None:
        """Wait for a condition; a KafkaException counts as false. The failure shows `context`, or its result if it is
        a function."""
        end = time.monotonic() + WAIT_S
        while True:
            try:
                if condition():
                    return
            except KafkaException:
                if time.monotonic() >= end:
                    raise
            shown = context() if callable(context) and time.monotonic() >= end else context
            assert time.monotonic() < end, f"condition is not true after {WAIT_S:g} s: {shown}"
            time.sleep(0.1)

    # -- as clients ---------------------------------------------------------------------------------------------------

    def produce(self, topic: str, values: Iterable[bytes]) -> None:
        """Write values with an idempotent producer and acks=all, and assert that all are acknowledged.

        Only one batch per partition is in flight. Otherwise librdkafka may send the next batch to the new leader while
        one is still on its way to the former leader. The new leader, Kafka's too, accepts any first sequence of a
        producer that it does not know, and librdkafka then considers the earlier batch written.
        """
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 1000,  # or when it is flushed
                "message.timeout.ms": int(WAIT_S * 1000),
                "log_level": 0,
            }
        )
        refused = []

        def delivered(error: object, message: Message) -> None:
            if error is None:
                self._produced.setdefault(topic, set()).add(bytes(message.value() or b""))
            else:
                refused.append(error)

        unsent = iter(values)
        while batch := list(islice(unsent, _BATCH)):
            for value in batch:
                producer.produce(topic, value, on_delivery=delivered)
            assert producer.flush(WAIT_S) == 0
        assert not refused, refused[:3]

    def assert_all_stored_once(self, topic: str) -> None:
        """Assert that every acknowledged record is stored exactly once."""
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap_servers, "group.id": "reader", "enable.auto.commit": False}
        )
        count = len(self.leaders(topic))
        ends = {
            index: consumer.get_watermark_offsets(TopicPartition(topic, index), WAIT_S)[1] for index in range(count)
        }
        consumer.assign([TopicPartition(topic, index, 0) for index in range(count)])
        found: list[bytes] = []
        while len(found) < sum(ends.values()):
            message = consumer.poll(WAIT_S)
            assert message is not None
            assert message.error() is None
            found.append(bytes(message.value() or b""))
        consumer.close()
        assert sorted(found) == sorted(self._produced[topic])

    def read_as_group(self, topic: str, group: str, count: int) -> int:
        """Read `count` records, commit, and return how many were read."""
        settings = {
            "bootstrap.servers": self.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        consumer = Consumer(settings)
        consumer.subscribe([topic])
        read = 0
        while read < count:
            message = consumer.poll(WAIT_S)
            assert message is not None
            read += message.error() is None
        consumer.commit(asynchronous=False)
        consumer.close()
        return read


def elect_until(kazoo: KazooClient, controller: int) -> None:
    """Repeat the controller election until this broker wins it."""
    deadline = time.monotonic() + WAIT_S
    while True:
        with suppress(NoNodeError):  # there is no controller at this moment
            if json.loads(kazoo.get("/controller")[0])["brokerid"] == controller:
                return
            kazoo.delete("/controller")
        assert time.monotonic() < deadline, f"broker {controller} is not the controller after {WAIT_S:g} s"
        time.sleep(0.3)


def _dotted(config: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in config.items()}
