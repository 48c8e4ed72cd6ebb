"""The system under test: ZooKeeper and three brokers, each on its own host, and clients on another.

Owns their start and end, and the faults. Each fault is a context manager that heals the fault at its exit.
"""

from __future__ import annotations

import contextlib
import itertools
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from confluent_kafka import Consumer, IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec
from odradek_peers import ZooKeeperServer
from odradek_peers.processes import killed_with_parent

from compat_tests.isolation import values as read_values
from compat_tests.netns.checks import last_owners
from compat_tests.netns.deposed_leaders import State, deposed, states
from compat_tests.netns.history import OFFSETS, Histories, Kind, Operation, Recorder, target_of
from compat_tests.netns.hosts import Hosts
from compat_tests.netns.job import HUNG_EXIT_CODE
from compat_tests.netns.wire import NO_FAULTS, LinkFaults
from compat_tests.zookeeper.cluster import WAIT_S, OdradekBroker, ZooKeeperCluster
from odradek.client.client import Client
from odradek.exceptions import ClientError

BROKERS = (1, 2, 3)
SESSION_TIMEOUT_S = 3.0
REPLICA_LAG_TIME_MAX_S = 3.0
OFFSETS_PARTITIONS = 4
TRANSACTIONS_PARTITIONS = 4
ZOOKEEPER, CLIENTS = "zookeeper", "clients"
CUT = LinkFaults(cut=True)
_TRACEBACK = "Traceback (most recent call last)"
_ROOT = Path(__file__).parents[2]
_CONFIG = {
    "zookeeper.session.timeout.ms": str(int(SESSION_TIMEOUT_S * 1000)),
    "replica.lag.time.max.ms": str(int(REPLICA_LAG_TIME_MAX_S * 1000)),
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "transaction.state.log.num.partitions": str(TRANSACTIONS_PARTITIONS),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
}


def host(broker: int) -> str:
    return f"broker-{broker}"


class System:
    """A context manager: the servers run inside it, and the calling thread is on the clients' host."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._directory = directory
        self.hosts = Hosts([*(host(broker) for broker in BROKERS), ZOOKEEPER, CLIENTS], seed=seed)
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> System:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.hosts)
            stack.enter_context(self.hosts.on(CLIENTS))
            self.zookeeper = stack.enter_context(
                ZooKeeperServer(
                    directory=self._directory / "zookeeper",
                    host=self.hosts.addresses[ZOOKEEPER],
                    prefix=self.hosts.prefix(ZOOKEEPER),
                )
            )
            self.cluster = ZooKeeperCluster(self.zookeeper, "/netns", self._directory)
            stack.callback(self.cluster.close)
            for broker in BROKERS:
                self.cluster.brokers[broker] = broker_process = OdradekBroker(
                    broker,
                    self.cluster.zookeeper,
                    self._directory / str(broker),
                    host=self.hosts.addresses[host(broker)],
                    prefix=self.hosts.prefix(host(broker)),
                    options=_CONFIG,
                )
                broker_process.start()
            self.cluster.until(lambda: len(self.cluster.admin().list_topics(timeout=WAIT_S).brokers) == len(BROKERS))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *why: object) -> None:
        self._stack.close()

    def broker_process(self, broker: int) -> OdradekBroker:
        process = self.cluster.brokers[broker]
        assert isinstance(process, OdradekBroker)
        return process

    # -- faults -------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def killed(self, broker: int) -> Iterator[None]:
        """Kill the broker with SIGKILL, and start it again at the exit."""
        self.broker_process(broker).kill()
        try:
            yield
        finally:
            self.broker_process(broker).start()

    @contextlib.contextmanager
    def stopped(self, broker: int) -> Iterator[None]:
        """Stop the process with SIGSTOP, and continue it with SIGCONT at the exit."""
        self.broker_process(broker).pause()
        try:
            yield
        finally:
            self.broker_process(broker).resume()

    def isolated(self, broker: int) -> AbstractContextManager[None]:
        """Drop all packets between this broker and every other host."""
        return self._with_link_faults(CUT, [*self._from(broker), *self._to(broker)])

    def mute(self, broker: int) -> AbstractContextManager[None]:
        """Drop the packets that this broker sends."""
        return self._with_link_faults(CUT, self._from(broker))

    def deaf(self, broker: int) -> AbstractContextManager[None]:
        """Drop the packets that are sent to this broker."""
        return self._with_link_faults(CUT, self._to(broker))

    def without_zookeeper(self, broker: int) -> AbstractContextManager[None]:
        """Drop the packets between this broker and ZooKeeper only."""
        return self._with_link_faults(CUT, [(host(broker), ZOOKEEPER), (ZOOKEEPER, host(broker))])

    def without_brokers(self, broker: int) -> AbstractContextManager[None]:
        """Drop the packets between this broker and the other brokers only."""
        others = [host(other) for other in BROKERS if other != broker]
        return self._with_link_faults(
            CUT, [link for other in others for link in ((host(broker), other), (other, host(broker)))]
        )

    def everywhere(self, faults: LinkFaults) -> AbstractContextManager[None]:
        """Apply these faults to all links."""
        return self._with_link_faults(faults, list(itertools.permutations(self.hosts.addresses, 2)))

    def _from(self, broker: int) -> list[tuple[str, str]]:
        return [(host(broker), other) for other in self.hosts.addresses if other != host(broker)]

    def _to(self, broker: int) -> list[tuple[str, str]]:
        return [(other, host(broker)) for other in self.hosts.addresses if other != host(broker)]

    @contextlib.contextmanager
    def _with_link_faults(self, faults: LinkFaults, links: list[tuple[str, str]]) -> Iterator[None]:
        for link in links:
            self.hosts.set_link(*link, faults)
        try:
            yield
        finally:
            for link in links:
                self.hosts.set_link(*link, NO_FAULTS)

    def partition_states(self) -> list[State]:
        """Return all leaders and ISRs since the start, with times of the monotonic clock."""
        offset_s = time.time() - time.monotonic()
        return [each._replace(moment=each.moment - offset_s) for each in states(self.zookeeper.directory / "data")]

    def failures(self) -> str:
        """Return the unexpected errors in the brokers' logs."""
        logs = [(self._directory / str(broker) / "log").read_text(errors="replace") for broker in BROKERS]
        return "\n".join(log[log.index(_TRACEBACK) :][:2000] for log in logs if _TRACEBACK in log)


Fault = Callable[[System, int], AbstractContextManager[None]]
FAULTS: list[Fault] = [
    System.killed,
    System.stopped,
    System.isolated,
    System.mute,
    System.deaf,
    System.without_zookeeper,
]


class Workload:
    """Clients with topics of their own, and the history of these clients."""

    def __init__(self, system: System, directory: Path, name: str) -> None:
        self._system = system
        self.directory = directory
        self._name = name
        directory.mkdir(parents=True)
        self._histories = Histories(directory)
        self._numbers = itertools.count()
        self._nemesis = Recorder(directory / "nemesis.jsonl")
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._topics: dict[str, int] = {}
        self._transactional: set[str] = set()

    def topic(self, short: str, partitions: int, *, transactional: bool = False) -> str:
        """Create a topic with replicas on all brokers, which lead in turn. All writes to a `transactional` topic are in
        transactions."""
        return self._create(f"{self._name}-{short}", partitions, transactional)

    def target_of(self, source: str) -> str:
        """Return the target topic for copies of a topic's records."""
        return self._create(target_of(source), self._topics[source], transactional=True)

    def _create(self, topic: str, partitions: int, transactional: bool) -> str:
        self._topics[topic] = partitions
        if transactional:
            self._transactional.add(topic)
        replicas = [[BROKERS[(p + n) % len(BROKERS)] for n in range(len(BROKERS))] for p in range(partitions)]
        self._system.cluster.create(topic, replicas)
        return topic

    def start(self, kind: str, topic: str, group: str = "") -> str:
        """Start another client and return its name."""
        name = f"{kind}-{next(self._numbers)}"
        with (self.directory / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [
                    *killed_with_parent(), sys.executable, "-m", "compat_tests.netns.clients", kind, name,
                    str(self.directory / f"{name}.jsonl"), self._system.cluster.bootstrap_servers, topic,
                    str(self._topics[topic]), *([group] if group else []),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=_ROOT,
            )  # fmt: skip
        return name

    def kill(self, name: str) -> None:
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def pause(self, name: str) -> None:
        self._running[name].send_signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        self._running[name].send_signal(signal.SIGCONT)

    def stop(self, *names: str) -> None:
        """End clients with SIGTERM. They complete their pending operations and record the outcomes."""
        for name in names:
            self._running[name].terminate()
        for name in names:
            code = self._running.pop(name).wait(3 * WAIT_S)
            log = (self.directory / f"{name}.log").read_text()[-2000:]
            assert code in (0, HUNG_EXIT_CODE), f"{name} exited with code {code}: {log}"
            if code == HUNG_EXIT_CODE:
                print(f"{name} hung at its end: {log}")

    def stop_kind(self, *kinds: str) -> None:
        self.stop(*(name for name in self._running if name.rpartition("-")[0] in kinds))

    def stop_all(self) -> None:
        self.stop(*self._running)

    def close(self) -> None:
        for name in list(self._running):
            self.kill(name)

    # -- observations ------------------------------------------------------------------------------------------------

    def history(self) -> list[Operation]:
        return self._histories.read()

    @contextlib.contextmanager
    def under(self, fault: Fault, broker: int) -> Iterator[None]:
        """Apply a fault to a broker and record its time in the history."""
        with fault(self._system, broker):
            begin = time.monotonic()
            try:
                yield
            finally:
                now = time.monotonic()
                self._nemesis.write(Operation("nemesis", Kind.FAULT, begin, now, leader=broker, note=fault.__name__))

    def record_deposed_leaders(self) -> None:
        """Record and print each leader that was deposed while it was cut off, by a fault or on a busy machine. The
        checks excuse its old responses (`deposed_leaders`)."""
        history = self.history()
        begin = min(each.begin for each in history)
        deaths = [
            (each.leader, each.begin)
            for each in history
            if each.kind is Kind.FAULT and each.note == System.killed.__name__
        ]
        for broker, tp, since, until in deposed(self._system.partition_states(), deaths, time.monotonic()):
            topic, partition = tp
            if until > begin and topic in (*self._topics, OFFSETS):
                print(
                    f"excused: broker {broker}, deposed as the leader of {topic}-{partition} at {since:.3f}, "
                    f"may not have known it for {until - since:.1f} s"
                )
                self._nemesis.write(
                    Operation(
                        "nemesis", Kind.DEPOSED, since, until, topic=topic, partitions=(partition,), leader=broker
                    )
                )

    def until(self, condition: Callable[[list[Operation]], object], context: str) -> None:
        self._system.cluster.until(lambda: condition(self.history()), context)

    def coordinator(self, group: str) -> int:
        with Client(self._system.cluster.bootstrap_servers, timeout_s=WAIT_S) as client:
            return client.coordinator(group)

    def replicas_in_sync(self) -> bool:
        """Return whether all brokers report the same leaders, and every replica as in sync."""
        return len(known := {self._leaders_known_to(broker) for broker in BROKERS}) == 1 and None not in known

    def _leaders_known_to(self, broker: int) -> tuple[tuple[str, int, int], ...] | None:
        """Return each partition's leader and leader epoch as the broker reports them; None if a replica is out of
        sync."""
        try:
            with Client(self._system.broker_process(broker).bootstrap_servers, timeout_s=1) as client:
                if client.node_ids() != list(BROKERS):
                    return None
                partitions = [(topic, each) for topic in self._topics for each in client.topic(topic).partitions]
        except ClientError:
            return None
        if any(sorted(each.isr_nodes) != list(BROKERS) for _, each in partitions):
            return None
        return tuple((topic, each.leader_id, each.leader_epoch) for topic, each in partitions)

    def assignment_is_complete(self, topic: str, group: str, members: set[str]) -> bool:
        """Return whether the newest generation consists of these members, each has a partition, and no partition is
        unassigned."""
        owners = last_owners(self.history(), group)
        owned = sorted(itertools.chain(*owners.values()))
        return set(owners) == members and all(owners.values()) and owned == list(range(self._topics[topic]))

    def compare_replicas(self) -> None:
        """Assert that the replicas are equal, byte by byte."""
        verify = [str(Path(sys.executable).with_name("odradek")), "verify", *self._topics]
        verify += ["--bootstrap", self._system.cluster.bootstrap_servers]
        done = subprocess.run(verify, capture_output=True, text=True, timeout=WAIT_S)
        assert done.returncode == 0, done.stdout + done.stderr

    def read_final_logs(self) -> None:
        """Record the final logs of the topics without transactions, which a new consumer reads."""
        for topic in self._topics.keys() - self._transactional:
            partitions = self._topics[topic]
            consumer = Consumer(
                {
                    "bootstrap.servers": self._system.cluster.bootstrap_servers,
                    "group.id": "final",
                    "enable.auto.commit": False,
                }
            )
            topic_partitions = [TopicPartition(topic, partition) for partition in range(partitions)]
            ends = {each.partition: consumer.get_watermark_offsets(each, WAIT_S)[1] for each in topic_partitions}
            consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
            unread = {partition for partition, end in ends.items() if end}
            give_up = time.monotonic() + WAIT_S
            while unread:
                messages = consumer.consume(1000, 0.1)
                begin = time.monotonic()
                assert begin < give_up, f"partitions {unread} of {topic} have fewer records than their end offsets"
                for message in messages:
                    assert message.error() is None
                    partition, offset, value = message.partition(), message.offset(), message.value()
                    assert partition is not None
                    assert offset is not None
                    assert value is not None
                    self._nemesis.write(
                        Operation(
                            "final", Kind.FINAL, begin, begin, topic=topic, partition=partition, offset=offset,
                            values=(bytes(value).decode(),),
                        )
                    )  # fmt: skip
                    if offset + 1 >= ends[partition]:
                        unread.discard(partition)
            consumer.close()

    def read_committed_logs(self) -> None:
        """Record the committed records of the transactional topics, as soon as no transaction is open."""
        for topic in self._transactional:
            self._system.cluster.until(lambda topic=topic: self._is_stable(topic), f"transactions of {topic} are open")  # type: ignore[misc]
            for partition in range(self._topics[topic]):
                values = read_values(self._system.cluster.bootstrap_servers, topic, "read_committed", partition)
                now = time.monotonic()
                self._nemesis.write(
                    Operation(
                        "final", Kind.COMMITTED_LOG, now, now, topic=topic, partition=partition,
                        values=tuple(value.decode() for value in values),
                    )
                )  # fmt: skip

    def _is_stable(self, topic: str) -> bool:
        """Return whether every last stable offset has reached the high watermark."""
        admin = self._system.cluster.admin()
        topic_partitions = {TopicPartition(topic, each): OffsetSpec.latest() for each in range(self._topics[topic])}
        ends = [
            [
                future.result(WAIT_S).offset
                for future in admin.list_offsets(topic_partitions, isolation_level=level).values()
            ]
            for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        ]
        return ends[0] == ends[1]
