"""Commits inside and outside of transactions, in any order, under coordinators that load at any time.

Every seed is one history, written as batches into a log that one shard follows as it grows. The model reads the history
backwards: the latest committed record is the offset. The shard that followed, every one that loads the log, and the
model must agree at any time on committed and unstable offsets.
"""

from __future__ import annotations

from random import Random

import pytest
from broker.tests.groups.offset_histories import PLACES, Entry, History

from odradek_broker.groups.core.group_records import OffsetRecord
from odradek_wire.messages.offset_commit_value import OffsetCommitValue


@pytest.mark.parametrize("seed", range(60))
def test_every_coordinator_agrees_with_the_model_of_offsets(seed: int) -> None:
    history = History(Random(seed))
    for _ in range(60):
        history.act()
        history.check(history.shard)
    history.check(history.loaded())


def test_the_model_detects_an_aborted_offset_that_is_not_dropped() -> None:
    history = History(Random(1))
    history.append([Entry(PLACES[0], 5, (1, 0))])
    history.finish(1, commit=False)
    history.shard.replay(OffsetRecord(*PLACES[0], OffsetCommitValue(5, -1, "", 1)))
    with pytest.raises(AssertionError):
        history.check(history.shard)
