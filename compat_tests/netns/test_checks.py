"""Each check finds its violation in a history made by hand, and reports none without it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compat_tests.netns import checks
from compat_tests.netns.checks import Check, acknowledged_by_another, broken_rules, last_owners
from compat_tests.netns.history import OFFSETS, Kind, Operation, Outcome

OK, FAIL, INFO = Outcome.OK, Outcome.FAIL, Outcome.INFO


def produced(value: str, offset: int, at: float, outcome: Outcome = OK) -> Operation:
    return Operation(
        "producer",
        Kind.PRODUCE,
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
        process, Kind.READ, at, at + 0.5, OK, "t", 0, offset, tuple(values), group=group, generation=generation
    )


def responded(kind: Kind, process: str, offset: int, at: float) -> Operation:
    return Operation(process, kind, at, at + 0.5, OK, "t", 0, offset)


def final(*values: str) -> Operation:
    return Operation("final", Kind.FINAL, 90, 90, OK, "t", 0, 0, values)


def owns(process: str, generation: int, *partitions: int) -> Operation:
    return Operation(process, Kind.OWNS, 1, 1, OK, "t", group="g", generation=generation, partitions=partitions)


def committed(kind: Kind, offset: int, at: float, outcome: Outcome = OK) -> Operation:
    return Operation("member", kind, at, at + 0.5, outcome, "t", 0, offset, group="g")


def deposed(begin: float, end: float) -> Operation:
    return Operation("nemesis", Kind.DEPOSED, begin, end, OK, "t", leader=1, partitions=(0,))


GOOD = [
    responded(Kind.BEGIN, "reader", 0, 0),
    produced("p:0", 0, 0),
    produced("plain:0", 1, 1),
    produced("p:1", 2, 2),
    produced("p:2", -1, 3, INFO),
    read("reader", 0, ["p:0"], 1),
    read("reader", 1, ["plain:0", "p:1"], 3),
    responded(Kind.LATEST, "watcher", 1, 1),
    responded(Kind.LATEST, "watcher", 3, 3),
    responded(Kind.END, "new", 3, 4),
    owns("a", 1, 0),
    owns("a", 2, 0),
    owns("b", 2, 1),
    read("a", 0, ["p:0"], 4, "g", 1),
    read("a", 0, ["p:0", "plain:0", "p:1"], 5, "g", 2),
    committed(Kind.COMMIT, 1, 5),
    committed(Kind.COMMITTED, 1, 6),
    committed(Kind.COMMIT, 3, 7),
    committed(Kind.COMMITTED, 3, 8),
    final("p:0", "plain:0", "p:1"),
]
BAD: list[tuple[Check, list[Operation]]] = [
    (checks.no_acknowledged_record_is_lost, [produced("p:9", 7, 8)]),
    (checks.no_acknowledged_record_is_lost, [produced("plain:9", -1, 8)]),
    (checks.offsets_keep_their_records, [produced("p:9", 1, 8)]),
    (checks.offsets_keep_their_records, [read("other", 1, ["p:1"], 8)]),
    (checks.no_record_that_was_read_is_lost, [read("other", 3, ["p:2"], 8)]),
    (checks.every_record_was_produced, [final("p:0", "plain:0", "p:1", "q:0")]),
    (checks.consumers_read_consecutive_offsets, [read("reader", 4, ["p:4"], 8)]),
    (checks.consumers_read_consecutive_offsets, [read("reader", 2, ["p:1"], 8)]),
    (checks.consumers_read_consecutive_offsets, [read("a", 2, ["p:1"], 8, "g", 2)]),
    (checks.consumers_read_all_from_their_start_offset, [responded(Kind.BEGIN, "new", 3, 4)]),
    (
        checks.consumers_read_all_from_their_start_offset,
        [responded(Kind.BEGIN, "late", 0, 4), read("late", 1, ["p:0", "plain:0", "p:1"], 5)],
    ),
    (checks.consumers_read_all_from_their_start_offset, [produced("p:3", 3, 8)]),
    (checks.idempotent_producers_stay_in_order, [final("p:0", "p:2", "p:1")]),
    (checks.no_idempotent_record_is_duplicated, [final("p:0", "plain:0", "p:1", "p:1")]),
    (checks.end_offsets_include_acknowledged_records, [responded(Kind.LATEST, "other", 2, 8)]),
    (checks.end_offsets_include_acknowledged_records, [responded(Kind.END, "other", 2, 8)]),
    (checks.end_offsets_include_acknowledged_records, [deposed(6, 9), responded(Kind.LATEST, "other", 2, 8)]),
    (checks.end_offsets_include_acknowledged_records, [deposed(1, 4), responded(Kind.LATEST, "other", 2, 8)]),
    (checks.end_offsets_do_not_go_back, [responded(Kind.LATEST, "one", 5, 6), responded(Kind.LATEST, "other", 4, 8)]),
    (checks.end_offsets_do_not_go_back, [read("one", 3, ["p:2", "p:3"], 6), responded(Kind.LATEST, "other", 4, 8)]),
    (checks.end_offsets_do_not_go_back_for_a_client, [deposed(1, 9), responded(Kind.LATEST, "watcher", 2, 8)]),
    (checks.a_partition_has_one_owner, [owns("c", 2, 1)]),
    (checks.committed_offsets_do_not_go_back, [committed(Kind.COMMITTED, 2, 9)]),
    (checks.committed_offsets_do_not_go_back, [committed(Kind.COMMITTED, -1, 9)]),
    (checks.committed_offsets_do_not_go_back, [committed(Kind.COMMIT, 2, 1, FAIL), committed(Kind.COMMITTED, 2, 9)]),
    (checks.groups_read_all_records, [produced("p:3", 3, 8)]),
]


def test_a_correct_history_breaks_no_rule() -> None:
    assert broken_rules(GOOD) == []


@pytest.mark.parametrize(("check", "wrong"), BAD, ids=lambda each: getattr(each, "__name__", ""))
def test_each_check_finds_a_violation_of_its_rule(check: Check, wrong: list[Operation]) -> None:
    history = [each for each in GOOD if not any(bad.kind is Kind.FINAL for bad in wrong) or each.kind is not Kind.FINAL]
    assert check(history) == [] or wrong[0].kind is Kind.FINAL
    assert check([*history, *wrong]) != []


def test_every_check_has_a_history_that_violates_it() -> None:
    assert {check for check, _ in BAD} == set(checks.CHECKS)


def test_a_deposed_leader_may_return_offsets_of_its_time_as_leader() -> None:
    stale = responded(Kind.LATEST, "other", 2, 8)
    assert checks.end_offsets_include_acknowledged_records([*GOOD, deposed(2.4, 8.2), stale]) == []
    assert checks.end_offsets_do_not_go_back([*GOOD, deposed(2.4, 8.2), stale]) == []
    assert checks.end_offsets_include_acknowledged_records([*GOOD, deposed(2.4, 8.2), replace(stale, offset=1)]) != []


def test_a_deposed_coordinator_may_return_earlier_committed_offsets() -> None:
    cut = replace(deposed(6.2, 9.2), topic=OFFSETS, partitions=(3,))
    assert checks.committed_offsets_do_not_go_back([*GOOD, cut, committed(Kind.COMMITTED, 1, 9)]) == []
    assert checks.committed_offsets_do_not_go_back([*GOOD, cut, committed(Kind.COMMITTED, 0, 9)]) != []
    assert checks.committed_offsets_do_not_go_back([*GOOD, cut, committed(Kind.COMMITTED, 1, 10)]) != []


def test_a_commit_without_a_response_may_have_been_written() -> None:
    late = [committed(Kind.COMMIT, 2, 6, INFO), committed(Kind.COMMITTED, 2, 9)]
    assert checks.committed_offsets_do_not_go_back([*GOOD, *late]) == []


def test_the_newest_generation_names_the_owners_of_partitions() -> None:
    assert last_owners(GOOD, "g") == {"a": (0,), "b": (1,)}
    assert last_owners(GOOD, "h") == {}


def test_only_a_write_to_another_leader_after_the_fault_counts() -> None:
    writes = [replace(produced("plain:1", -1, at), leader=leader) for at, leader in ((1, 2), (3, 1), (4, 2))]
    assert acknowledged_by_another(writes, ("t", 0), 1, since=2) == 4.5
    assert acknowledged_by_another(writes, ("t", 0), 1, since=5) is None
