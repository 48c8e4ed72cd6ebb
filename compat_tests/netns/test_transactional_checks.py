"""Each check of transactions finds its violation in a history made by hand, and reports none without it."""

from __future__ import annotations

import pytest

from compat_tests.netns import transactional_checks as checks
from compat_tests.netns.bank import OPENING_BALANCE, TOTAL, Ledger, Statement, barrier
from compat_tests.netns.checks import Check
from compat_tests.netns.history import Kind, Operation, Outcome, target_of
from compat_tests.netns.transactional_checks import CHECKS, broken_transactions

OK, FAIL, INFO = Outcome.OK, Outcome.FAIL, Outcome.INFO
BOOKS, SOURCE = "books", "source"
TARGET = target_of(SOURCE)


def transaction(*values: object, outcome: Outcome = OK) -> Operation:
    return Operation("keeper", Kind.TRANSACTION, 1, 2, outcome, BOOKS, values=tuple(map(str, values)))


def copied(*values: str, outcome: Outcome = OK) -> Operation:
    return Operation("member", Kind.TRANSACTION, 1, 2, outcome, TARGET, values=values, group="g")


def produced(value: str, outcome: Outcome = OK) -> Operation:
    return Operation("producer", Kind.PRODUCE, 0, 1, outcome, SOURCE, 0, 0, (value,), idempotent=True)


def read(*values: object, topic: str = BOOKS) -> Operation:
    return Operation("reader", Kind.READ_COMMITTED, 3, 4, OK, topic, 0, 0, tuple(map(str, values)))


def log(*values: object, topic: str = BOOKS) -> Operation:
    return Operation("final", Kind.COMMITTED_LOG, 9, 9, OK, topic, 0, values=tuple(map(str, values)))


def transfers() -> list[list[Statement]]:
    """Return the statements of an opening and of three transfers."""
    ledger, found = Ledger(), []
    for number, (giver, taker) in enumerate([(0, 0), (0, 1), (1, 2), (2, 0)]):
        attempt = f"keeper.{number}"
        statements = ledger.transferred("red", attempt, giver, taker, 10) if number else ledger.opening("red", attempt)
        for each in statements:
            ledger.read(each)
        found.append(statements)
    return found


OPENING, FIRST, SECOND, THIRD = transfers()
MARK = barrier("red", "keeper.0", 0)
NEVER = Statement("red", 3, "keeper.9", (0, 1), 0, 7)
PERHAPS = Statement("red", 4, "keeper.9", (0, 1), 0, 8)
LOG = log(MARK, *OPENING, *FIRST, *SECOND, *THIRD)
GOOD = [
    transaction(MARK),
    transaction(*OPENING),
    transaction(*FIRST),
    transaction(*SECOND, outcome=INFO),
    transaction(*THIRD),
    transaction(NEVER, outcome=FAIL),
    transaction(PERHAPS, outcome=INFO),
    read(MARK, *OPENING, *FIRST),
    read(SECOND[0]),
    LOG,
    produced("p:0"),
    produced("p:1", INFO),
    copied("p:0 member.0", outcome=FAIL),
    copied("p:0 member.1"),
    read("p:0 member.1", topic=TARGET),
    log("p:0 member.1", topic=TARGET),
]


def instead(*logs: Operation) -> list[Operation]:
    """Return the good history with other final logs of their topics."""
    topics = {each.topic for each in logs}
    return [each for each in GOOD if each.kind is not Kind.COMMITTED_LOG or each.topic not in topics] + [*logs]


BY_ANOTHER = [each._replace(attempt="rival.1") for each in THIRD]
BAD: list[tuple[Check, list[Operation]]] = [
    (checks.transactions_are_whole, instead(log(MARK, *OPENING, *FIRST[:1], *SECOND, *THIRD))),
    (checks.transactions_are_whole, instead(log(MARK, *OPENING, *SECOND, *THIRD))),
    (checks.transactions_are_whole, instead(log(MARK, *OPENING, *FIRST, SECOND[0], *THIRD))),
    (checks.transactions_are_whole, instead(log(MARK, *OPENING, *FIRST, *SECOND, *THIRD, NEVER))),
    (checks.no_committed_record_is_duplicated, instead(log("p:0 member.1", "p:0 member.1", topic=TARGET))),
    (checks.no_uncommitted_record_is_read, [*GOOD, read(NEVER)]),
    (checks.no_uncommitted_record_is_read, [*GOOD, read(PERHAPS)]),
    (checks.consumers_read_a_prefix_of_committed_records, [*GOOD, read(*THIRD)]),
    (checks.consumers_read_a_prefix_of_committed_records, [*GOOD, read(SECOND[0])]),
    (checks.banks_keep_their_totals, instead(log(MARK, *OPENING, *FIRST, *SECOND, THIRD[0]))),
    (checks.banks_keep_their_totals, instead(log(MARK, *OPENING, *FIRST, *THIRD))),
    (checks.banks_keep_their_totals, instead(log(MARK, *OPENING, *FIRST, *SECOND, *THIRD, *BY_ANOTHER))),
    (checks.banks_keep_their_totals, [*GOOD, read(SECOND[1]._replace(balance=OPENING_BALANCE))]),
    (checks.every_record_is_copied_once, instead(log(topic=TARGET))),
    (checks.every_record_is_copied_once, instead(log("p:0 member.1", "p:0 zombie.1", topic=TARGET))),
]


def test_a_correct_history_breaks_no_rule() -> None:
    assert broken_transactions(GOOD) == []


@pytest.mark.parametrize(("check", "wrong"), BAD, ids=lambda each: getattr(each, "__name__", ""))
def test_each_check_finds_a_violation_of_its_rule(check: Check, wrong: list[Operation]) -> None:
    assert check(wrong) != []


def test_every_check_has_a_history_that_violates_it() -> None:
    assert {check for check, _ in BAD} == set(CHECKS)


def test_a_statement_round_trips_through_its_value() -> None:
    assert [Statement.parse(str(each)) for each in FIRST] == FIRST
    assert Statement.parse(MARK) is None


def test_a_ledger_does_not_depend_on_the_order_of_partitions() -> None:
    statements = [each for transfer in (OPENING, FIRST, SECOND, THIRD) for each in transfer]
    by_account = Ledger()
    for each in sorted(statements, key=lambda statement: statement.account):
        by_account.read(each)
    assert by_account.transfer == 3
    assert sum(by_account.balances.values()) == TOTAL
    assert by_account.balances == {0: 100, 1: 100, 2: 100, 3: 100, 4: 100, 5: 100}


def test_a_read_that_ends_within_a_transfer_is_not_checked() -> None:
    half = [each for each in GOOD if each.kind is not Kind.READ_COMMITTED] + [read(MARK, *OPENING, FIRST[0])]
    assert checks.banks_keep_their_totals(half) == []
