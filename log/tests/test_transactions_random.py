"""A log with transactions against a plain list of its records, under random operations: the records of a read_committed
consumer, and the first unstable offset."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest
from log.tests.cleaner_kit import clean, end_transaction, keyed
from log.tests.log_kit import TOPIC_ID, Time, open_directory

from odradek_log.append import AppendInfo
from odradek_log.cleaner.cleaner import CleanerConfig, log_to_clean
from odradek_log.log import Log
from odradek_log.log_config import LogConfig
from odradek_log.log_opening import open_log
from odradek_wire.records.batch import iterate
from odradek_wire.records.control import ControlRecordType, record_type_of
from odradek_wire.records.record_codec import read_records

SEEDS = int(os.environ.get("ODRADEK_EXAMPLES", "15"))
TRANSACTIONAL = (0, 1, 2)
IDEMPOTENT = 3
TWO_DAYS_MS = 2 * 86_400_000

Record = tuple[int, bytes | None, bytes | None]


@dataclass(eq=False)
class Transaction:
    producer: int
    first_offset: int
    marker: int | None = None
    """The offset of the marker; None while the transaction is ongoing."""
    committed: bool = False


class Written(NamedTuple):
    offset: int
    key: bytes
    value: bytes | None
    transaction: Transaction | None


class Story:
    """A log, the records written to it, and the random operations."""

    def __init__(self, path: Path, chance: random.Random, *, compact: bool) -> None:
        self.chance = chance
        self.compact = compact
        self.time = Time()
        self.config = LogConfig.from_configs(
            {
                "cleanup.policy": "compact" if compact else "delete",
                "segment.bytes": str(chance.choice([600, 1500, 4000])),
                "index.interval.bytes": "200",
            }
        )
        self.log: Log = open_directory(path, self.time).create_log("t", 0, TOPIC_ID, self.config)
        self.written: list[Written] = []
        self.transactions: list[Transaction] = []
        self.number = 0

    def open(self, producer: int) -> Transaction | None:
        return next((each for each in self.transactions if each.producer == producer and each.marker is None), None)

    # --- operations

    def step(self) -> None:
        operations: dict[Callable[[], None], int] = {
            self.produce: 45,
            self.end: 23,
            self.let_time_pass: 6,
            self.clean if self.compact else self.truncate: 6,
            self.restart: 6,
            self.delete_records: 2,
        }
        self.number += 1
        self.chance.choices(list(operations), list(operations.values()))[0]()

    def produce(self) -> None:
        producer = self.chance.choice((*TRANSACTIONAL, IDEMPOTENT))
        records = [
            (b"k%d" % self.chance.randrange(6), None if self.chance.random() < 0.1 else b"v%d-%d" % (self.number, at))
            for at in range(self.chance.randint(1, 3))
        ]
        known = self.log.producers.get(producer)
        sequence = known.batches[-1].last_sequence + 1 if known is not None and known.batches else 0
        is_transactional = producer in TRANSACTIONAL
        data = keyed(
            *records,
            timestamp=self.time.now_ms,
            producer=(producer, 0, sequence),
            transactional=is_transactional,
        )
        info = self.log.append(data, 0)
        assert isinstance(info, AppendInfo), info
        transaction = self.open(producer)
        if is_transactional and transaction is None:
            transaction = Transaction(producer, info.first_offset)
            self.transactions.append(transaction)
        self.written += [
            Written(info.first_offset + at, key, value, transaction) for at, (key, value) in enumerate(records)
        ]

    def end(self) -> None:
        producer, commit = self.chance.choice(TRANSACTIONAL), self.chance.random() < 0.5
        transaction = self.open(producer)
        if transaction is None and self.chance.random() < 0.9:
            return  # a few markers end no transaction
        offset = self.log.log_end_offset
        end_transaction(self.log, producer, commit=commit)
        if transaction is not None:
            transaction.marker, transaction.committed = offset, commit

    def let_time_pass(self) -> None:
        self.time.advance(self.chance.choice([10, TWO_DAYS_MS]))

    def clean(self) -> None:
        last_stable = self.last_stable_offset()
        last_stable = self.chance.choice([last_stable, self.chance.randint(0, last_stable)])
        config = CleanerConfig(self.chance.choice([600, 2000, 1 << 20]), 0.9, self.chance.choice([100, 4096]))
        to_clean = log_to_clean(self.log, last_stable, self.time.now_ms)
        begin = to_clean.first_dirty_offset if to_clean.cleanable_bytes else self.log.log_start_offset
        if begin < to_clean.first_uncleanable_offset:
            clean(self.log, last_stable=last_stable, config=config)

    def truncate(self) -> None:
        self.log.truncate_to(self.chance.randint(self.log.log_start_offset, self.log.log_end_offset))
        end = self.log.log_end_offset
        self.written = [each for each in self.written if each.offset < end]
        self.transactions = [each for each in self.transactions if each.first_offset < end]
        for transaction in self.transactions:
            if transaction.marker is not None and transaction.marker >= end:
                transaction.marker = None

    def restart(self) -> None:
        log, checkpoint = self.log, self.log.cleaner.checkpoint
        crashed = self.chance.random() < 0.6
        if not crashed:
            log.close()
        elif self.chance.random() < 0.5:
            log.flush()
        log.close_without_writing()
        recovery_point = log.recovery_point if not crashed or self.chance.random() < 0.5 else 0
        self.log = open_log(
            log.env,
            log.directory,
            topic="t",
            partition=0,
            config=self.config,
            recovery_point=recovery_point,
            log_start_offset=log.log_start_offset,
            clean_shutdown=not crashed,
        )
        assert (self.log.log_start_offset, self.log.log_end_offset) == (log.log_start_offset, log.log_end_offset)
        self.log.cleaner.checkpoint = checkpoint

    def delete_records(self) -> None:
        self.log.advance_log_start_offset(self.chance.randint(self.log.log_start_offset, self.log.log_end_offset))

    # --- checks

    def last_stable_offset(self) -> int:
        unstable = self.log.first_unstable_offset(self.log.log_end_offset)
        return self.log.log_end_offset if unstable is None else unstable

    def check(self) -> None:
        log, stable = self.log, self.last_stable_offset()
        ongoing = [
            each.offset
            for each in self.written
            if each.transaction is not None and each.transaction.marker is None and each.offset >= log.log_start_offset
        ]
        assert log.log_start_offset <= stable <= min(ongoing, default=log.log_end_offset)
        if stable < log.log_end_offset:
            assert any(each.marker is None for each in self.transactions)
        start = self.chance.randint(log.log_start_offset, log.log_end_offset)
        if start >= stable:
            return
        expected = [
            (each.offset, each.key, each.value)
            for each in self.written
            if start <= each.offset < stable and (each.transaction is None or each.transaction.committed)
        ]
        got = read_committed(log, start, stable)
        if not self.compact:
            assert got == expected
            return
        assert set(got) <= set(expected)
        if start == log.log_start_offset:
            assert last_of_each_key(got) == last_of_each_key(expected)


def read_committed(log: Log, offset: int, limit: int) -> list[Record]:
    """Read like a read_committed consumer: skip aborted transactions from their first record to their marker."""
    found: list[Record] = []
    while offset < limit and (piece := log.read(offset, 700, limit=limit)) is not None:
        coming = sorted(log.aborted_transactions_of_slice(offset, piece), key=lambda each: each.first_offset)
        aborted: set[int] = set()
        data, before = memoryview(piece.tobytes()), offset
        for header in iterate(data, allow_partial=True):
            while coming and coming[0].first_offset <= header.last_offset:
                aborted.add(coming.pop(0).producer_id)
            if header.is_control:
                if any(record_type_of(each.key) is ControlRecordType.ABORT for each in read_records(data, header)):
                    aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                found += [
                    (each.offset, each.key, each.value) for each in read_records(data, header) if each.offset >= offset
                ]
            offset = header.next_offset
        assert offset > before
    return found


def last_of_each_key(records: list[Record]) -> dict[bytes | None, tuple[int, bytes]]:
    found: dict[bytes | None, tuple[int, bytes]] = {}
    for offset, key, value in records:
        if value is None:
            found.pop(key, None)
        else:
            found[key] = (offset, value)
    return found


@pytest.mark.parametrize("compact", [False, True], ids=["deleted", "compacted"])
def test_read_committed_returns_all_committed_records_and_no_others(tmp_path: Path, compact: bool) -> None:
    for seed in range(SEEDS):
        chance = random.Random(f"{seed} {compact}")
        story = Story(tmp_path / str(seed), chance, compact=compact)
        for _ in range(chance.randint(20, 160)):
            try:
                story.step()
                story.check()
            except Exception as error:
                raise AssertionError(f"seed {seed}, step {story.number}: {story.log}") from error
