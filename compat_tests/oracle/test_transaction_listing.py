"""DescribeTransactions and ListTransactions: transactions in every lasting state, and the filters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.oracle.cases import versions_of
from compat_tests.oracle.pair import Pair
from compat_tests.oracle.schema import Body
from compat_tests.oracle.transactional_client import NEWEST_LEVEL, TransactionalClient, sorted_partitions

pytestmark = pytest.mark.peers
PairFor = Callable[[str, int], Pair]
STATES = (
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"
)  # fmt: skip
SINCE_LONG_MS = 10**12
"""Longer than any transaction lasts. The filter treats an id without a transaction as one that started at time 0."""


class Listed:
    """A transactional id in each of four states; the comparison leaves out the ids of other tests."""

    def __init__(self, pair_for: PairFor, version: int) -> None:
        self.pair = pair_for("ListTransactions", version)
        self.version = version
        self.prefix = f"listed-{version}-"
        self.new, self.open, self.committed, self.aborted = self.all = [
            TransactionalClient(self.pair, self.prefix + state) for state in ("new", "open", "committed", "aborted")
        ]
        for each in self.all:
            each.begin()
        self.open.add(0, 2, topics=[(self.new.topic, [1, 0])])
        for each, commit in ((self.committed, True), (self.aborted, False)):
            each.produce(0)
            each.end(commit)

    def ask(self, states: list[str] | None = None, **more: Any) -> None:
        body: Body = {"state_filters": states or [], "producer_id_filters": [], **more}
        self.pair.ask("ListTransactions", self.version, body, self._mine)

    def _mine(self, response: Body) -> Body:
        states = response["transaction_states"]
        response["transaction_states"] = [each for each in states if each["transactional_id"].startswith(self.prefix)]
        response["unknown_state_filters"].sort()
        return response


@versions_of("ListTransactions")
@pytest.mark.parametrize("level", [NEWEST_LEVEL], indirect=True)
def test_list_transactions(version: int, level: int, pair_for: PairFor) -> None:
    listed = Listed(pair_for, version)
    listed.ask()
    for state in (*STATES, "ongoing", "", "no such state"):
        listed.ask([state])
    listed.ask([*STATES, "no such state", "nor this", "nor this"])
    listed.ask(["Ongoing", "Empty", "Ongoing"])
    ids = [each.producer.id for each in listed.all]
    for wanted in (ids[:1], ids[1:3], [*ids, -1], [-1], [4242]):
        listed.ask(producer_id_filters=wanted)
        listed.ask(["Ongoing", "no such state"], producer_id_filters=wanted)


@versions_of("ListTransactions", 1)
@pytest.mark.parametrize("level", [NEWEST_LEVEL], indirect=True)
def test_list_transactions_by_duration(version: int, level: int, pair_for: PairFor) -> None:
    listed = Listed(pair_for, version)
    for duration_ms in (-2, -1, SINCE_LONG_MS, 1 << 62):
        listed.ask(duration_filter=duration_ms)
        listed.ask(["Ongoing"], duration_filter=duration_ms)


@versions_of("ListTransactions", 2)
@pytest.mark.parametrize("level", [NEWEST_LEVEL], indirect=True)
def test_list_transactions_by_pattern(version: int, level: int, pair_for: PairFor) -> None:
    listed = Listed(pair_for, version)
    exact, some = listed.open.id, f"{listed.prefix}.*"
    for pattern in (
        None,
        "",
        exact,
        some,
        exact[:-1],
        exact[1:],
        "listed",
        f"{some}d$",
        "^$",
        f"{listed.prefix}[a-z]+",
    ):
        listed.ask(transactional_id_pattern=pattern)
    for pattern in ("(", "[", "*", "a{2,1}", "(?=a)", r"(a)\1", "(?<!a)b", "a++", "\\"):
        listed.ask(transactional_id_pattern=pattern)
    listed.ask(["Ongoing", "Empty"], transactional_id_pattern=some, duration_filter=-1)


@pytest.mark.parametrize("level", [NEWEST_LEVEL], indirect=True)
@versions_of("DescribeTransactions")
def test_describe_transactions(version: int, level: int, pair_for: PairFor) -> None:
    listed = Listed(pair_for, 0)
    for ids in (
        [],
        [each.id for each in listed.all],
        [listed.open.id, "unknown", ""],
        [listed.open.id, listed.open.id],
    ):
        listed.pair.ask("DescribeTransactions", version, {"transactional_ids": ids}, sorted_partitions)
