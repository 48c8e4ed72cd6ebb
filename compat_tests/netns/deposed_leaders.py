"""The leaders of each partition over time, from the controller's writes in ZooKeeper's transaction log.

A deposed leader that is cut off serves old offsets until it learns of the new leader: to clients that do not know the
new leader either, and to requests for a group's committed offsets, because these carry no coordinator epoch. Kafka's
leaders do the same: a leader does not consult other brokers before it responds. `deposed` returns which broker may have
served old offsets of which partition, and when. The checks excuse these responses and no others.
"""

from __future__ import annotations

import json
import re
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from compat_tests.netns.history import TopicPartition

_LEARNS_OF_SUCCESSOR_MAX_S = 5.0
"""The longest time until a deposed leader that stays in the ISR learns of the new leader, on a busy machine. If it
takes longer, the broker leaves the ISR, because it does not fetch from the new leader."""

_STATE = re.compile(r".*/brokers/topics/([^/]+)/partitions/([0-9]+)/state")
_FILE_HEADER = 16
_ENTRY = struct.Struct(">qi")
_TXN = struct.Struct(">qiqqi")
_INT = struct.Struct(">i")
_CREATE, _SET_DATA, _CREATE_2, _MULTI, _ERROR = 1, 5, 15, 14, -1


class State(NamedTuple):
    """The state of a partition from `moment` on (wall clock, in seconds)."""

    moment: float
    topic_partition: TopicPartition
    leader: int
    isr: tuple[int, ...]


class Span(NamedTuple):
    """The time after another broker's election during which `broker`, the former leader, may not know of it."""

    broker: int
    topic_partition: TopicPartition
    begin: float
    end: float


def states(directory: Path) -> list[State]:
    """Read the states of all partitions, in order, from the data directory of a ZooKeeper server, which may be
    running."""
    found: dict[int, list[State]] = {}
    for file in directory.glob("version-2/log.*"):
        for zxid, moment, kind, body in _transactions(file):
            found[zxid] = [
                State(moment, (match[1], int(match[2])), stored["leader"], tuple(stored["isr"]))
                for path, data in _writes(kind, body)
                if (match := _STATE.fullmatch(path)) and (stored := json.loads(data))
            ]
    return [state for zxid in sorted(found) for state in found[zxid]]


def deposed(states: Iterable[State], deaths: Iterable[tuple[int, float]], now: float) -> list[Span]:
    """Return a span for each leader that was deposed while it was alive. `deaths` are brokers and the times at which
    they were dead. A span ends when the broker is back in the ISR (it then follows the new leader), when it dies, or
    now."""
    died = defaultdict(list)
    for broker, moment in sorted(deaths, key=lambda death: death[1]):
        died[broker].append(moment)
    by_partition = defaultdict(list)
    for state in states:
        by_partition[state.topic_partition].append(state)
    spans = []
    for tp, partition_states in by_partition.items():
        leader, since = -1, 0.0
        for number, state in enumerate(partition_states):
            if state.leader in (-1, leader):
                continue
            if leader != -1:
                end = min(
                    [
                        now,
                        _learns_of_successor(leader, partition_states[number:]),
                        *(each for each in died[leader] if each >= since),
                    ]
                )
                if end > state.moment:
                    spans.append(Span(leader, tp, state.moment, end))
            leader, since = state.leader, state.moment
    return sorted(spans, key=lambda span: span.begin)


def _learns_of_successor(broker: int, states: list[State]) -> float:
    """Return the time at which the broker knows of its successor; the first of `states` is the successor's election."""
    soon, out = states[0].moment + _LEARNS_OF_SUCCESSOR_MAX_S, False
    for state in states:
        if not out and state.moment > soon:
            return soon
        if out and broker in state.isr:
            return state.moment
        out = out or broker not in state.isr
    return float("inf") if out else soon


def _transactions(file: Path) -> Iterator[tuple[int, float, int, bytes]]:
    """Yield zxid, moment, type and body of each transaction. After the last one the file has zeros or an incomplete
    entry."""
    with file.open("rb") as log:
        log.seek(_FILE_HEADER)
        while len(head := log.read(_ENTRY.size)) == _ENTRY.size:
            _, length = _ENTRY.unpack(head)
            entry = log.read(length + 1)
            if length < _TXN.size or len(entry) <= length or entry[-1:] != b"B":
                return
            _, _, zxid, time_ms, kind = _TXN.unpack_from(entry)
            yield zxid, time_ms / 1000, kind, entry[_TXN.size :]


def _writes(kind: int, body: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield paths and their new contents; nothing for a multi that failed."""
    if kind in (_CREATE, _CREATE_2, _SET_DATA):
        path, position = _buffer(body, 0)
        data, _ = _buffer(body, position)
        yield path.decode(), data
    elif kind == _MULTI:
        (count,), position, parts = _INT.unpack_from(body), _INT.size, []
        for _ in range(count):
            (inner,) = _INT.unpack_from(body, position)
            part, position = _buffer(body, position + _INT.size)
            parts.append((inner, part))
        if not any(inner == _ERROR for inner, _ in parts):
            for each in parts:
                yield from _writes(*each)


def _buffer(body: bytes, position: int) -> tuple[bytes, int]:
    """Return the buffer's bytes (empty for null) and the position after it."""
    length = max(0, *_INT.unpack_from(body, position))
    begin = position + _INT.size
    return body[begin : begin + length], begin + length
