"""The offset map: the last offset of each key, in bounded memory that is freed in steps."""

from __future__ import annotations

import pytest

from odradek_log.cleaner.offset_map import BYTES_PER_ENTRY, OffsetMap

MANY = 60_000


def key(number: int) -> bytes:
    """Return a key; some are longer than the keys that the map keeps."""
    return b"%d" % number if number % 3 else b"a key of more than 24 bytes, %d" % number


def test_the_map_has_the_last_offset_of_many_keys() -> None:
    offsets = OffsetMap(1 << 30, 0.9)
    keys = [key(number % MANY) for number in range(2 * MANY)]
    for first in range(0, len(keys), 1000):
        assert offsets.put(keys[first : first + 1000], range(first, first + 1000))
    assert len(offsets) == MANY
    assert offsets.superseded(keys, range(2 * MANY)) == list(range(MANY))
    assert offsets.superseded([None, b"unknown"], [0, 1]) == []


@pytest.mark.parametrize("capacity", [1, 50, MANY])
def test_a_full_map_has_the_latest_offset_of_its_last_key(capacity: int) -> None:
    offsets = OffsetMap(capacity * BYTES_PER_ENTRY, 1.0)
    # Each key twice: the second time it takes no room.
    keys = [key(number // 2) for number in range(2 * capacity + 9)]
    took = 0
    while offsets.put(keys[took : took + 100], range(took, min(took + 100, len(keys)))):
        took += 100
    assert (len(offsets), offsets.utilization) == (capacity, 1.0)
    # Like Kafka's, a full map does not check whether it has the next key.
    assert offsets.latest_offset == 2 * capacity - 2
    assert not offsets.put([key(0)], [len(keys)])


def test_the_memory_of_the_map_is_freed_in_steps() -> None:
    offsets = OffsetMap(1 << 30, 0.9)
    offsets.put([key(number) for number in range(MANY)], range(MANY))
    turns = 1
    while offsets.free(1000):
        assert len(offsets) == MANY - 1000 * turns
        turns += 1
    assert (turns, len(offsets)) == (MANY // 1000, 0)
