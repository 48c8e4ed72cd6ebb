"""The rules for transactions under any faults: pure functions that return the violations.

The final log contains all records of a transaction whose commit was acknowledged, once each. It contains no record of
an aborted transaction, and no read_committed consumer ever read one. A transaction of unknown outcome is there as a
whole or not at all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from compat_tests.netns.bank import Statement, wrong_sums
from compat_tests.netns.checks import Check, History
from compat_tests.netns.history import Operation, Outcome, Place, What, source_of, target_of


def _of(history: History, what: What) -> Iterator[Operation]:
    return (each for each in history if each.what is what)


def _there(history: History) -> Counter[str]:
    return Counter(value for each in _of(history, What.COMMITTED_LOG) for value in each.values)


def _read_by(history: History) -> dict[tuple[str, Place], list[str]]:
    """Return the reads of each consumer in order."""
    found: dict[tuple[str, Place], list[str]] = defaultdict(list)
    for each in _of(history, What.READ_COMMITTED):
        found[each.process, each.place] += each.values
    return found


def transactions_are_whole(history: History) -> list[str]:
    """The log has all records of a transaction or none, as the producer's response says."""
    there, broken = _there(history), []
    for each in _of(history, What.TRANSACTION):
        found = [value for value in each.values if there[value]]
        whole = len(found) == len(each.values)
        if each.outcome is Outcome.OK and not whole:
            broken.append(f"{each.process} committed {each.values}, and there is only {found}")
        elif each.outcome is Outcome.FAIL and found:
            broken.append(f"{each.process} did not commit {each.values}, and there is {found}")
        elif each.outcome is Outcome.INFO and found and not whole:
            broken.append(f"{each.process} may have committed {each.values}, and there is only {found}")
    return broken


def nothing_committed_is_there_twice(history: History) -> list[str]:
    return [f"{value} is there {count} times" for value, count in _there(history).items() if count > 1]


def nobody_reads_what_is_not_committed(history: History) -> list[str]:
    there = _there(history)
    return [
        f"{process} read {value}, which is not committed"
        for (process, _), values in _read_by(history).items()
        for value in values
        if not there[value]
    ]


def readers_get_what_is_committed_in_order(history: History) -> list[str]:
    """A consumer that starts at offset 0 has always read a prefix of the final committed records."""
    logs: dict[Place, list[str]] = defaultdict(list)
    for each in _of(history, What.COMMITTED_LOG):
        logs[each.place] += each.values
    broken = []
    for (process, place), values in _read_by(history).items():
        pairs = zip(values, logs[place], strict=False)
        for number, (got, wanted) in enumerate(pairs):
            if got != wanted:
                broken.append(f"{process} got {got} of {place} as record {number}, where {wanted} is")
                break
    return broken


def no_money_is_made_or_lost(history: History) -> list[str]:
    """The sum of each bank's balances is constant, in the final log and for every reader."""
    banks = {each.topic for each in _of(history, What.TRANSACTION) if not each.group}
    got: dict[tuple[str, str, What], list[Statement]] = defaultdict(list)
    for each in history:
        if each.topic in banks and each.what in (What.READ_COMMITTED, What.COMMITTED_LOG):
            got[each.process, each.topic, each.what] += filter(None, map(Statement.parse, each.values))
    return [
        f"{process}: {wrong}"
        for (process, _, what), statements in got.items()
        for wrong in wrong_sums(statements, to_the_end=what is What.COMMITTED_LOG)
    ]


def everything_is_passed_on_once(history: History) -> list[str]:
    """Every acknowledged record of a source topic is in its target topic exactly once."""
    there: dict[str, Counter[str]] = defaultdict(Counter)
    for each in _of(history, What.COMMITTED_LOG):
        there[each.topic].update(map(source_of, each.values))
    targets = {each.topic for each in _of(history, What.TRANSACTION) if each.group}
    return [
        f"{value} is {found} times in {target}"
        for each in _of(history, What.PRODUCE)
        if each.outcome is Outcome.OK and (target := target_of(each.topic)) in targets
        for value in each.values
        if (found := there[target][value]) != 1
    ]


CHECKS: tuple[Check, ...] = (
    transactions_are_whole,
    nothing_committed_is_there_twice,
    nobody_reads_what_is_not_committed,
    readers_get_what_is_committed_in_order,
    no_money_is_made_or_lost,
    everything_is_passed_on_once,
)


def broken_transactions(history: History) -> list[str]:
    """Return all violations, each with its rule's name."""
    return [f"{check.__name__}: {each}" for check in CHECKS for each in check(history)]
