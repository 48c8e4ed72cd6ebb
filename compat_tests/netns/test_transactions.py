"""Transactions under faults of the brokers: banks lose no money, each record is copied exactly once, and no
read_committed consumer receives an uncommitted record, even with rivals that share a transactional id and with members
that are paused."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

import pytest

from compat_tests.netns.checks import broken_rules
from compat_tests.netns.history import Kind, Operation, Outcome, source_of
from compat_tests.netns.system import BROKERS, FAULTS, SESSION_TIMEOUT_S, Fault, System, Workload
from compat_tests.netns.transactional_checks import broken_transactions

pytestmark = pytest.mark.netns

STATE = "__transaction_state"
BANKS = ("red", "green", "blue")
"""Two rival producers make the transfers of the first bank."""
COMMITS = 5
STORM_STEPS = 5


class Economy:
    """Banks, one of them with two rival producers, a group of three members that copy records, and consumers."""

    def __init__(self, system: System, workload: Workload) -> None:
        self._system = system
        self._workload = workload
        self.books = workload.topic("books", 3, transactional=True)
        source = workload.topic("source", 3)
        self.target = workload.target_of(source)
        for bank in BANKS[1:]:
            workload.start("bank", self.books, bank)
        self.rivals = [workload.start("bank", self.books, BANKS[0]) for _ in range(2)]
        self.members = [workload.start("copy", source, f"group-{source}") for _ in range(3)]
        self._producer = workload.start("produce", source)
        for topic in (self.books, self.target):
            workload.start("read-committed", topic)
        self.wait_for_commits()

    def wait_for_commits(self) -> None:
        """Wait until every bank and the group have committed again."""
        workload, since = self._workload, time.monotonic()
        workload.until(partial(self._committed, since=since), "a bank or the group does not commit")

    def _committed(self, history: Sequence[Operation], *, since: float) -> bool:
        commits = Counter(
            each.group or each.values[0].partition(" ")[0]
            for each in history
            if each.kind is Kind.TRANSACTION and each.outcome is Outcome.OK and each.begin > since
        )
        return len(commits) == len(BANKS) + 1 and min(commits.values()) >= COMMITS

    def check(self) -> None:
        """Stop the clients and apply all checks."""
        system, workload = self._system, self._workload
        system.cluster.until(workload.replicas_in_sync, "replicas are out of sync")
        self.wait_for_commits()
        workload.stop(self._producer)
        workload.until(self._all_copied, "records are not copied")
        workload.stop_all()
        workload.read_final_logs()
        workload.read_committed_logs()
        workload.compare_replicas()
        history = workload.history()
        broken = [*broken_rules(history), *broken_transactions(history)]
        assert not broken, "\n".join([f"{len(broken)} broken rules, see {workload.directory}:", *broken[:20]])
        assert not system.failures()

    def _all_copied(self, history: Sequence[Operation]) -> bool:
        """Return whether the group's members report a copy of every acknowledged record."""
        copied = {
            source_of(value)
            for each in history
            if each.kind is Kind.TRANSACTION and each.group and each.outcome is not Outcome.FAIL
            for value in each.values
        }
        return all(value in copied for each in history if _acknowledged(each) for value in each.values)


def _acknowledged(each: Operation) -> bool:
    return each.kind is Kind.PRODUCE and each.outcome is Outcome.OK


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_transactions_are_atomic_without_a_broker(system: System, workload: Workload, fault: Fault) -> None:
    """The fault affects the coordinator of most transactions, then the leader of most partitions of the books."""
    economy = Economy(system, workload)
    for topic in (STATE, economy.books):
        leader = Counter(system.cluster.leaders(topic)).most_common(1)[0][0]
        with workload.under(fault, leader):
            time.sleep(2 * SESSION_TIMEOUT_S)
        system.cluster.until(workload.replicas_in_sync, "replicas are out of sync")
        economy.wait_for_commits()
    economy.check()


def test_a_producer_paused_during_a_fault_is_fenced(system: System, workload: Workload) -> None:
    """The paused producers are one of a bank's rivals and a member of the group, perhaps with open transactions."""
    economy = Economy(system, workload)
    paused_clients = [economy.rivals[0], economy.members[0]]
    for broker in BROKERS:
        for paused in paused_clients:
            workload.pause(paused)
        with workload.under(System.killed, broker):
            time.sleep(3 * SESSION_TIMEOUT_S)
            for paused in paused_clients:
                workload.resume(paused)
        system.cluster.until(workload.replicas_in_sync, "replicas are out of sync")
        economy.wait_for_commits()
    economy.check()


def test_transactions_are_atomic_under_overlapping_faults(
    system: System, workload: Workload, request: pytest.FixtureRequest
) -> None:
    economy = Economy(system, workload)
    rng = random.Random(request.node.name)
    for _ in range(STORM_STEPS):
        with ExitStack() as stack:
            for broker in rng.sample(BROKERS, rng.choice((1, 2, 2))):
                stack.enter_context(workload.under(rng.choice([*FAULTS, System.without_brokers]), broker))
                time.sleep(rng.uniform(0, 1.5 * SESSION_TIMEOUT_S))
    economy.check()
