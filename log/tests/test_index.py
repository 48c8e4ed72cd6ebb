"""The sparse indexes: their bytes, look-ups, Kafka's preallocated zeros, and entries out of order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek_log.index import OffsetIndex, TimeIndex

_ENTRIES = st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 1000)), max_size=40)


def _offsets(steps: list[tuple[int, int]]) -> tuple[OffsetIndex, list[tuple[int, int]]]:
    index, entries, offset, position = OffsetIndex(), [], 0, 0
    for step, size in steps:
        offset, position = offset + step, position + size
        index.append(offset, position)
        entries.append((offset, position))
    return index, entries


def _times(steps: list[tuple[int, int]]) -> tuple[TimeIndex, list[tuple[int, int]]]:
    index, entries, time, offset = TimeIndex(), [], 0, 0
    for later, step in steps:
        time, offset = time + later, offset + step
        index.maybe_append(time, offset)
        entries.append((time, offset))
    return index, entries


@given(_ENTRIES, st.integers(0, 50_000))
def test_a_lookup_finds_the_last_entry_that_is_not_above(steps: list[tuple[int, int]], wanted: int) -> None:
    index, entries = _offsets(steps)
    assert index.lookup(wanted) == max((position for offset, position in entries if offset <= wanted), default=0)
    below, above = index.around(wanted)
    assert below == max((position for offset, position in entries if offset < wanted), default=0)
    assert above == min((position for offset, position in entries if offset >= wanted), default=-1)
    times, pairs = _times(steps)
    assert times.lookup(wanted) == max((offset for time, offset in pairs if time <= wanted), default=0)


@given(_ENTRIES, st.integers(0, 3))
def test_entries_are_big_endian_and_preallocated_zeros_are_ignored(steps: list[tuple[int, int]], padding: int) -> None:
    index, entries = _offsets(steps)
    data = b"".join(offset.to_bytes(4, "big") + position.to_bytes(4, "big") for offset, position in entries)
    assert index.to_bytes() == data
    again = OffsetIndex.from_bytes(data + bytes(8 * padding))
    assert again is not None
    assert list(zip(again.offsets, again.positions, strict=True)) == entries
    times, pairs = _times(steps)
    data = b"".join(time.to_bytes(8, "big") + offset.to_bytes(4, "big") for time, offset in pairs)
    assert times.to_bytes() == data
    loaded = TimeIndex.from_bytes(data + bytes(12 * padding))
    assert loaded is not None
    assert [loaded.entry(at) for at in range(len(loaded))] == pairs


@given(_ENTRIES, st.integers(0, 50_000))
def test_truncation_removes_the_entries_at_or_above_the_offset(steps: list[tuple[int, int]], end: int) -> None:
    index, entries = _offsets(steps)
    index.truncate(end)
    assert list(zip(index.offsets, index.positions, strict=True)) == [entry for entry in entries if entry[0] < end]
    times, pairs = _times(steps)
    times.truncate(end)
    kept = [pair for pair in pairs if pair[1] < end]
    assert [times.entry(at) for at in range(len(times))] == kept
    assert times.last == (kept[-1] if kept else (-1, 0))


def test_a_timestamp_that_is_not_newer_gets_no_entry() -> None:
    index = TimeIndex()
    index.maybe_append(10, 1)
    index.maybe_append(10, 2)
    index.maybe_append(9, 3)
    index.maybe_append(11, 4)
    assert [index.entry(0), index.entry(1), len(index)] == [(10, 1), (11, 4), 2]


def test_an_index_with_entries_out_of_order_is_rejected() -> None:
    assert OffsetIndex.from_bytes(bytes.fromhex("00000009000000010000000200000009")) is None
    assert TimeIndex.from_bytes(bytes.fromhex("000000000000000900000001000000000000000200000009")) is None
