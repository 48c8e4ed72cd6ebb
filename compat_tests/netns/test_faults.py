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
    consumers_read_all_from_their_start_offset,
    groups_read_all_records,
)
from compat_tests.netns.clients import members_of
from compat_tests.netns.history import Kind, Operation, Outcome, TopicPartition
from compat_tests.netns.system import (
    BROKERS,
    FAULTS,
    REPLICA_LAG_TIME_MAX_S,
    SESSION_TIMEOUT_S,
    Fault,
    System,
    Workload,
)
from compat_tests.netns.wire import LinkFaults

pytestmark = pytest.mark.netns

FAILOVER_MAX_S = 2.0
STEADY_S = 3.0
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
        assert took_s < FAILOVER_MAX_S + (SESSION_TIMEOUT_S / 3 if fault is System.deaf else 0)
    assert_no_rule_broken(system, workload)


def test_a_leader_cut_off_from_other_brokers_loses_no_record(system: System, workload: Workload) -> None:
    """The broker stays the leader of its partitions, because its ZooKeeper session lives. The other leaders continue
    after they have removed it from the ISR, unless it is the controller, which alone could accept that change."""
    probed, busy = workload.topic("probed", 3), workload.topic("busy", 3)
    start_all_clients(workload, probed, busy)
    controller = system.cluster.controller()
    for broker in (next(broker for broker in BROKERS if broker != controller), controller):
        others = [(probed, p) for p, leader in enumerate(system.cluster.leaders(probed)) if leader != broker]
        with workload.under(System.without_brokers, broker):
            time.sleep(1.5 * REPLICA_LAG_TIME_MAX_S)
            if broker != controller:
                written = partial(all_acknowledged, topic_partitions=others, leader=broker, since=time.monotonic())
                workload.until(written, "the partitions of the other leaders are not written")
        system.cluster.until(workload.replicas_in_sync, "replicas are out of sync")
    assert_no_rule_broken(system, workload)


def test_producers_continue_while_zookeeper_is_down(system: System, workload: Workload) -> None:
    """Leaders continue to lead while ZooKeeper is down; only elections are not possible."""
    probed, busy = workload.topic("probed", 3), workload.topic("busy", 3)
    start_all_clients(workload, probed, busy)
    system.zookeeper.kill()
    time.sleep(1.5 * SESSION_TIMEOUT_S)
    workload.until(partial(each_producer_writes, since=time.monotonic(), count=20), "a producer does not continue")
    system.zookeeper.start()
    system.cluster.until(workload.replicas_in_sync, "replicas are out of sync")
    took_s = fail_over(system, workload, System.killed, (probed, 0))
    assert took_s < FAILOVER_MAX_S
    assert_no_rule_broken(system, workload)


def test_delayed_and_lost_packets_only_slow_the_clients_down(system: System, workload: Workload) -> None:
    probed, busy = workload.topic("probed", 3), workload.topic("busy", 3)
    start_all_clients(workload, probed, busy)
    for faults in (
        LinkFaults(delay_ms=30, jitter_ms=60),
        LinkFaults(loss=0.05),
        LinkFaults(delay_ms=10, jitter_ms=20, loss=0.02),
    ):
        with system.everywhere(faults):
            workload.until(
                partial(each_producer_writes, since=time.monotonic() + STEADY_S, count=20),
                "a producer does not continue",
            )
        system.cluster.until(workload.replicas_in_sync, "replicas are out of sync")
    assert_no_rule_broken(system, workload)


def test_a_group_of_thirty_reads_all_records_under_failures(system: System, workload: Workload) -> None:
    topic = workload.topic("grouped", 36)
    producer = workload.start("produce", topic)
    group = f"group-{topic}"
    joined = deque(workload.start("join", topic, group) for _ in range(3))
    workload.start("watch", topic, group)

    def members_share_the_partitions() -> bool:
        members = {member for process in joined for member in members_of(process)}
        return workload.assignment_is_complete(topic, group, members)

    system.cluster.until(members_share_the_partitions, "a member owns no partition")

    workload.kill(joined.popleft())
    joined.append(workload.start("join", topic, group))
    with workload.under(System.killed, workload.coordinator(group)):
        system.cluster.until(
            members_share_the_partitions, "a member owns no partition after a failover of the coordinator"
        )
    system.cluster.until(workload.replicas_in_sync, "replicas are out of sync")

    paused = joined.popleft()
    workload.pause(paused)
    joined.append(workload.start("join", topic, group))
    broker = workload.coordinator(group)
    with workload.under(System.isolated, broker):
        system.cluster.until(
            members_share_the_partitions, "a running member owns no partition after a failover of the coordinator"
        )
        workload.resume(paused)
        time.sleep(STEADY_S)
    workload.stop(paused)
    system.cluster.until(workload.replicas_in_sync, "replicas are out of sync")
    system.cluster.until(members_share_the_partitions, "a member owns no partition")

    workload.stop(producer)
    workload.until(lambda history: not groups_read_all_records(history), "acknowledged records are unread")
    assert_no_rule_broken(system, workload)


def test_overlapping_faults_break_no_rule(system: System, workload: Workload, request: pytest.FixtureRequest) -> None:
    """The checks excuse no more than in the other tests: ZooKeeper's log tells which leaders were deposed, and when."""
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
                time.sleep(rng.uniform(0, 1.5 * SESSION_TIMEOUT_S))
    system.cluster.until(workload.replicas_in_sync, "replicas are out of sync")
    workload.until(partial(each_producer_writes, since=time.monotonic(), count=20), "a producer does not continue")
    workload.stop_kind(*PRODUCERS)
    workload.until(lambda history: not groups_read_all_records(history), "acknowledged records are unread")
    assert_no_rule_broken(system, workload)


def start_all_clients(workload: Workload, probed: str, busy: str) -> None:
    workload.start("probe", probed)
    for kind in ("produce", "produce-kafka-python", "read", "watch", "read-tails"):
        workload.start(kind, busy)
    workload.until(partial(each_producer_writes, since=0, count=20), "a producer does not begin")


def all_acknowledged(
    history: Sequence[Operation], *, topic_partitions: list[TopicPartition], leader: int, since: float
) -> bool:
    return all(acknowledged_by_another(history, tp, leader, since) is not None for tp in topic_partitions)


def each_producer_writes(history: Sequence[Operation], *, since: float, count: int) -> bool:
    """Return whether every producer has at least `count` records acknowledged that it sent after `since`."""
    written = Counter(
        each.process
        for each in history
        if each.kind is Kind.PRODUCE and each.outcome is Outcome.OK and each.begin > since
    )
    return len(written) == 3 and min(written.values()) >= count


def fail_over(system: System, workload: Workload, fault: Fault, tp: TopicPartition) -> float:
    """Apply a fault to the leader of a partition until another broker has led for a while. Return the time until the
    new leader acknowledged a record, less the session's timeout."""
    topic, partition = tp
    leader = system.cluster.leaders(topic)[partition]
    begin = time.monotonic()
    with workload.under(fault, leader):
        workload.until(
            partial(all_acknowledged, topic_partitions=[tp], leader=leader, since=begin),
            "no other leader acknowledges records",
        )
        time.sleep(STEADY_S)
    system.cluster.until(workload.replicas_in_sync, "replicas are out of sync")
    acknowledged = acknowledged_by_another(workload.history(), tp, leader, begin)
    assert acknowledged is not None
    return acknowledged - begin - SESSION_TIMEOUT_S


def assert_no_rule_broken(system: System, workload: Workload) -> None:
    """Apply all checks to the history. A failure names its directory, which is beside the brokers' logs."""
    workload.stop_kind(*PRODUCERS)
    workload.until(
        lambda history: not consumers_read_all_from_their_start_offset(history), "acknowledged records are unread"
    )
    workload.stop_all()
    workload.read_final_logs()
    workload.compare_replicas()
    workload.record_deposed_leaders()
    broken = broken_rules(workload.history())
    assert not broken, "\n".join([f"{len(broken)} broken rules, see {workload.directory}:", *broken[:20]])
    assert not system.failures()
