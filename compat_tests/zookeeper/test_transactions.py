"""Transactions in a cluster of Kafka's brokers and ours over ZooKeeper: committed records are there once and aborted
ones are not, with any broker as coordinator, leader or controller, and with a failover after any step."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

import pytest
from odradek_peers import ZooKeeperServer

from compat_tests.clients.transformers import ConfluentTransformer
from compat_tests.isolation import values
from compat_tests.zookeeper.members import Members, OdradekMember
from compat_tests.zookeeper.transactions import Transactions, coordinator, elect_preferred, named_for

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
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    """The cluster. Each test leaves all brokers running and the preferred replicas as leaders."""
    with ZooKeeperServer() as server:
        found = Members(server, "/transactions", tmp_path_factory.mktemp("members"), session_ms=_SESSION_MS)
        try:
            config = {
                "group_initial_rebalance_delay_ms": "0",
                "transaction_state_log_num_partitions": "2",
                "offsets_topic_num_partitions": "2",
            }
            found.kafka(KAFKA, **config)
            for broker in (OURS, WITNESS):
                found.odradek(broker, **config)
            found.until(lambda: len(found.admin().list_topics(timeout=10).brokers) == 3)
            for topic in (STATE, OFFSETS):
                found.create(topic, [[OURS, KAFKA], [KAFKA, OURS]], min_insync_replicas="1", cleanup_policy="compact")
            yield found
        finally:
            found.close()


def topic_of(members: Members, *assignment: list[int]) -> str:
    topic = f"topic-{next(_numbers)}"
    members.create(topic, [*assignment], min_insync_replicas="1")
    return topic


def committed(members: Members, topic: str) -> Counter[bytes]:
    servers = members.bootstrap_servers
    partitions = range(len(members.leaders(topic)))
    return Counter(value for each in partitions for value in values(servers, topic, "read_committed", each))


class Walk:
    """A transaction that stops after a step, and later continues with the remaining steps."""

    def __init__(self, members: Members, topic: str, broker: int, stop: str, *, commit: bool) -> None:
        name = named_for(members, f"{topic}-{stop}-{commit}", broker)
        self.transactions = Transactions(members, name)
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

    def go_on(self) -> None:
        for step in self._left:
            self._take(step)

    def begin_anew(self) -> None:
        self._left = iter(STEPS)
        self.go_on()

    def is_complete(self) -> bool:
        return self.transactions.state() == ("CompleteCommit" if self.commit else "CompleteAbort")

    def _take(self, step: str) -> None:
        mine = self.transactions
        match step:
            case "begun":
                mine.init()
            case "added":
                mine.add(self._topic, 0, 1, 2)
            case "produced":
                assert [mine.produce(self._topic, each, self.value) for each in range(3)] == [0, 0, 0]
            case "consumed":
                mine.send_offset(self._topic, 0, 1 + mine.identity.epoch)
            case "ended":
                assert mine.end(commit=self.commit) == 0


@pytest.mark.parametrize("controller", BOTH)
@pytest.mark.parametrize("victim", BOTH)
def test_a_coordinator_of_the_other_kind_completes_a_transaction(
    members: Members, victim: int, controller: int
) -> None:
    """The witness, which leads one of the partitions, is paused, so that the coordinator cannot complete the markers
    between its response to EndTxn and its death."""
    members.make_controller(controller)
    topic = topic_of(members, [OURS, KAFKA], [KAFKA, OURS], [WITNESS, OURS])
    walks = [Walk(members, topic, victim, stop, commit=commit) for stop in STEPS for commit in (True, False)]
    ended = [walk for walk in walks if walk.stop == "ended"]
    for walk in walks:
        if walk not in ended:
            walk.until_stopped()
    for walk in ended:
        walk.stop = "consumed"
        walk.until_stopped()
    witness = members.members[WITNESS]
    assert isinstance(witness, OdradekMember)
    witness.pause()
    try:
        for walk in ended:
            walk.go_on()
            assert walk.transactions.state() == ("PrepareCommit" if walk.commit else "PrepareAbort")
        members.members[victim].kill()
    finally:
        witness.go_on()
    successor = KAFKA if victim == OURS else OURS
    members.until(lambda: coordinator(members, walks[0].transactions.name) == successor, "the other one coordinates")
    for walk in walks:
        walk.go_on()
    wanted = Counter({walk.value: 3 for walk in walks if walk.commit})
    _are_as_wanted(members, topic, walks, wanted)
    before = {walk.value: walk.transactions.identity for walk in walks}

    members.members[victim].start()
    _everybody_is_back(members, victim, topic, walks[0].transactions.name)
    for walk in walks:
        old = Transactions(members, walk.transactions.name)
        old.identity = before[walk.value]
        walk.transactions.init()
        assert walk.transactions.identity.producer_id == old.identity.producer_id
        assert walk.transactions.identity.epoch > old.identity.epoch
        assert old.end(commit=True) in FENCED
        walk.begin_anew()
    _are_as_wanted(members, topic, walks, wanted + wanted)


def _are_as_wanted(members: Members, topic: str, walks: list[Walk], wanted: Counter[bytes]) -> None:
    members.until(lambda: all(walk.is_complete() for walk in walks), lambda: [w.transactions.state() for w in walks])
    assert committed(members, topic) == wanted
    for walk in walks:
        offset = 1 + walk.transactions.identity.epoch if walk.commit else -1
        assert walk.transactions.committed_offset(topic, 0) == offset, walk.value


def _everybody_is_back(members: Members, broker: int, topic: str, transactional_id: str) -> None:
    """Wait until the broker is in sync everywhere, and make the preferred replicas leaders again."""
    for each in (topic, STATE, OFFSETS):
        members.until(lambda each=each: set(BOTH) <= set.union(*members.in_sync(each)), each)  # type: ignore[misc]
        members.until(lambda each=each: members.in_sync(each)[:2] == [set(BOTH)] * 2, each)  # type: ignore[misc]

    def as_at_first() -> bool:
        led = all(members.leaders(each)[:2] == [*BOTH] for each in (topic, STATE, OFFSETS))
        return led and coordinator(members, transactional_id) == broker

    elect_preferred(members, as_at_first)


@pytest.mark.parametrize("controller", BOTH)
@pytest.mark.parametrize("group_coordinator", BOTH)
@pytest.mark.parametrize("transaction_coordinator", BOTH)
def test_records_are_transformed_exactly_once(
    members: Members, transaction_coordinator: int, group_coordinator: int, controller: int
) -> None:
    """Each kind of broker leads a partition of the target; the group's coordinator leads the source."""
    members.make_controller(controller)
    other = KAFKA if group_coordinator == OURS else OURS
    source, target = topic_of(members, [group_coordinator, other]), topic_of(members, [1, 3], [3, 1])
    read = [b"%s-%d" % (source.encode(), number) for number in range(60)]
    members.produce(source, read)
    transformer, taken = ConfluentTransformer(), 0
    group = named_for(members, f"group-{source}", group_coordinator, GROUP)
    name = named_for(members, f"id-{source}", transaction_coordinator)
    for commit in (False, True, False, True):
        found = transformer.transform(
            members.bootstrap_servers, source, target, group=group, transactional_id=name, count=30, commit=commit
        )
        assert found == read[taken : taken + 30]
        taken += 30 * commit
    assert Transactions(members, name, group).committed_offset(source, 0) == 60
    assert committed(members, target) == Counter(value.upper() for value in read)


@pytest.mark.parametrize("transaction_coordinator", BOTH)
def test_leaders_verify_with_a_coordinator_of_the_other_kind(members: Members, transaction_coordinator: int) -> None:
    topic = topic_of(members, [OURS, KAFKA], [KAFKA, OURS])
    name = named_for(members, f"id-{topic}", transaction_coordinator)
    mine = Transactions(members, name)
    mine.init()
    assert [mine.produce(topic, each, b"early") for each in (0, 1)] == [ABORTABLE, ABORTABLE]
    mine.add(topic, 0, 1)
    assert [mine.produce(topic, each, b"added") for each in (0, 1)] == [0, 0]
    assert mine.end(commit=True) == 0
    members.until(lambda: mine.state() == "CompleteCommit")
    assert [mine.produce(topic, each, b"late") for each in (0, 1)] == [ABORTABLE, ABORTABLE]
    assert committed(members, topic) == Counter({b"added": 2})
