"""The rules for transactions under any faults: pure functions that return the violations.

The final log contains all records of a transaction whose commit was acknowledged, once each. It contains no record of
an aborted transaction, and no read_committed consumer ever read one. All records of a
transaction with unknown outcome are in the log, or none.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from compat_tests.netns.bank import Statement, wrong_sums
from compat_tests.netns.checks import Check, History
from compat_tests.netns.history import Kind, Operation, Outcome, TopicPartition, source_of, target_of


def _of(history: History, kind: Kind) -> Iterator[Operation]:
    return (each for each in history if each.kind is kind)


def _committed(history: History) -> Counter[str]:
    """Return how often each value is in the committed logs."""
    return Counter(value for each in _of(history, Kind.COMMITTED_LOG) for value in each.values)


def _read_by(history: History) -> dict[tuple[str, TopicPartition], list[str]]:
    """Return the reads of each consumer in order."""
    found: dict[tuple[str, TopicPartition], list[str]] = defaultdict(list)
    for each in _of(history, Kind.READ_COMMITTED):
        found[each.process, each.topic_partition] += each.values
    return found


def transactions_are_whole(history: History) -> list[str]:
    """The log has all records of a transaction or none, as the producer's response says."""
    committed, broken = _committed(history), []
    for each in _of(history, Kind.TRANSACTION):
        found = [value for value in each.values if committed[value]]
        whole = len(found) == len(each.values)
        if each.outcome is Outcome.OK and not whole:
            broken.append(f"{each.process} committed {each.values}, and the log has only {found}")
        elif each.outcome is Outcome.FAIL and found:
            broken.append(f"{each.process} did not commit {each.values}, and the log has {found}")
        elif each.outcome is Outcome.INFO and found and not whole:
            broken.append(f"{each.process} may have committed {each.values}, and the log has only {found}")
    return broken


def no_committed_record_is_duplicated(history: History) -> list[str]:
    """A committed record is in the final log once."""
    return [f"{value} is in the log {count} times" for value, count in _committed(history).items() if count > 1]


def no_uncommitted_record_is_read(history: History) -> list[str]:
    """A read_committed consumer reads no record that is not in the final log."""
    committed = _committed(history)
    return [
        f"{process} read {value}, which is not committed"
        for (process, _), values in _read_by(history).items()
        for value in values
        if not committed[value]
    ]


def consumers_read_a_prefix_of_committed_records(history: History) -> list[str]:
    """A consumer that starts at offset 0 has always read a prefix of the final committed records."""
    logs: dict[TopicPartition, list[str]] = defaultdict(list)
    for each in _of(history, Kind.COMMITTED_LOG):
        logs[each.topic_partition] += each.values
    broken = []
    for (process, tp), values in _read_by(history).items():
        pairs = zip(values, logs[tp], strict=False)
        for number, (read, expected) in enumerate(pairs):
            if read != expected:
                broken.append(f"{process} read {read} of {tp} as record {number}, expected {expected}")
                break
    return broken


def banks_keep_their_totals(history: History) -> list[str]:
    """The sum of each bank's balances is constant, in the final log and for every reader."""
    banks = {each.topic for each in _of(history, Kind.TRANSACTION) if not each.group}
    read: dict[tuple[str, str, Kind], list[Statement]] = defaultdict(list)
    for each in history:
        if each.topic in banks and each.kind in (Kind.READ_COMMITTED, Kind.COMMITTED_LOG):
            read[each.process, each.topic, each.kind] += filter(None, map(Statement.parse, each.values))
    return [
        f"{process}: {wrong}"
        for (process, _, kind), statements in read.items()
        for wrong in wrong_sums(statements, to_the_end=kind is Kind.COMMITTED_LOG)
    ]


def every_record_is_copied_once(history: History) -> list[str]:
    """Every acknowledged record of a source topic is in its target topic exactly once."""
    copies: dict[str, Counter[str]] = defaultdict(Counter)
    for each in _of(history, Kind.COMMITTED_LOG):
        copies[each.topic].update(map(source_of, each.values))
    targets = {each.topic for each in _of(history, Kind.TRANSACTION) if each.group}
    return [
        f"{value} is {found} times in {target}"
        for each in _of(history, Kind.PRODUCE)
        if each.outcome is Outcome.OK and (target := target_of(each.topic)) in targets
        for value in each.values
        if (found := copies[target][value]) != 1
    ]


CHECKS: tuple[Check, ...] = (
    transactions_are_whole,
    no_committed_record_is_duplicated,
    no_uncommitted_record_is_read,
    consumers_read_a_prefix_of_committed_records,
    banks_keep_their_totals,
    every_record_is_copied_once,
)


def broken_transactions(history: History) -> list[str]:
    """Return all violations, each with its rule's name."""
    return [f"{check.__name__}: {each}" for check in CHECKS for each in check(history)]
