"""Faults on three brokers and ZooKeeper, each on its own host: no record is lost, reordered, duplicated or missed, and
writing continues soon."""

from __future__ import annotations

import random
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

import pytest

from compat_tests.netns.checks import (
    acknowledged_by_another,
    broken_rules,
    consumers_read_on_from_where_they_begin,
    groups_read_everything,
)
from compat_tests.netns.clients import members_of
from compat_tests.netns.history import Operation, Outcome, Place, What
from compat_tests.netns.system import BROKERS, FAULTS, LAG_S, SESSION_S, Fault, System, Workload
from compat_tests.netns.wire import Fate

pytestmark = pytest.mark.netns

WRITES_AGAIN_S = 2.0
HELD_S = 3.0
STORM_STEPS = 6
PRODUCERS = ("produce", "produce-kafka-python", "probe")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_producers_continue_after_the_failure_of_a_leader(system: System, workload: Workload, fault: Fault) -> None:
    """Writing continues within the session's timeout and 2 s. The session of a deaf broker ends later: ZooKeeper still
    receives its pings, a third of the session timeout apart, until the broker misses the response to one."""
    probed, busy = workload.topic("probed", 3), workload.topic("busy", 3)
    start_all_clients(workload, probed, busy)
    for partition in range(2):
        took_s = fail_over(system, workload, fault, (probed, partition))
        print(f"{fault.__name__}: {took_s:.2f} s beyond the session's timeout without writes")
        assert took_s < WRITES_AGAIN_S + (SESSION_S / 3 if fault is System.deaf else 0)
    assert_nothing_broken(system, workload)


def test_a_leader_cut_off_from_other_brokers_loses_no_record(system: System, workload: Workload) -> None:
    """The broker stays the leader of its partitions, because its ZooKeeper session lives. The other leaders continue
    after they have removed it from the ISR, unless it is the controller, which alone could accept that change."""
    probed, busy = workload.topic("probed", 3), workload.topic("busy", 3)
    start_all_clients(workload, probed, busy)
    controller = system.cluster.controller()
    for broker in (next(broker for broker in BROKERS if broker != controller), controller):
        others = [(probed, p) for p, leader in enumerate(system.cluster.leaders(probed)) if leader != broker]
        with workload.under(System.without_brokers, broker):
            time.sleep(1.5 * LAG_S)
            if broker != controller:
                written = partial(all_acknowledged, places=others, leader=broker, since=time.monotonic())
                workload.until(written, "what others lead is written")
        system.cluster.until(workload.is_whole, "all are in sync")
    assert_nothing_broken(system, workload)


def test_producers_continue_while_zookeeper_is_down(system: System, workload: Workload) -> None:
    """Leaders continue to lead while ZooKeeper is down; only elections are not possible."""
    probed, busy = workload.topic("probed", 3), workload.topic("busy", 3)
    start_all_clients(workload, probed, busy)
    system.zookeeper.kill()
    time.sleep(1.5 * SESSION_S)
    workload.until(partial(each_producer_writes, since=time.monotonic(), count=20), "writing goes on")
    system.zookeeper.start()
    system.cluster.until(workload.is_whole, "all are in sync")
    took_s = fail_over(system, workload, System.killed, (probed, 0))
    assert took_s < WRITES_AGAIN_S
    assert_nothing_broken(system, workload)


def test_delayed_and_lost_packets_only_slow_the_clients_down(system: System, workload: Workload) -> None:
    probed, busy = workload.topic("probed", 3), workload.topic("busy", 3)
    start_all_clients(workload, probed, busy)
    for fate in (Fate(delay_ms=30, jitter_ms=60), Fate(loss=0.05), Fate(delay_ms=10, jitter_ms=20, loss=0.02)):
        with system.everywhere(fate):
            workload.until(partial(each_producer_writes, since=time.monotonic() + HELD_S, count=20), "writing goes on")
        system.cluster.until(workload.is_whole, "all are in sync")
    assert_nothing_broken(system, workload)


def test_a_group_of_thirty_reads_all_records_under_failures(system: System, workload: Workload) -> None:
    topic = workload.topic("grouped", 36)
    producer = workload.start("produce", topic)
    group = f"group-{topic}"
    joined = deque(workload.start("join", topic, group) for _ in range(3))
    workload.start("watch", topic, group)

    def all_own_something() -> bool:
        members = {member for process in joined for member in members_of(process)}
        return workload.all_own_something(topic, group, members)

    system.cluster.until(all_own_something, "all members own something")

    workload.kill(joined.popleft())
    joined.append(workload.start("join", topic, group))
    with workload.under(System.killed, workload.coordinator(group)):
        system.cluster.until(all_own_something, "all own something, coordinated by another broker")
    system.cluster.until(workload.is_whole, "all are in sync")

    sleeper = joined.popleft()
    workload.pause(sleeper)
    joined.append(workload.start("join", topic, group))
    broker = workload.coordinator(group)
    with workload.under(System.isolated, broker):
        system.cluster.until(all_own_something, "all but those who sleep own something, coordinated by another broker")
        workload.resume(sleeper)
        time.sleep(HELD_S)
    workload.stop(sleeper)
    system.cluster.until(workload.is_whole, "all are in sync")
    system.cluster.until(all_own_something, "all members own something")

    workload.stop(producer)
    workload.until(lambda history: not groups_read_everything(history), "everything is read")
    assert_nothing_broken(system, workload)


def test_overlapping_faults_break_no_rule(system: System, workload: Workload, request: pytest.FixtureRequest) -> None:
    """The checks excuse no more than in the other tests: ZooKeeper's log tells which broker was deposed when."""
    topics = workload.topic("probed", 3), workload.topic("busy", 3)
    start_all_clients(workload, *topics)
    group = f"group-{topics[1]}"
    workload.start("join", topics[1], group)
    workload.start("watch", topics[1], group)
    rng = random.Random(request.node.name)
    for _ in range(STORM_STEPS):
        with ExitStack() as stack:
            for broker in rng.sample(BROKERS, rng.choice((1, 2, 2))):
                fault = rng.choice([*FAULTS, System.without_brokers])
                stack.enter_context(workload.under(fault, broker))
                time.sleep(rng.uniform(0, 1.5 * SESSION_S))
    system.cluster.until(workload.is_whole, "all are in sync")
    workload.until(partial(each_producer_writes, since=time.monotonic(), count=20), "writing goes on")
    workload.stop_kind(*PRODUCERS)
    workload.until(lambda history: not groups_read_everything(history), "everything is read")
    assert_nothing_broken(system, workload)


def start_all_clients(workload: Workload, probed: str, busy: str) -> None:
    workload.start("probe", probed)
    for kind in ("produce", "produce-kafka-python", "read", "watch", "begin-again"):
        workload.start(kind, busy)
    workload.until(partial(each_producer_writes, since=0, count=20), "all clients work")


def all_acknowledged(history: Sequence[Operation], *, places: list[Place], leader: int, since: float) -> bool:
    return all(acknowledged_by_another(history, place, leader, since) is not None for place in places)


def each_producer_writes(history: Sequence[Operation], *, since: float, count: int) -> bool:
    """Return whether every producer has at least `count` records acknowledged that it sent after `since`."""
    written = Counter(
        each.process
        for each in history
        if each.what is What.PRODUCE and each.outcome is Outcome.OK and each.begin > since
    )
    return len(written) == 3 and min(written.values()) >= count


def fail_over(system: System, workload: Workload, fault: Fault, place: Place) -> float:
    """Apply a fault to the leader of a partition until another broker has led for a while. Return the time until the
    new leader acknowledged a record, less the session's timeout."""
    topic, partition = place
    leader = system.cluster.leaders(topic)[partition]
    begin = time.monotonic()
    with workload.under(fault, leader):
        workload.until(partial(all_acknowledged, places=[place], leader=leader, since=begin), "another leads")
        time.sleep(HELD_S)
    system.cluster.until(workload.is_whole, "all are in sync")
    acknowledged = acknowledged_by_another(workload.history(), place, leader, begin)
    assert acknowledged is not None
    return acknowledged - begin - SESSION_S


def assert_nothing_broken(system: System, workload: Workload) -> None:
    """Apply all checks to the history. A failure names its directory, which is beside the brokers' logs."""
    workload.stop_kind(*PRODUCERS)
    workload.until(lambda history: not consumers_read_on_from_where_they_begin(history), "everything is read")
    workload.stop_all()
    workload.read_final_logs()
    workload.compare_replicas()
    workload.write_down_the_deposed()
    broken = broken_rules(workload.history())
    assert not broken, "\n".join([f"{len(broken)} broken rules, see {workload.directory}:", *broken[:20]])
    assert not system.failures()
