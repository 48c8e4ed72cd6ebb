"""The rules for a history under any faults: pure functions that return the violations.

The final log contains every acknowledged record (acks=all) once, at its offset. Later responses to clients include it,
and offsets that a client has received never go back. Records are strings; those of an idempotent producer end with a
number that counts up per producer: `name:12`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

from compat_tests.netns.history import OFFSETS, Kind, Operation, Outcome, TopicPartition

History = Sequence[Operation]
Check = Callable[[History], list[str]]


def _ok(history: History, *kinds: Kind) -> Iterator[Operation]:
    return (each for each in history if each.kind in kinds and each.outcome is Outcome.OK)


def _name(tp: TopicPartition) -> str:
    return f"{tp[0]}-{tp[1]}"


def _final_logs(history: History) -> dict[TopicPartition, dict[int, str]]:
    logs: dict[TopicPartition, dict[int, str]] = defaultdict(dict)
    for each in _ok(history, Kind.FINAL):
        logs[each.topic_partition].update(enumerate(each.values, each.offset))
    return logs


def no_acknowledged_record_is_lost(history: History) -> list[str]:
    """Every acknowledged record is in the final log, at the offset of its acknowledgement."""
    logs = _final_logs(history)
    stored_values = {tp: set(log.values()) for tp, log in logs.items()}
    broken = []
    for each in _ok(history, Kind.PRODUCE):
        for number, value in enumerate(each.values):
            if each.offset < 0:
                stored = value in stored_values.get(each.topic_partition, ())
            else:
                stored = logs[each.topic_partition].get(each.offset + number) == value
            if not stored:
                at = f" at {each.offset + number}" if each.offset >= 0 else ""
                broken.append(
                    f"{_name(each.topic_partition)}: {value} was acknowledged{at} and is not in the final log"
                )
    return broken


def offsets_keep_their_records(history: History) -> list[str]:
    """Acknowledgements, consumers and the final log agree on the record at each offset."""
    known: dict[tuple[TopicPartition, int], str] = {}
    broken = []
    for each in _ok(history, Kind.PRODUCE, Kind.READ, Kind.FINAL):
        if each.offset < 0:
            continue
        for offset, value in enumerate(each.values, each.offset):
            before = known.setdefault((each.topic_partition, offset), value)
            if before != value:
                broken.append(
                    f"{_name(each.topic_partition)} offset {offset}: {before} before, and {value} later ({each.kind})"
                )
    return broken


def no_record_that_was_read_is_lost(history: History) -> list[str]:
    """Every record that a consumer has read is in the final log."""
    logs = _final_logs(history)
    return [
        f"{_name(each.topic_partition)}: {value} was read at offset {offset} and is not in the final log"
        for each in _ok(history, Kind.READ)
        for offset, value in enumerate(each.values, each.offset)
        if logs[each.topic_partition].get(offset) != value
    ]


def every_record_was_produced(history: History) -> list[str]:
    """Every record in the log was sent by a producer."""
    written = {value for each in history if each.kind is Kind.PRODUCE for value in each.values}
    return [
        f"{_name(tp)}: no producer sent {value}"
        for tp, log in _final_logs(history).items()
        for value in log.values()
        if value not in written
    ]


def consumers_read_consecutive_offsets(history: History) -> list[str]:
    """A consumer skips no offset and reads none twice. A member of a group may start from another offset in each
    generation."""
    positions: dict[tuple[str, int, TopicPartition], int] = {}
    broken = []
    for each in _ok(history, Kind.READ):
        key = each.process, each.generation, each.topic_partition
        expected = positions.get(key, each.offset)
        if each.offset != expected:
            broken.append(f"{each.process} expected {expected} of {_name(each.topic_partition)} and read {each.offset}")
        positions[key] = each.offset + len(each.values)
    return broken


def consumers_read_all_from_their_start_offset(history: History) -> list[str]:
    """A consumer with assigned partitions first reads the record at its start offset, and then every acknowledged
    one."""
    begins = {(each.process, each.topic_partition): each.offset for each in _ok(history, Kind.BEGIN)}
    first: dict[tuple[str, TopicPartition], int] = {}
    read: dict[tuple[str, TopicPartition], set[str]] = defaultdict(set)
    for each in _ok(history, Kind.READ):
        first.setdefault((each.process, each.topic_partition), each.offset)
        read[each.process, each.topic_partition].update(each.values)
    broken = [
        f"{process} should begin at offset {begin} of {_name(tp)} and began at {first[process, tp]}"
        for (process, tp), begin in begins.items()
        if first.get((process, tp), begin) != begin
    ]
    acknowledged: dict[TopicPartition, list[str]] = defaultdict(list)
    for each in _ok(history, Kind.PRODUCE):
        acknowledged[each.topic_partition] += each.values
    return broken + [
        f"{process} did not read {value} of {_name(tp)}"
        for process, tp in begins
        for value in acknowledged[tp]
        if value not in read[process, tp]
    ]


def idempotent_producers_stay_in_order(history: History) -> list[str]:
    """In the final log the numbers of each idempotent producer ascend. Duplicates are the subject of
    `no_idempotent_record_is_duplicated`."""
    idempotent = {value for each in history if each.idempotent for value in each.values}
    broken = []
    for tp, log in _final_logs(history).items():
        last: dict[str, int] = {}
        for offset in sorted(log):
            producer, _, number = log[offset].rpartition(":")
            if log[offset] in idempotent:
                if int(number) < last.get(producer, -1):
                    broken.append(f"{_name(tp)}: {log[offset]} at offset {offset} comes after {last[producer]}")
                last[producer] = max(last.get(producer, -1), int(number))
    return broken


def no_idempotent_record_is_duplicated(history: History) -> list[str]:
    """An idempotent producer's record is in the final log once."""
    idempotent = {value for each in history if each.idempotent for value in each.values}
    broken = []
    for tp, log in _final_logs(history).items():
        seen: dict[str, int] = {}
        for offset in sorted(log):
            if log[offset] in idempotent and log[offset] in seen:
                broken.append(f"{_name(tp)}: {log[offset]} is stored at offsets {seen[log[offset]]} and {offset}")
            seen.setdefault(log[offset], offset)
    return broken


class _Floors:
    """By partition, the largest offset that any client had received before a moment."""

    def __init__(self, seen: Iterable[tuple[TopicPartition, float, int]]) -> None:
        by_partition: dict[TopicPartition, list[tuple[float, int]]] = defaultdict(list)
        for tp, moment, offset in seen:
            by_partition[tp].append((moment, offset))
        self._floors: dict[TopicPartition, tuple[list[float], list[int]]] = {}
        for tp, points in by_partition.items():
            points.sort()
            self._floors[tp] = [m for m, _ in points], list(accumulate((o for _, o in points), max))

    def before(self, tp: TopicPartition, moment: float) -> int:
        moments, floors = self._floors.get(tp, ([], []))
        index = bisect_left(moments, moment)
        return floors[index - 1] if index else 0


class _CutOff:
    """Deposed leaders that do not know of the new leader yet: their responses may be as old as the election of the new
    leader (`deposed_leaders`)."""

    def __init__(self, history: History) -> None:
        self._spans: dict[TopicPartition, list[Operation]] = defaultdict(list)
        for each in _ok(history, Kind.DEPOSED):
            for partition in each.partitions:
                # Clients do not know which partition of the internal topic a group belongs to.
                self._spans[each.topic, -1 if each.topic == OFFSETS else partition].append(each)

    def must_be_current_at(self, request: Operation, tp: TopicPartition) -> float:
        """Return the time from which the response must be current: the start of the request, or an earlier election."""
        spans = self._spans.get(tp, ())
        since = [cut.begin for cut in spans if cut.begin < request.end and request.begin < cut.end]
        return min([request.begin, *since])


def _offsets_below(history: History, floors: _Floors, basis: str) -> list[str]:
    """Find responses with an end offset below one that was known before the request began."""
    cut_off = _CutOff(history)
    return [
        f"{each.process} received end {each.offset} of {_name(each.topic_partition)} at {each.end:.3f}; "
        f"{floor} was {basis} before its request at {each.begin:.3f}"
        for each in _ok(history, Kind.LATEST, Kind.END)
        if (floor := floors.before(each.topic_partition, cut_off.must_be_current_at(each, each.topic_partition)))
        > each.offset
    ]


def end_offsets_include_acknowledged_records(history: History) -> list[str]:
    """An end offset that a client requests or reads after an acknowledgement includes the acknowledged record."""
    acknowledged = (
        (each.topic_partition, each.end, each.offset + len(each.values))
        for each in _ok(history, Kind.PRODUCE)
        if each.offset >= 0
    )
    return _offsets_below(history, _Floors(acknowledged), "acknowledged")


def _seen(history: Iterable[Operation]) -> Iterator[tuple[TopicPartition, float, int]]:
    for each in history:
        if each.outcome is Outcome.OK and each.kind in (Kind.READ, Kind.LATEST, Kind.END):
            yield each.topic_partition, each.end, each.offset + len(each.values)


def end_offsets_do_not_go_back(history: History) -> list[str]:
    """No latest offset is below one that any client received before, or below a record that any client read."""
    return _offsets_below(history, _Floors(_seen(history)), "seen")


def end_offsets_do_not_go_back_for_a_client(history: History) -> list[str]:
    """The latest offsets that one client receives never go back, even from a deposed leader."""
    by_client = defaultdict(list)
    for each in history:
        by_client[each.process].append(each)
    broken = []
    for operations in by_client.values():
        floors = _Floors(_seen(operations))
        broken += [
            f"{each.process} received end {floor} of {_name(each.topic_partition)}, "
            f"and {each.offset} later at {each.end:.3f}"
            for each in _ok(operations, Kind.LATEST, Kind.END)
            if (floor := floors.before(each.topic_partition, each.begin)) > each.offset
        ]
    return broken


def a_partition_has_one_owner(history: History) -> list[str]:
    """Within a generation of a group, no partition has two owners."""
    owners: dict[tuple[str, int, TopicPartition], str] = {}
    broken = []
    for each in _ok(history, Kind.OWNS):
        for partition in each.partitions:
            tp = each.topic, partition
            other = owners.setdefault((each.group, each.generation, tp), each.process)
            if other != each.process:
                broken.append(
                    f"{each.group}, generation {each.generation}: {other} and {each.process} both own {_name(tp)}"
                )
    return broken


def committed_offsets_do_not_go_back(history: History) -> list[str]:
    """OffsetFetch returns no offset below one that was committed or returned before the request, unless a commit
    without a response may have written it."""
    topic_partitions = {
        (each.group, each.topic_partition) for each in history if each.kind in (Kind.COMMIT, Kind.COMMITTED)
    }
    cut_off, broken = _CutOff(history), []
    for group, tp in sorted(topic_partitions):
        operations = [each for each in history if (each.group, each.topic_partition) == (group, tp)]
        known = _Floors((tp, each.end, each.offset) for each in _ok(operations, Kind.COMMIT, Kind.COMMITTED))
        for each in _ok(operations, Kind.COMMITTED):
            floor = known.before(tp, cut_off.must_be_current_at(each, (OFFSETS, -1)))
            perhaps = {
                other.offset
                for other in operations
                if other.kind is Kind.COMMIT and other.outcome is Outcome.INFO and other.begin < each.end
            }
            if max(each.offset, 0) < floor and each.offset not in perhaps:
                broken.append(
                    f"{group}: {each.process} received committed offset {each.offset} of {_name(tp)} at "
                    f"{each.end:.3f}; it was {floor} before its request at {each.begin:.3f}"
                )
    return broken


def groups_read_all_records(history: History) -> list[str]:
    """The members of a group read every acknowledged record of its topics."""
    read: dict[tuple[str, TopicPartition], set[str]] = defaultdict(set)
    topics = defaultdict(set)
    for each in _ok(history, Kind.READ):
        if each.group:
            read[each.group, each.topic_partition].update(each.values)
            topics[each.topic].add(each.group)
    return [
        f"{group}: {value} of {_name(each.topic_partition)} was not read by any member"
        for each in _ok(history, Kind.PRODUCE)
        for group in sorted(topics[each.topic])
        for value in each.values
        if value not in read[group, each.topic_partition]
    ]


def last_owners(history: History, group: str) -> dict[str, tuple[int, ...]]:
    """Return the assignments of the newest generation by member."""
    assignments = [each for each in _ok(history, Kind.OWNS) if each.group == group]
    newest = max((each.generation for each in assignments), default=-1)
    return {each.process: each.partitions for each in assignments if each.generation == newest}


def acknowledged_by_another(history: History, tp: TopicPartition, leader: int, since: float) -> float | None:
    """Return the time of the first acknowledgement, by another broker than `leader`, of a record sent after `since`,
    or None."""
    ends = [
        each.end
        for each in _ok(history, Kind.PRODUCE)
        if each.topic_partition == tp and each.leader not in (-1, leader) and each.begin > since
    ]
    return min(ends, default=None)


CHECKS: tuple[Check, ...] = (
    no_acknowledged_record_is_lost,
    offsets_keep_their_records,
    no_record_that_was_read_is_lost,
    every_record_was_produced,
    consumers_read_consecutive_offsets,
    consumers_read_all_from_their_start_offset,
    idempotent_producers_stay_in_order,
    no_idempotent_record_is_duplicated,
    end_offsets_include_acknowledged_records,
    end_offsets_do_not_go_back,
    end_offsets_do_not_go_back_for_a_client,
    a_partition_has_one_owner,
    committed_offsets_do_not_go_back,
    groups_read_all_records,
)


def broken_rules(history: History) -> list[str]:
    """Return all violations, each with its rule's name."""
    return [f"{check.__name__}: {each}" for check in CHECKS for each in check(history)]
