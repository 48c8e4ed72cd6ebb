"""Deliberate bugs in transactions and compaction: the optional workloads find each within a few seeds."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from odradek_broker.replication.partition import Partition
from odradek_broker.transactions.core import transaction_rules
from odradek_broker.transactions.core.transaction_metadata import Producer, TransactionMetadata
from odradek_broker.transactions.transaction_marker_channel_manager import TransactionMarkerChannelManager
from odradek_log.cleaner.offset_map import OffsetMap
from odradek_log.producer_state_manager import TransactionMarker
from odradek_wire.errors import ErrorCode
from simulation.bank_producers import BANK
from simulation.simulation import KINDS, ClusterKind, Failure, Simulation, simulate
from simulation.workloads import OPTIONAL_WORKLOADS, Bank, OptionalWorkload

pytestmark = pytest.mark.long
SEEDS = range(6)
SETTLED_WITHIN_S = 15
Plant = Callable[[pytest.MonkeyPatch], None]


def transaction_completed_before_its_markers(patch: pytest.MonkeyPatch) -> None:
    add = TransactionMarkerChannelManager.add

    def hasty(self: TransactionMarkerChannelManager, coordinator: Any, markers: Any) -> None:
        if markers.transactional_id != BANK:  # the checks of other workloads would find the bug, too
            return add(self, coordinator, markers)
        coordinator.markers_written(markers, markers.partitions)
        asyncio.get_running_loop().call_later(0.7, add, self, coordinator, markers)
        return None

    patch.setattr(TransactionMarkerChannelManager, "add", hasty)


def commit_with_an_abort_marker_in_one_partition(patch: pytest.MonkeyPatch) -> None:
    end = Partition.end_transaction
    every_third = itertools.cycle((True, True, False))

    def ending(self: Partition, marker: TransactionMarker) -> Any:
        if (self.topic, self.index) == (Bank.topic, 0):
            marker = marker._replace(commit=marker.commit and next(every_third))
        return end(self, marker)

    patch.setattr(Partition, "end_transaction", ending)


def coordinator_that_accepts_fenced_producers(patch: pytest.MonkeyPatch) -> None:
    end = transaction_rules.end

    def identity_error(current: TransactionMetadata | None, producer: Producer) -> ErrorCode:
        known = current is not None and current.producer.id == producer.id
        return ErrorCode.NONE if known else ErrorCode.INVALID_PRODUCER_ID_MAPPING

    def ending(current: TransactionMetadata | None, producer: Producer, *rest: Any) -> Any:
        return end(current, producer if current is None else current.producer, *rest)

    patch.setattr(transaction_rules, "identity_error", identity_error)
    patch.setattr(transaction_rules, "end_error", identity_error)
    patch.setattr(transaction_rules, "end", ending)


def init_producer_id_without_a_new_epoch(patch: pytest.MonkeyPatch) -> None:
    initialize = TransactionMetadata.initialize

    def same(self: TransactionMetadata, producer: Producer, *rest: Any) -> TransactionMetadata:
        epoch = max(self.producer.epoch, 0)
        return initialize(self, Producer(producer.id, epoch), *rest)

    patch.setattr(TransactionMetadata, "initialize", same)


def cleaner_that_removes_the_last_record_of_a_key(patch: pytest.MonkeyPatch) -> None:
    superseded = OffsetMap.superseded

    def too_many(self: OffsetMap, keys: Sequence[bytes | None], offsets: Sequence[int]) -> list[int]:
        return superseded(self, keys, [offset - 1 for offset in offsets])

    patch.setattr(OffsetMap, "superseded", too_many)


async def no_faults(simulation: Simulation) -> None:
    await asyncio.sleep(12)


PLANTED: list[tuple[Plant, OptionalWorkload, str]] = [
    (
        transaction_completed_before_its_markers,
        "bank",
        "was made more than once|is stored in part|are stored",
    ),
    (commit_with_an_abort_marker_in_one_partition, "bank", "transfer .* is stored in part"),
    (coordinator_that_accepts_fenced_producers, "bank", "was ended by a fenced producer"),
    (init_producer_id_without_a_new_epoch, "bank", "InitProducerId returned .* twice"),
    (
        cleaner_that_removes_the_last_record_of_a_key,
        "keys",
        "its key has no later value|the last of its key",
    ),
]


@pytest.mark.parametrize(("plant", "workload", "rule"), PLANTED, ids=[plant.__name__ for plant, *_ in PLANTED])
def test_a_workload_finds(plant: Plant, workload: OptionalWorkload, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    found = next(filter(None, (_why(seed, workload) for seed in SEEDS)), "nothing")
    assert re.search(rule, found), found


def _why(seed: int, workload: OptionalWorkload) -> str | None:
    try:
        simulate(seed, script=no_faults, settled_within_s=SETTLED_WITHIN_S, workloads=[workload])
    except Failure as failure:
        return failure.why
    return None


@pytest.mark.parametrize("kind", KINDS)
def test_bank_producers_are_fenced_and_keys_are_compacted(kind: ClusterKind) -> None:
    """Otherwise the checks of these workloads would have nothing to check."""
    runs = [simulate(seed, kind, workloads=OPTIONAL_WORKLOADS) for seed in range(2)]
    banks = [run.bank for run in runs if run.bank is not None]
    assert sum(bank.transfers for bank in banks) > 10
    assert sum(bank.fenced_ends for bank in banks) > 0
    assert all(run.keys is not None and run.keys.compacted > 20 for run in runs)


@pytest.mark.parametrize("kind", KINDS)
def test_each_workload_is_in_some_runs_and_not_in_others(kind: ClusterKind) -> None:
    chosen = []
    for seed in range(40):
        simulation = Simulation(seed=seed, kind=kind, duration_s=1.0)
        simulation.loop.close()
        chosen.append(simulation.optional_workloads)
    for workload in OPTIONAL_WORKLOADS:
        assert 4 <= sum(workload in each for each in chosen) <= 20
