"""Deliberate bugs in the broker's handling of crashes: the crashes of a single broker find each within a few seeds."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

from odradek_broker.groups.core.pending_offsets import PendingTransactionalOffsets
from odradek_broker.replication.log_syncer import LogSyncer
from odradek_broker.replication.partition import Partition
from odradek_log.log import Log
from odradek_log.log_segment import LogSegment
from odradek_log.log_segments import LogSegments
from odradek_log.producer_state_manager import ProducerStateManager
from simulation.crashes import CRASHES, Crashes
from simulation.embedded_brokers import EmbeddedBrokers
from simulation.simulation import Failure, Simulation, simulate

SEEDS = range(30)
SETTLED_WITHIN_S = 20
Plant = Callable[[pytest.MonkeyPatch], None]


def power_loss_without_synced_acknowledgements(patch: pytest.MonkeyPatch) -> None:
    """Plant no bug: the broker acknowledges records before they are synced, so that a power loss loses some."""
    begin = Crashes.__init__

    def forgetting(self: Crashes, *, loses_unsynced: bool, **others: Any) -> None:
        begin(self, loses_unsynced=not loses_unsynced, **others)

    patch.setattr(Crashes, "__init__", forgetting)


def acknowledgements_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    def begin(self: LogSyncer, partition: Partition) -> None:
        partition.log.flusher.recovery_point = partition.log.log_end_offset
        partition.on_synced()

    patch.setattr(LogSyncer, "begin", begin)


def flush_that_does_not_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogSegment, "flush", lambda self: None)


def restart_without_producer_state(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Log, "rebuild_producer_state", lambda self, **options: None)


def append_without_a_duplicate_check(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProducerStateManager, "check", lambda self, *facts: None)


def fetch_without_aborted_transactions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogSegments, "aborted_transactions", lambda self, start, end: [])


def last_stable_offset_at_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "last_stable_offset", property(lambda self: self.high_watermark))


def commit_that_loses_pending_offsets(patch: pytest.MonkeyPatch) -> None:
    take = PendingTransactionalOffsets.take

    def losing(self: PendingTransactionalOffsets, producer_id: int) -> Any:
        take(self, producer_id)
        return {}

    patch.setattr(PendingTransactionalOffsets, "take", losing)


LOST = (
    "acknowledged|OFFSET_OUT_OF_RANGE|both own|the latest offset of|was read|goes back|failed with|no record batch in|"
    "had committed|retreats"
)
TWICE = "repeated|reordered|is stored 2 times|failed with"
PLANTED: list[tuple[Plant, str]] = [
    (power_loss_without_synced_acknowledgements, LOST),
    (acknowledgements_before_the_sync, LOST),
    (flush_that_does_not_sync, LOST),
    (restart_without_producer_state, f"{TWICE}|was aborted"),
    (append_without_a_duplicate_check, TWICE),
    (fetch_without_aborted_transactions, "was aborted"),
    (last_stable_offset_at_the_high_watermark, "was aborted or is open"),
    (commit_that_loses_pending_offsets, "had committed|is stored [02] times"),
]


@pytest.mark.long
@pytest.mark.parametrize(("plant", "rule"), PLANTED, ids=[plant.__name__ for plant, _ in PLANTED])
def test_crashes_find(plant: Plant, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    found = next(filter(None, map(_why, SEEDS)), "nothing")
    assert re.search(rule, found), found


def _why(seed: int) -> str | None:
    try:
        simulate(seed, "single", settled_within_s=SETTLED_WITHIN_S, workloads=())
    except Failure as failure:
        return failure.why
    return None


async def all_brokers_lose_power(simulation: Simulation) -> None:
    assert isinstance(simulation.cluster, EmbeddedBrokers)
    for _ in range(3):
        await asyncio.sleep(simulation.chance.uniform(1.5, 4))
        await simulation.cluster.lose_power_everywhere()


@pytest.mark.parametrize("seed", range(3))
def test_synced_acknowledgements_survive_a_power_loss_everywhere(seed: int) -> None:
    simulate(seed, script=all_brokers_lose_power, durable=True)


def test_unsynced_acknowledgements_are_lost_in_a_power_loss() -> None:
    with pytest.raises(Failure, match=LOST):
        simulate(0, script=all_brokers_lose_power, durable=False)


def test_a_run_reaches_crash_points_of_many_kinds() -> None:
    reached = set()
    for seed in range(2):
        run: Simulation = simulate(seed, "single")
        assert run.points is not None
        assert getattr(run.cluster, "crashes", 0) >= CRASHES
        reached |= {kind for _, kind in run.points.reached}
    assert len(reached) >= 4
