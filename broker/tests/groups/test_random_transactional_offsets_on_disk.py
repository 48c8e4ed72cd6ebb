"""The same histories through coordinators on a real log, which is cleaned in between, and under brokers that restart.

The cleaner removes aborted and replaced records, and later tombstones and markers. None of it may change committed or
unstable offsets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from broker.tests.groups.coordinator_alone import CoordinatorAlone
from broker.tests.groups.offset_histories import PRODUCERS, Entry, History
from log.tests.cleaner_kit import clean

from odradek_broker.groups.core.group_records import OffsetRecord
from odradek_broker.groups.core.group_shard import GroupShard
from odradek_broker.transactions.core.transaction_metadata import Producer
from odradek_log.append import AppendInfo
from odradek_log.cleaner.cleaner import log_to_clean
from odradek_log.producer_state_manager import TransactionMarker
from odradek_log.verification_guard import NOT_REQUIRED
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.offset_commit_value import OffsetCommitValue
from odradek_wire.records.attributes import NO_PRODUCER_ID

DELETE_RETENTION_MS = 24 * 60 * 60 * 1000
ROUNDS = 80


@dataclass
class OnDisk(History):
    path: Path = field(default_factory=Path)
    elapsed_ms: int = 0
    removed: int = 0
    """Bytes that the cleaner has removed."""

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.broker = CoordinatorAlone(self.path)
        self.broker.clock.advance_wall(self.elapsed_ms)
        self.broker.soon.run()

    def pass_time(self, ms: int) -> None:
        self.elapsed_ms += ms
        self.broker.clock.advance_wall(ms)

    def act(self) -> None:
        match self.random.randrange(12):
            case 0:
                self.clean()
            case 1:
                self.broker.partition.log.roll()
            case 2:
                self.pass_time(DELETE_RETENTION_MS)
            case 3:
                self.broker.stop()
                self.start()
            case _:
                super().act()
        self.shard = self.broker.groups.shard

    def clean(self) -> None:
        partition = self.broker.partition
        partition.log.roll()
        before, stable = partition.log.size_bytes, partition.last_stable_offset
        if log_to_clean(partition.log, stable, self.broker.clock.wall_ms()).first_uncleanable_offset > 0:
            clean(partition.log, last_stable=stable)
        self.removed += before - partition.log.size_bytes

    def append(self, entries: list[Entry]) -> None:
        producer = entries[0].transaction[0] if entries[0].transaction else NO_PRODUCER_ID
        records = [
            OffsetRecord(*e.where, None if e.value is None else OffsetCommitValue(e.value, -1, "", 1), producer)
            for e in entries
        ]
        outcomes: list[ErrorCode] = []
        if producer == NO_PRODUCER_ID:
            self.broker.groups.write(records, outcomes.append)
        else:
            self.broker.groups.write_in_transaction(records, Producer(producer, 0), NOT_REQUIRED, outcomes.append)
        assert outcomes == [ErrorCode.NONE]
        self.entries += entries

    def finish(self, producer: int, *, commit: bool) -> None:
        result = self.broker.partition.end_transaction(TransactionMarker(producer, 0, 0, commit))
        assert isinstance(result, AppendInfo)
        self.ended[producer, self.number[producer]] = commit
        self.number[producer] += 1

    def loaded(self) -> GroupShard:
        self.broker.groups.resign()
        self.broker.coordinate()
        self.broker.soon.run()
        return self.broker.groups.shard


@pytest.mark.parametrize("seed", range(12))
def test_cleaning_and_restarts_change_no_offset(seed: int, tmp_path: Path) -> None:
    history = OnDisk(Random(seed), path=tmp_path)
    for _ in range(ROUNDS):
        history.act()
        history.check(history.shard)
    for producer in PRODUCERS:
        history.finish(producer, commit=True)
    for _ in range(2):
        history.clean()
        history.check(history.loaded())
        history.pass_time(DELETE_RETENTION_MS)
    assert history.removed > 0
    history.broker.stop()
