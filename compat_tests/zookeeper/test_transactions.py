"""Transactions in a cluster of Kafka's brokers and ours over ZooKeeper: consumers read committed records once and no
aborted ones, with any broker as coordinator, leader or controller, and with a failover after any step."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

import pytest
from odradek_peers import ZooKeeperServer

from compat_tests.clients.transformers import ConfluentTransformer
from compat_tests.isolation import values
from compat_tests.zookeeper.cluster import OdradekBroker, ZooKeeperCluster
from compat_tests.zookeeper.transactions import Transactions, coordinator, elect_preferred, name_coordinated_by

pytestmark = pytest.mark.peers

OURS, WITNESS, KAFKA = 1, 2, 3
"""OURS and KAFKA take turns as coordinator and leader; the witness, an Odradek broker, leads only partitions of its
own."""
BOTH = (OURS, KAFKA)
STATE, OFFSETS = "__transaction_state", "__consumer_offsets"
ABORTABLE = 120
FENCED = {47, 90}
STEPS = ("begun", "added", "produced", "consumed", "ended")
GROUP = 0
_SESSION_MS = 8_000
_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperCluster]:
    """The cluster. Each test leaves all brokers running and the preferred replicas as leaders."""
    with ZooKeeperServer() as server:
        cluster = ZooKeeperCluster(server, "/transactions", tmp_path_factory.mktemp("brokers"), session_ms=_SESSION_MS)
        try:
            config = {
                "group_initial_rebalance_delay_ms": "0",
                "transaction_state_log_num_partitions": "2",
                "offsets_topic_num_partitions": "2",
            }
            cluster.kafka(KAFKA, **config)
            for broker in (OURS, WITNESS):
                cluster.odradek(broker, **config)
            cluster.until(lambda: len(cluster.admin().list_topics(timeout=10).brokers) == 3)
            for topic in (STATE, OFFSETS):
                cluster.create(topic, [[OURS, KAFKA], [KAFKA, OURS]], min_insync_replicas="1", cleanup_policy="compact")
            yield cluster
        finally:
            cluster.close()


def topic_of(cluster: ZooKeeperCluster, *assignment: list[int]) -> str:
    topic = f"topic-{next(_numbers)}"
    cluster.create(topic, [*assignment], min_insync_replicas="1")
    return topic


def committed(cluster: ZooKeeperCluster, topic: str) -> Counter[bytes]:
    servers = cluster.bootstrap_servers
    partitions = range(len(cluster.leaders(topic)))
    return Counter(value for each in partitions for value in values(servers, topic, "read_committed", each))


class Walk:
    """A transaction that pauses after the step `stop`, and later continues with the remaining steps."""

    def __init__(self, cluster: ZooKeeperCluster, topic: str, broker: int, stop: str, *, commit: bool) -> None:
        name = name_coordinated_by(cluster, f"{topic}-{stop}-{commit}", broker)
        self.transactions = Transactions(cluster, name)
        self.commit = commit
        self.stop = stop
        self.value = name.encode()
        self._topic = topic
        self._left = iter(STEPS)

    def until_stopped(self) -> None:
        """Take all steps up to and including `stop`."""
        for step in self._left:
            self._take(step)
            if step == self.stop:
                return

    def resume(self) -> None:
        for step in self._left:
            self._take(step)

    def restart(self) -> None:
        self._left = iter(STEPS)
        self.resume()

    def is_complete(self) -> bool:
        return self.transactions.state() == ("CompleteCommit" if self.commit else "CompleteAbort")

    def _take(self, step: str) -> None:
        transactions = self.transactions
        match step:
            case "begun":
                transactions.init()
            case "added":
                transactions.add(self._topic, 0, 1, 2)
            case "produced":
                assert [transactions.produce(self._topic, each, self.value) for each in range(3)] == [0, 0, 0]
            case "consumed":
                transactions.send_offset(self._topic, 0, 1 + transactions.identity.epoch)
            case "ended":
                assert transactions.end(commit=self.commit) == 0


@pytest.mark.parametrize("controller", BOTH)
@pytest.mark.parametrize("victim", BOTH)
def test_a_coordinator_of_the_other_kind_completes_a_transaction(
    cluster: ZooKeeperCluster, victim: int, controller: int
) -> None:
    """The test pauses the witness, which leads one of the partitions, so that the coordinator cannot complete the
    markers between its response to EndTxn and its death."""
    cluster.make_controller(controller)
    topic = topic_of(cluster, [OURS, KAFKA], [KAFKA, OURS], [WITNESS, OURS])
    walks = [Walk(cluster, topic, victim, stop, commit=commit) for stop in STEPS for commit in (True, False)]
    ended = [walk for walk in walks if walk.stop == "ended"]
    for walk in walks:
        if walk not in ended:
            walk.until_stopped()
    for walk in ended:
        walk.stop = "consumed"
        walk.until_stopped()
    witness = cluster.brokers[WITNESS]
    assert isinstance(witness, OdradekBroker)
    witness.pause()
    try:
        for walk in ended:
            walk.resume()
            assert walk.transactions.state() == ("PrepareCommit" if walk.commit else "PrepareAbort")
        cluster.brokers[victim].kill()
    finally:
        witness.resume()
    successor = KAFKA if victim == OURS else OURS
    cluster.until(
        lambda: coordinator(cluster, walks[0].transactions.name) == successor, "the other broker is not the coordinator"
    )
    for walk in walks:
        walk.resume()
    expected = Counter({walk.value: 3 for walk in walks if walk.commit})
    _assert_outcomes(cluster, topic, walks, expected)
    before = {walk.value: walk.transactions.identity for walk in walks}

    cluster.brokers[victim].start()
    _restore_leaders(cluster, victim, topic, walks[0].transactions.name)
    for walk in walks:
        old = Transactions(cluster, walk.transactions.name)
        old.identity = before[walk.value]
        walk.transactions.init()
        assert walk.transactions.identity.producer_id == old.identity.producer_id
        assert walk.transactions.identity.epoch > old.identity.epoch
        assert old.end(commit=True) in FENCED
        walk.restart()
    _assert_outcomes(cluster, topic, walks, expected + expected)


def _assert_outcomes(cluster: ZooKeeperCluster, topic: str, walks: list[Walk], expected: Counter[bytes]) -> None:
    cluster.until(lambda: all(walk.is_complete() for walk in walks), lambda: [w.transactions.state() for w in walks])
    assert committed(cluster, topic) == expected
    for walk in walks:
        offset = 1 + walk.transactions.identity.epoch if walk.commit else -1
        assert walk.transactions.committed_offset(topic, 0) == offset, walk.value


def _restore_leaders(cluster: ZooKeeperCluster, broker: int, topic: str, transactional_id: str) -> None:
    """Wait until the broker's replicas are in sync, and elect the preferred leaders."""
    for each in (topic, STATE, OFFSETS):
        cluster.until(lambda each=each: set(BOTH) <= set.union(*cluster.in_sync(each)), each)  # type: ignore[misc]
        cluster.until(lambda each=each: cluster.in_sync(each)[:2] == [set(BOTH)] * 2, each)  # type: ignore[misc]

    def restored() -> bool:
        led = all(cluster.leaders(each)[:2] == [*BOTH] for each in (topic, STATE, OFFSETS))
        return led and coordinator(cluster, transactional_id) == broker

    elect_preferred(cluster, restored)


@pytest.mark.parametrize("controller", BOTH)
@pytest.mark.parametrize("group_coordinator", BOTH)
@pytest.mark.parametrize("transaction_coordinator", BOTH)
def test_records_are_transformed_exactly_once(
    cluster: ZooKeeperCluster, transaction_coordinator: int, group_coordinator: int, controller: int
) -> None:
    """Each kind of broker leads a partition of the target; the group's coordinator leads the source."""
    cluster.make_controller(controller)
    other = KAFKA if group_coordinator == OURS else OURS
    source, target = topic_of(cluster, [group_coordinator, other]), topic_of(cluster, [1, 3], [3, 1])
    read = [b"%s-%d" % (source.encode(), number) for number in range(60)]
    cluster.produce(source, read)
    transformer, position = ConfluentTransformer(), 0
    group = name_coordinated_by(cluster, f"group-{source}", group_coordinator, GROUP)
    name = name_coordinated_by(cluster, f"id-{source}", transaction_coordinator)
    for commit in (False, True, False, True):
        found = transformer.transform(
            cluster.bootstrap_servers, source, target, group=group, transactional_id=name, count=30, commit=commit
        )
        assert found == read[position : position + 30]
        position += 30 * commit
    assert Transactions(cluster, name, group).committed_offset(source, 0) == 60
    assert committed(cluster, target) == Counter(value.upper() for value in read)


@pytest.mark.parametrize("transaction_coordinator", BOTH)
def test_leaders_verify_with_a_coordinator_of_the_other_kind(
    cluster: ZooKeeperCluster, transaction_coordinator: int
) -> None:
    topic = topic_of(cluster, [OURS, KAFKA], [KAFKA, OURS])
    name = name_coordinated_by(cluster, f"id-{topic}", transaction_coordinator)
    transactions = Transactions(cluster, name)
    transactions.init()
    assert [transactions.produce(topic, each, b"early") for each in (0, 1)] == [ABORTABLE, ABORTABLE]
    transactions.add(topic, 0, 1)
    assert [transactions.produce(topic, each, b"added") for each in (0, 1)] == [0, 0]
    assert transactions.end(commit=True) == 0
    cluster.until(lambda: transactions.state() == "CompleteCommit")
    assert [transactions.produce(topic, each, b"late") for each in (0, 1)] == [ABORTABLE, ABORTABLE]
    assert committed(cluster, topic) == Counter({b"added": 2})
