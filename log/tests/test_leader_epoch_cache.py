"""The start and end offsets of leader epochs, and their checkpoint file."""

from __future__ import annotations

from pathlib import Path

import pytest
from log.tests.log_kit import TOPIC_ID, Time, append, open_directory

from odradek_log.leader_epoch_cache import LeaderEpochCache
from odradek_log.log_config import LogConfig
from odradek_log.log_errors import CorruptLogError


def _epochs(*entries: tuple[int, int]) -> LeaderEpochCache:
    epochs = LeaderEpochCache()
    for entry in entries:
        epochs.assign(*entry)
    return epochs


def test_the_leader_epoch_checkpoint_has_kafkas_format() -> None:
    assert LeaderEpochCache().encode() == b"0\n0\n"
    assert _epochs((0, 0), (3, 120)).encode() == b"0\n2\n0 0\n3 120\n"
    assert LeaderEpochCache.decode(b"0\n2\n0 0\n3 120\n", "f").entries == [(0, 0), (3, 120)]
    assert LeaderEpochCache.decode(b"", "f").entries == []


@pytest.mark.parametrize(
    "text", [b"1\n0\n", b"0\n1\n", b"0\n1\nx y\n", b"0\nx\n", b"0\n2\n3 5\n1 9\n", b"0\n1\n1 2 3\n", b"0\n1\n1 2"]
)
def test_a_malformed_leader_epoch_checkpoint_is_corrupt(text: bytes) -> None:
    with pytest.raises(CorruptLogError):
        LeaderEpochCache.decode(text, "f")


def test_a_new_epoch_replaces_conflicting_entries() -> None:
    epochs = _epochs((1, 0), (2, 10))
    assert not epochs.assign(2, 15)
    assert epochs.assign(3, 10)
    assert epochs.entries == [(1, 0), (3, 10)]
    assert epochs.assign(2, 20)
    assert epochs.entries == [(1, 0), (2, 20)]


@pytest.mark.parametrize(
    ("requested", "answer"),
    [
        (-1, (-1, -1)),
        (0, (0, 5)),
        (1, (1, 10)),
        (2, (1, 10)),
        (3, (3, 30)),
        (4, (-1, -1)),
    ],
)
def test_the_end_of_an_epoch_is_the_start_of_the_next_known_one(requested: int, answer: tuple[int, int]) -> None:
    assert _epochs((1, 5), (3, 10)).end_offset_for(requested, 30) == answer


def test_without_entries_the_end_of_an_epoch_is_undefined() -> None:
    assert LeaderEpochCache().end_offset_for(0, 30) == (-1, -1)


def test_truncation_removes_epochs_that_begin_at_the_new_end_or_later() -> None:
    epochs = _epochs((1, 5), (2, 10), (3, 20))
    epochs.truncate_from_end(10)
    assert (epochs.entries, epochs.latest) == ([(1, 5)], 1)


def test_a_new_log_start_offset_begins_the_epoch_that_includes_it() -> None:
    epochs = _epochs((1, 5), (2, 10), (3, 20))
    epochs.truncate_from_start(3)
    assert epochs.entries == [(1, 5), (2, 10), (3, 20)]
    epochs.truncate_from_start(12)
    assert epochs.entries == [(2, 12), (3, 20)]
    epochs.truncate_from_start(20)
    assert epochs.entries == [(3, 20)]


def test_the_epoch_of_a_record_is_the_last_that_began_before_it() -> None:
    epochs = _epochs((1, 5), (3, 10))
    assert [epochs.epoch_for_offset(offset) for offset in (4, 5, 9, 10, 99)] == [None, 1, 1, 3, 3]


def test_truncating_at_the_log_end_removes_an_epoch_without_records(tmp_path: Path) -> None:
    log = open_directory(tmp_path, Time()).create_log("t", 0, TOPIC_ID, LogConfig())
    append(log, b"a", epoch=1)
    log.leader_epochs.assign(2, 1)
    assert not log.truncate_to(1)
    assert log.leader_epochs.entries == [(1, 0)]
