"""The rules of the bank: a broken one is found in the statements."""

from __future__ import annotations

import pytest

from simulation.bank_checks import ACCOUNTS, OPENING_BALANCE, BankChecks, Ledger, Statement
from simulation.checks import Violation
from simulation.transaction_checks import TransactionChecks

OPENING = [Statement(b"t", 0, account, OPENING_BALANCE, 1) for account in range(ACCOUNTS)]


def transfer(number: int, attempt: int, balances: dict[int, int], producer: bytes = b"t") -> list[Statement]:
    return [Statement(producer, number, account, balance, attempt) for account, balance in balances.items()]


FIRST = transfer(1, 2, {0: OPENING_BALANCE - 5, 3: OPENING_BALANCE + 5})


def ledger(*statements: Statement) -> Ledger:
    return Ledger([b"t:barrier:0#3", *(each.value() for each in statements)])


def test_a_statement_round_trips_through_its_value() -> None:
    assert [Statement.parse(each.value()) for each in FIRST] == FIRST


def test_a_ledger_accepts_statements_in_any_order() -> None:
    found = ledger(FIRST[1], *reversed(OPENING), FIRST[0])
    assert (found.transfers, found.wrong) == (2, "")
    assert found.balances == dict.fromkeys(range(ACCOUNTS), OPENING_BALANCE) | {0: 95, 3: 105}


@pytest.mark.parametrize(
    ("statements", "wrong"),
    [
        (FIRST[:1], "transfer 1 is stored in part"),
        (transfer(2, 3, {0: 99, 1: 101}), "transfer 1 is stored in part"),
        ([*FIRST, *transfer(1, 1, {1: 90, 2: 110}, b"other")], "transfer 1 was made more than once"),
        (transfer(1, 2, {0: 95, 3: 104}), "the sum of all accounts after transfer 1 is 599"),
    ],
    ids=["half", "none", "twice", "sum"],
)
def test_a_ledger_names_the_broken_rule(statements: list[Statement], wrong: str) -> None:
    assert wrong in ledger(*OPENING, *statements).wrong


def test_a_missing_transfer_is_found() -> None:
    bank = BankChecks(TransactionChecks(lambda violation: None))
    bank.transferred(2)
    bank.found(ledger(*OPENING, *FIRST))
    with pytest.raises(Violation, match="2 transfers were committed, 1 are stored"):
        bank.found(ledger(*OPENING))


def test_a_fenced_producer_ends_no_transaction() -> None:
    checks = TransactionChecks(lambda violation: None)
    checks.begun("id", (7, 0))
    checks.begun("id", (7, 1))
    assert checks.is_fenced("id", (7, 0))
    assert not checks.is_fenced("id", (7, 1))
    checks.writing(b"t#1", [b"t:1#1"])
    checks.ending(b"t#1", "id", (7, 0), commit=True)
    with pytest.raises(Violation, match="was aborted or is open"):
        checks.read(("accounts", 0), 0, b"t:1#1")
    with pytest.raises(Violation, match="was ended by a fenced producer"):
        checks.ended(b"t#1", commit=True)
    with pytest.raises(Violation, match="twice"):
        checks.begun("id", (7, 1))
