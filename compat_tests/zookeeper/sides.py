"""Two clusters over one ZooKeeper, three brokers of Apache Kafka 3.9 and three of ours, which get the same requests.

Starts and ends brokers and sends requests on both sides. The caller chooses the requests, and `oracle.pair` compares
the responses.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from odradek_peers import KAFKA_3_9, ApacheKafka, ZooKeeperServer

from compat_tests.oracle.pair import Pair, T, repeat_until_equal
from compat_tests.oracle.peer import Closed, Peer, topic_on
from compat_tests.oracle.schema import Body
from compat_tests.zookeeper.cluster import OdradekBroker, elect_until

BROKERS = (1, 2, 3)
CONFIG = {
    # Short enough to wait for the end of a killed broker's session, long enough for a broker on a busy machine.
    "zookeeper.session.timeout.ms": "6000",
    "controlled.shutdown.retry.backoff.ms": "500",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    # Only the tests elect leaders.
    "auto.leader.rebalance.enable": "false",
}
_WAIT_S, _EQUAL_WITHIN_S, _PAUSE_S = 60.0, 60.0, 0.05


class Side:
    """One of the two clusters."""

    def __init__(self, name: str, server: ZooKeeperServer, directory: Path) -> None:
        self.name = name
        connect = f"{server.connect_string}/{name}"
        self._brokers: dict[int, ApacheKafka | OdradekBroker] = {}
        for broker in BROKERS:
            data_directory = directory / f"{name}-{broker}"
            self._brokers[broker] = (
                ApacheKafka(
                    KAFKA_3_9, directory=data_directory, config=CONFIG, node_id=broker, heap="320M", zookeeper=connect
                )
                if name == "kafka"
                else OdradekBroker(broker, connect, data_directory, options=CONFIG)
            )  # fmt: skip
        self.running: set[int] = set()
        self._peers: dict[int, Peer] = {}
        self.zookeeper = KazooClient(connect)
        self.zookeeper.start()

    def launch(self, broker: int) -> None:
        """Start a broker, and return before it is ready."""
        member = self._brokers[broker]
        if isinstance(member, ApacheKafka):
            member.launch()
        else:
            member.start()

    def wait(self, broker: int) -> None:
        """Wait until a launched broker responds to requests."""
        member = self._brokers[broker]
        if isinstance(member, ApacheKafka):
            member.wait()
        self.running.add(broker)

    def stop(self, broker: int) -> None:
        self._leave(broker)
        self._brokers[broker].stop()

    def kill(self, broker: int) -> None:
        self._leave(broker)
        self._brokers[broker].kill()

    def close(self) -> None:
        for broker in tuple(self.running):
            self._leave(broker)
        for member in self._brokers.values():
            member.kill() if isinstance(member, ApacheKafka) else member.close()
        self.zookeeper.stop()
        self.zookeeper.close()

    def _leave(self, broker: int) -> None:
        self.running.discard(broker)
        peer = self._peers.pop(broker, None)
        if peer is not None:
            peer.close()

    def peer(self, broker: int) -> Peer:
        """Return the connection to a running broker."""
        if broker not in self._peers:
            self._peers[broker] = Peer(f"{self.name}-{broker}", self._brokers[broker].bootstrap_servers)
        return self._peers[broker]

    def ask(self, broker: int, api: str, version: int, body: Body) -> Body:
        """Send a request to this side only, without a comparison."""
        return self.peer(broker).ask(api, version, body)

    @property
    def controller(self) -> int:
        """The controller's id. Raises KeyError or NoNodeError if there is no controller."""
        return int(json.loads(self.zookeeper.get("/controller")[0])["brokerid"])

    def log_tails(self) -> str:
        """Return the last lines of each broker's log."""
        tails = {broker: self._brokers[broker].log_tail() for broker in sorted(self.running)}
        return "\n".join(f"{self.name} {broker}:\n{tail}" for broker, tail in tails.items())

    def partitions(self, topic: str, broker: int | None = None) -> list[Body]:
        """Return a topic's partitions from Metadata of a broker (by default the first that runs), empty if there is no
        such topic."""
        asked: Body = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
        response = self.ask(broker or min(self.running), "Metadata", 8, asked)
        return sorted(response["topics"][0]["partitions"], key=lambda each: int(each["partition_index"]))

    def leader(self, topic: str, partition: int) -> int:
        return int(self.partitions(topic)[partition]["leader_id"])

    def znodes(self) -> dict[str, Any]:
        """Return all znodes by path, each as JSON or, if it is not JSON, as text."""
        found: dict[str, Any] = {}

        def visit(path: str) -> None:
            try:
                data, stat = self.zookeeper.get(path or "/")
                children = self.zookeeper.get_children(path or "/")
            except NoNodeError:
                return
            found[path] = _read(data or b"") | {"ephemeral": stat.ephemeralOwner != 0}
            for child in children:
                visit(f"{path}/{child}")

        visit("")
        return found


def _read(data: bytes) -> dict[str, Any]:
    try:
        return {"json": json.loads(data)}
    except ValueError:
        return {"text": data.decode()}


class Sides:
    """Both clusters. Broker 1 is the controller of each, unless a test stops it."""

    def __init__(self, server: ZooKeeperServer, directory: Path) -> None:
        self.kafka, self.ours = (Side(name, server, directory) for name in ("kafka", "ours"))
        self.both = (self.kafka, self.ours)

    def close(self) -> None:
        for side in self.both:
            side.close()

    def start(self, *brokers: int) -> None:
        """Start brokers and wait until every broker knows them; their replicas may not be in sync yet."""
        for broker in brokers:
            for side in self.both:
                side.launch(broker)
        for broker in brokers:
            for side in self.both:
                side.wait(broker)
        self.until(lambda side: all(_brokers(side, broker) == side.running for broker in side.running))

    def stop(self, broker: int) -> None:
        """Stop a broker with a controlled shutdown, and wait until the others report it as gone."""
        for side in self.both:
            side.stop(broker)
        self._until_all_know_the_brokers()

    def kill(self, broker: int) -> None:
        """Kill a broker, and wait until the others report it as gone, which takes the session timeout."""
        for side in self.both:
            side.kill(broker)
        self._until_all_know_the_brokers()

    def _until_all_know_the_brokers(self) -> None:
        self.until(lambda side: all(_brokers(side, broker) == side.running for broker in side.running))

    def until(self, condition: Callable[[Side], object], context: object = "") -> None:
        deadline = time.monotonic() + _WAIT_S
        for side in self.both:
            while not _is_true(condition, side):
                assert time.monotonic() < deadline, f"not true for {side.name} after {_WAIT_S:g} s: {context}"
                time.sleep(_PAUSE_S)

    def until_in_sync(self, *topics: str) -> None:
        def in_sync(side: Side) -> bool:
            return all(
                sorted(each["isr_nodes"]) == sorted(each["replica_nodes"]) and each["leader_id"] >= 0
                for topic in topics
                for broker in side.running
                for each in side.partitions(topic, broker)
            )

        self.until(in_sync, f"{topics} in sync")

    def until_leaders(self, topic: str, *leaders: int) -> None:
        """Wait until every broker reports these leaders."""

        def led(side: Side) -> bool:
            return all(
                [each["leader_id"] for each in side.partitions(topic, broker)] == [*leaders] for broker in side.running
            )

        self.until(led, f"{topic} led by {leaders}")

    def make_controller(self, broker: int) -> None:
        for side in self.both:
            elect_until(side.zookeeper, broker)
        self.until(lambda side: all(_controller(side, each) == broker for each in side.running))

    def create(self, name: str, *replicas: list[int], configs: Mapping[str, str] | None = None) -> str:
        """Create a topic with these replicas and wait until they are in sync."""
        topic = topic_on(name, replicas, {"retention.ms": "-1", **(configs or {})})
        for side in self.both:
            response = side.ask(side.controller, "CreateTopics", 7, {"topics": [topic], "timeout_ms": 30_000})
            assert response["topics"][0]["error_code"] == 0, response
        self.until(lambda side: all(len(side.partitions(name, each)) == len(replicas) for each in side.running), name)
        self.until_in_sync(name)
        return name

    def delete(self, *topics: str) -> None:
        """Delete topics and wait until the deletion is complete."""
        for side in self.both:
            side.ask(side.controller, "DeleteTopics", 5, {"topic_names": [*topics], "timeout_ms": 30_000})
        self.until(lambda side: not any(side.partitions(name, each) for name in topics for each in side.running))
        self.until(lambda side: not side.zookeeper.get_children("/admin/delete_topics"))

    # -- requests -----------------------------------------------------------------------------------------------------

    def ask(
        self,
        broker: int,
        api: str,
        version: int,
        body: Body,
        select: Callable[[Body], object] = lambda response: response,
    ) -> Body:
        """Send a request once to the same broker on each side, and compare the responses."""
        return Pair(self.kafka.peer(broker), self.ours.peer(broker)).ask(api, version, body, select)

    def ask_until_equal(
        self,
        broker: int,
        api: str,
        version: int,
        body: Body,
        select: Callable[[Body], object] = lambda response: response,
    ) -> Body:
        """Repeat a request that changes nothing until the responses are equal."""
        return self.repeat_until_equal(lambda: self.ask(broker, api, version, body, select))

    def repeat_until_equal(self, ask: Callable[[], T]) -> T:
        """As `pair.repeat_until_equal`, with the last log lines of all brokers if a difference remains."""
        try:
            return repeat_until_equal(ask, _EQUAL_WITHIN_S)
        except AssertionError as difference:
            difference.add_note("\n".join(side.log_tails() for side in self.both))
            raise


def _is_true(condition: Callable[[Side], object], side: Side) -> bool:
    """Return the condition's result, or False while a broker ends or there is no controller."""
    try:
        return bool(condition(side))
    except (Closed, OSError, NoNodeError, KeyError, IndexError):
        return False


def _brokers(side: Side, broker: int) -> set[int]:
    return {each["node_id"] for each in side.ask(broker, "Metadata", 8, {"topics": []})["brokers"]}


def _controller(side: Side, broker: int) -> int:
    return int(side.ask(broker, "Metadata", 8, {"topics": []})["controller_id"])
