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

from compat_tests.netns.history import OFFSETS, Operation, Outcome, Place, What

History = Sequence[Operation]
Check = Callable[[History], list[str]]


def _ok(history: History, *whats: What) -> Iterator[Operation]:
    return (each for each in history if each.what in whats and each.outcome is Outcome.OK)


def _name(place: Place) -> str:
    return f"{place[0]}-{place[1]}"


def _final_logs(history: History) -> dict[Place, dict[int, str]]:
    logs: dict[Place, dict[int, str]] = defaultdict(dict)
    for each in _ok(history, What.FINAL):
        logs[each.place].update(enumerate(each.values, each.offset))
    return logs


def nothing_acknowledged_is_lost(history: History) -> list[str]:
    """Every acknowledged record is in the final log, at the offset of its acknowledgement."""
    logs = _final_logs(history)
    whole = {place: set(log.values()) for place, log in logs.items()}
    broken = []
    for each in _ok(history, What.PRODUCE):
        for number, value in enumerate(each.values):
            if each.offset < 0:
                there = value in whole.get(each.place, ())
            else:
                there = logs[each.place].get(each.offset + number) == value
            if not there:
                at = f" at {each.offset + number}" if each.offset >= 0 else ""
                broken.append(f"{_name(each.place)}: {value} was acknowledged{at} and is not in the final log")
    return broken


def offsets_keep_their_records(history: History) -> list[str]:
    """Acknowledgements, consumers and the final log agree on the record at each offset."""
    known: dict[tuple[Place, int], str] = {}
    broken = []
    for each in _ok(history, What.PRODUCE, What.READ, What.FINAL):
        if each.offset < 0:
            continue
        for offset, value in enumerate(each.values, each.offset):
            before = known.setdefault((each.place, offset), value)
            if before != value:
                broken.append(f"{_name(each.place)} offset {offset}: {before} before, and {value} later ({each.what})")
    return broken


def what_was_read_stays(history: History) -> list[str]:
    """Every record that a consumer has read is in the final log."""
    logs = _final_logs(history)
    return [
        f"{_name(each.place)}: {value} was read at offset {offset} and is not in the final log"
        for each in _ok(history, What.READ)
        for offset, value in enumerate(each.values, each.offset)
        if logs[each.place].get(offset) != value
    ]


def nothing_comes_from_nowhere(history: History) -> list[str]:
    """Every record in the log was sent by a producer."""
    written = {value for each in history if each.what is What.PRODUCE for value in each.values}
    return [
        f"{_name(place)}: no producer sent {value}"
        for place, log in _final_logs(history).items()
        for value in log.values()
        if value not in written
    ]


def consumers_miss_nothing(history: History) -> list[str]:
    """A consumer reads consecutive offsets: it neither skips nor goes back. A group's member may start from another
    offset in each generation."""
    positions: dict[tuple[str, int, Place], int] = {}
    broken = []
    for each in _ok(history, What.READ):
        key = each.process, each.generation, each.place
        expected = positions.get(key, each.offset)
        if each.offset != expected:
            broken.append(f"{each.process} expected {expected} of {_name(each.place)} and read {each.offset}")
        positions[key] = each.offset + len(each.values)
    return broken


def consumers_read_on_from_where_they_begin(history: History) -> list[str]:
    """A consumer with assigned partitions first reads the record at its start offset, and then every acknowledged
    one."""
    begins = {(each.process, each.place): each.offset for each in _ok(history, What.BEGIN)}
    first: dict[tuple[str, Place], int] = {}
    got: dict[tuple[str, Place], set[str]] = defaultdict(set)
    for each in _ok(history, What.READ):
        first.setdefault((each.process, each.place), each.offset)
        got[each.process, each.place].update(each.values)
    broken = [
        f"{process} should begin at offset {begin} of {_name(place)} and began at {first[process, place]}"
        for (process, place), begin in begins.items()
        if first.get((process, place), begin) != begin
    ]
    acknowledged: dict[Place, list[str]] = defaultdict(list)
    for each in _ok(history, What.PRODUCE):
        acknowledged[each.place] += each.values
    return broken + [
        f"{process} did not read {value} of {_name(place)}"
        for process, place in begins
        for value in acknowledged[place]
        if value not in got[process, place]
    ]


def idempotent_producers_stay_in_order(history: History) -> list[str]:
    """In the final log the numbers of each idempotent producer ascend; `nothing_is_there_twice` finds duplicates."""
    idempotent = {value for each in history if each.idempotent for value in each.values}
    broken = []
    for place, log in _final_logs(history).items():
        last: dict[str, int] = {}
        for offset in sorted(log):
            producer, _, number = log[offset].rpartition(":")
            if log[offset] in idempotent:
                if int(number) < last.get(producer, -1):
                    broken.append(f"{_name(place)}: {log[offset]} at offset {offset} comes after {last[producer]}")
                last[producer] = max(last.get(producer, -1), int(number))
    return broken


def nothing_is_there_twice(history: History) -> list[str]:
    """An idempotent producer's record is in the final log once."""
    idempotent = {value for each in history if each.idempotent for value in each.values}
    broken = []
    for place, log in _final_logs(history).items():
        seen: dict[str, int] = {}
        for offset in sorted(log):
            if log[offset] in idempotent and log[offset] in seen:
                broken.append(f"{_name(place)}: {log[offset]} is stored at offsets {seen[log[offset]]} and {offset}")
            seen.setdefault(log[offset], offset)
    return broken


class _Floors:
    """Per place, the largest offset that any client had received before a moment."""

    def __init__(self, seen: Iterable[tuple[Place, float, int]]) -> None:
        by_place: dict[Place, list[tuple[float, int]]] = defaultdict(list)
        for place, moment, offset in seen:
            by_place[place].append((moment, offset))
        self._floors: dict[Place, tuple[list[float], list[int]]] = {}
        for place, points in by_place.items():
            points.sort()
            self._floors[place] = [m for m, _ in points], list(accumulate((o for _, o in points), max))

    def before(self, place: Place, moment: float) -> int:
        moments, floors = self._floors.get(place, ([], []))
        index = bisect_left(moments, moment)
        return floors[index - 1] if index else 0


class _CutOff:
    """Deposed leaders that are cut off and do not yet know of the new leader: their responses may be as old as its
    election (`deposed_leaders`)."""

    def __init__(self, history: History) -> None:
        self._spans: dict[Place, list[Operation]] = defaultdict(list)
        for each in _ok(history, What.DEPOSED):
            for partition in each.partitions:
                # Clients do not know which partition of the internal topic a group belongs to.
                self._spans[each.topic, -1 if each.topic == OFFSETS else partition].append(each)

    def asked_as_of(self, question: Operation, place: Place) -> float:
        """Return the moment up to which the response must be current: the request's, or an earlier election's."""
        spans = self._spans.get(place, ())
        since = [cut.begin for cut in spans if cut.begin < question.end and question.begin < cut.end]
        return min([question.begin, *since])


def _offsets_below(history: History, floors: _Floors, what: str) -> list[str]:
    """Find responses with an end offset below one that was known before the request began."""
    cut_off = _CutOff(history)
    return [
        f"{each.process} received end {each.offset} of {_name(each.place)} at {each.end:.3f}; "
        f"{floor} was {what} before its request at {each.begin:.3f}"
        for each in _ok(history, What.LATEST, What.END)
        if (floor := floors.before(each.place, cut_off.asked_as_of(each, each.place))) > each.offset
    ]


def no_read_is_stale(history: History) -> list[str]:
    """After an acknowledgement, a client that requests the end offset or reads to the end gets past that record."""
    acknowledged = (
        (each.place, each.end, each.offset + len(each.values))
        for each in _ok(history, What.PRODUCE)
        if each.offset >= 0
    )
    return _offsets_below(history, _Floors(acknowledged), "acknowledged")


def _seen(history: Iterable[Operation]) -> Iterator[tuple[Place, float, int]]:
    for each in history:
        if each.outcome is Outcome.OK and each.what in (What.READ, What.LATEST, What.END):
            yield each.place, each.end, each.offset + len(each.values)


def ends_do_not_go_back(history: History) -> list[str]:
    """No latest offset is below one that any client received before, or below a record that any client read."""
    return _offsets_below(history, _Floors(_seen(history)), "seen")


def no_client_sees_an_end_go_back(history: History) -> list[str]:
    """The latest offsets that one client receives never go back, even from a deposed leader."""
    by_client = defaultdict(list)
    for each in history:
        by_client[each.process].append(each)
    broken = []
    for its in by_client.values():
        floors = _Floors(_seen(its))
        broken += [
            f"{each.process} received end {floor} of {_name(each.place)}, and {each.offset} later at {each.end:.3f}"
            for each in _ok(its, What.LATEST, What.END)
            if (floor := floors.before(each.place, each.begin)) > each.offset
        ]
    return broken


def a_partition_has_one_owner(history: History) -> list[str]:
    """Within a generation of a group, no partition has two owners."""
    owners: dict[tuple[str, int, Place], str] = {}
    broken = []
    for each in _ok(history, What.OWNS):
        for partition in each.partitions:
            place = each.topic, partition
            other = owners.setdefault((each.group, each.generation, place), each.process)
            if other != each.process:
                broken.append(
                    f"{each.group}, generation {each.generation}: {other} and {each.process} both own {_name(place)}"
                )
    return broken


def committed_offsets_do_not_go_back(history: History) -> list[str]:
    """OffsetFetch returns no offset below one that was committed or returned before the request, unless a commit
    without a response may have written it."""
    places = {(each.group, each.place) for each in history if each.what in (What.COMMIT, What.COMMITTED)}
    cut_off, broken = _CutOff(history), []
    for group, place in sorted(places):
        its = [each for each in history if (each.group, each.place) == (group, place)]
        known = _Floors((place, each.end, each.offset) for each in _ok(its, What.COMMIT, What.COMMITTED))
        for each in _ok(its, What.COMMITTED):
            floor = known.before(place, cut_off.asked_as_of(each, (OFFSETS, -1)))
            perhaps = {
                other.offset
                for other in its
                if other.what is What.COMMIT and other.outcome is Outcome.INFO and other.begin < each.end
            }
            if max(each.offset, 0) < floor and each.offset not in perhaps:
                broken.append(
                    f"{group}: {each.process} received committed offset {each.offset} of {_name(place)} at "
                    f"{each.end:.3f}; it was {floor} before its request at {each.begin:.3f}"
                )
    return broken


def groups_read_everything(history: History) -> list[str]:
    """The members of a group read every acknowledged record of its topics."""
    read: dict[tuple[str, Place], set[str]] = defaultdict(set)
    topics = defaultdict(set)
    for each in _ok(history, What.READ):
        if each.group:
            read[each.group, each.place].update(each.values)
            topics[each.topic].add(each.group)
    return [
        f"{group}: {value} of {_name(each.place)} was not read by any member"
        for each in _ok(history, What.PRODUCE)
        for group in sorted(topics[each.topic])
        for value in each.values
        if value not in read[group, each.place]
    ]


def last_owners(history: History, group: str) -> dict[str, tuple[int, ...]]:
    """Return the assignments of the newest generation by member."""
    assignments = [each for each in _ok(history, What.OWNS) if each.group == group]
    newest = max((each.generation for each in assignments), default=-1)
    return {each.process: each.partitions for each in assignments if each.generation == newest}


def acknowledged_by_another(history: History, place: Place, leader: int, since: float) -> float | None:
    """Return when the first record sent after `since` to another broker than `leader` was acknowledged, or None."""
    ends = [
        each.end
        for each in _ok(history, What.PRODUCE)
        if each.place == place and each.leader not in (-1, leader) and each.begin > since
    ]
    return min(ends, default=None)


CHECKS: tuple[Check, ...] = (
    nothing_acknowledged_is_lost,
    offsets_keep_their_records,
    what_was_read_stays,
    nothing_comes_from_nowhere,
    consumers_miss_nothing,
    consumers_read_on_from_where_they_begin,
    idempotent_producers_stay_in_order,
    nothing_is_there_twice,
    no_read_is_stale,
    ends_do_not_go_back,
    no_client_sees_an_end_go_back,
    a_partition_has_one_owner,
    committed_offsets_do_not_go_back,
    groups_read_everything,
)


def broken_rules(history: History) -> list[str]:
    """Return all violations, each with its rule's name."""
    return [f"{check.__name__}: {each}" for check in CHECKS for each in check(history)]
