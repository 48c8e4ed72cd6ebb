"""Each check finds its violation in a history made by hand, and reports none without it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compat_tests.netns import checks
from compat_tests.netns.checks import Check, acknowledged_by_another, broken_rules, last_owners
from compat_tests.netns.history import OFFSETS, Operation, Outcome, What

OK, FAIL, INFO = Outcome.OK, Outcome.FAIL, Outcome.INFO


def produced(value: str, offset: int, at: float, outcome: Outcome = OK) -> Operation:
    return Operation(
        "producer",
        What.PRODUCE,
        at,
        at + 0.5,
        outcome,
        "t",
        0,
        offset,
        (value,),
        idempotent=not value.startswith("plain"),
    )


def read(process: str, offset: int, values: list[str], at: float, group: str = "", generation: int = -1) -> Operation:
    return Operation(
        process, What.READ, at, at + 0.5, OK, "t", 0, offset, tuple(values), group=group, generation=generation
    )


def responded(what: What, process: str, offset: int, at: float) -> Operation:
    return Operation(process, what, at, at + 0.5, OK, "t", 0, offset)


def final(*values: str) -> Operation:
    return Operation("final", What.FINAL, 90, 90, OK, "t", 0, 0, values)


def owns(process: str, generation: int, *partitions: int) -> Operation:
    return Operation(process, What.OWNS, 1, 1, OK, "t", group="g", generation=generation, partitions=partitions)


def committed(what: What, offset: int, at: float, outcome: Outcome = OK) -> Operation:
    return Operation("member", what, at, at + 0.5, outcome, "t", 0, offset, group="g")


def deposed(begin: float, end: float) -> Operation:
    return Operation("nemesis", What.DEPOSED, begin, end, OK, "t", leader=1, partitions=(0,))


GOOD = [
    responded(What.BEGIN, "reader", 0, 0),
    produced("p:0", 0, 0),
    produced("plain:0", 1, 1),
    produced("p:1", 2, 2),
    produced("p:2", -1, 3, INFO),
    read("reader", 0, ["p:0"], 1),
    read("reader", 1, ["plain:0", "p:1"], 3),
    responded(What.LATEST, "watcher", 1, 1),
    responded(What.LATEST, "watcher", 3, 3),
    responded(What.END, "new", 3, 4),
    owns("a", 1, 0),
    owns("a", 2, 0),
    owns("b", 2, 1),
    read("a", 0, ["p:0"], 4, "g", 1),
    read("a", 0, ["p:0", "plain:0", "p:1"], 5, "g", 2),
    committed(What.COMMIT, 1, 5),
    committed(What.COMMITTED, 1, 6),
    committed(What.COMMIT, 3, 7),
    committed(What.COMMITTED, 3, 8),
    final("p:0", "plain:0", "p:1"),
]
BAD: list[tuple[Check, list[Operation]]] = [
    (checks.nothing_acknowledged_is_lost, [produced("p:9", 7, 8)]),
    (checks.nothing_acknowledged_is_lost, [produced("plain:9", -1, 8)]),
    (checks.offsets_keep_their_records, [produced("p:9", 1, 8)]),
    (checks.offsets_keep_their_records, [read("other", 1, ["p:1"], 8)]),
    (checks.what_was_read_stays, [read("other", 3, ["p:2"], 8)]),
    (checks.nothing_comes_from_nowhere, [final("p:0", "plain:0", "p:1", "q:0")]),
    (checks.consumers_miss_nothing, [read("reader", 4, ["p:4"], 8)]),
    (checks.consumers_miss_nothing, [read("reader", 2, ["p:1"], 8)]),
    (checks.consumers_miss_nothing, [read("a", 2, ["p:1"], 8, "g", 2)]),
    (checks.consumers_read_on_from_where_they_begin, [responded(What.BEGIN, "new", 3, 4)]),
    (
        checks.consumers_read_on_from_where_they_begin,
        [responded(What.BEGIN, "late", 0, 4), read("late", 1, ["p:0", "plain:0", "p:1"], 5)],
    ),
    (checks.consumers_read_on_from_where_they_begin, [produced("p:3", 3, 8)]),
    (checks.idempotent_producers_stay_in_order, [final("p:0", "p:2", "p:1")]),
    (checks.nothing_is_there_twice, [final("p:0", "plain:0", "p:1", "p:1")]),
    (checks.no_read_is_stale, [responded(What.LATEST, "other", 2, 8)]),
    (checks.no_read_is_stale, [responded(What.END, "other", 2, 8)]),
    (checks.no_read_is_stale, [deposed(6, 9), responded(What.LATEST, "other", 2, 8)]),
    (checks.no_read_is_stale, [deposed(1, 4), responded(What.LATEST, "other", 2, 8)]),
    (checks.ends_do_not_go_back, [responded(What.LATEST, "one", 5, 6), responded(What.LATEST, "other", 4, 8)]),
    (checks.ends_do_not_go_back, [read("one", 3, ["p:2", "p:3"], 6), responded(What.LATEST, "other", 4, 8)]),
    (checks.no_client_sees_an_end_go_back, [deposed(1, 9), responded(What.LATEST, "watcher", 2, 8)]),
    (checks.a_partition_has_one_owner, [owns("c", 2, 1)]),
    (checks.committed_offsets_do_not_go_back, [committed(What.COMMITTED, 2, 9)]),
    (checks.committed_offsets_do_not_go_back, [committed(What.COMMITTED, -1, 9)]),
    (checks.committed_offsets_do_not_go_back, [committed(What.COMMIT, 2, 1, FAIL), committed(What.COMMITTED, 2, 9)]),
    (checks.groups_read_everything, [produced("p:3", 3, 8)]),
]


def test_a_correct_history_breaks_no_rule() -> None:
    assert broken_rules(GOOD) == []


@pytest.mark.parametrize(("check", "wrong"), BAD, ids=lambda each: getattr(each, "__name__", ""))
def test_each_check_finds_a_violation_of_its_rule(check: Check, wrong: list[Operation]) -> None:
    history = [each for each in GOOD if not any(bad.what is What.FINAL for bad in wrong) or each.what is not What.FINAL]
    assert check(history) == [] or wrong[0].what is What.FINAL
    assert check([*history, *wrong]) != []


def test_every_check_has_a_history_that_violates_it() -> None:
    assert {check for check, _ in BAD} == set(checks.CHECKS)


def test_a_deposed_leader_may_return_offsets_of_its_time_as_leader() -> None:
    stale = responded(What.LATEST, "other", 2, 8)
    assert checks.no_read_is_stale([*GOOD, deposed(2.4, 8.2), stale]) == []
    assert checks.ends_do_not_go_back([*GOOD, deposed(2.4, 8.2), stale]) == []
    assert checks.no_read_is_stale([*GOOD, deposed(2.4, 8.2), replace(stale, offset=1)]) != []


def test_a_deposed_coordinator_may_return_earlier_committed_offsets() -> None:
    cut = replace(deposed(6.2, 9.2), topic=OFFSETS, partitions=(3,))
    assert checks.committed_offsets_do_not_go_back([*GOOD, cut, committed(What.COMMITTED, 1, 9)]) == []
    assert checks.committed_offsets_do_not_go_back([*GOOD, cut, committed(What.COMMITTED, 0, 9)]) != []
    assert checks.committed_offsets_do_not_go_back([*GOOD, cut, committed(What.COMMITTED, 1, 10)]) != []


def test_a_commit_without_a_response_may_have_been_written() -> None:
    late = [committed(What.COMMIT, 2, 6, INFO), committed(What.COMMITTED, 2, 9)]
    assert checks.committed_offsets_do_not_go_back([*GOOD, *late]) == []


def test_the_newest_generation_names_the_owners_of_partitions() -> None:
    assert last_owners(GOOD, "g") == {"a": (0,), "b": (1,)}
    assert last_owners(GOOD, "h") == {}


def test_only_a_write_to_another_leader_after_the_fault_counts() -> None:
    writes = [replace(produced("plain:1", -1, at), leader=leader) for at, leader in ((1, 2), (3, 1), (4, 2))]
    assert acknowledged_by_another(writes, ("t", 0), 1, since=2) == 4.5
    assert acknowledged_by_another(writes, ("t", 0), 1, since=5) is None
