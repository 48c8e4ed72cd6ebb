"""Every seed of the simulation passes its checks. `make simulate SEEDS=1000` runs more seeds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.simulation import KINDS, ClusterKind, Failure, simulate

SEEDS: dict[ClusterKind, int] = {"embedded": 200, "zookeeper": 120, "single": 80}
QUICK_SEEDS: dict[ClusterKind, int] = {"embedded": 20, "zookeeper": 10, "single": 20}
"""The number of seeds in `make test`; `make test-long` has the others."""
SEEDS_PER_TEST = 5
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("kind", "first"),
    [
        pytest.param(kind, first, marks=[] if first < QUICK_SEEDS[kind] else pytest.mark.long)
        for kind in KINDS
        for first in range(0, SEEDS[kind], SEEDS_PER_TEST)
    ],
)
def test_no_record_is_lost_repeated_or_reordered(kind: ClusterKind, first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        simulate(seed, kind)


FAILED_ONCE: list[tuple[ClusterKind, int]] = [
    ("zookeeper", 90051),  # clients disconnected before AllocateProducerIds failed
    ("zookeeper", 808),  # a broker stopped while it waited for producer ids
    ("zookeeper", 953),  # a deposed leader that was cut off refused the next batch of an idempotent producer
    ("zookeeper", 680),  # a full disk failed the recovery of one log, and the next shutdown counted as clean
]


@pytest.mark.parametrize(("kind", "seed"), FAILED_ONCE)
def test_a_seed_that_failed_once_passes(kind: ClusterKind, seed: int) -> None:
    simulate(seed, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_has_the_same_events_with_every_hash_seed(kind: ClusterKind) -> None:
    run = f"from simulation.simulation import simulate; print(simulate(7, {kind!r}).trace.digest)"
    digests = {
        subprocess.run(
            [sys.executable, "-c", run],
            env=os.environ | {"PYTHONHASHSEED": hashes},
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hashes in ("0", "1", "4711")
    }
    assert len(digests) == 1
    assert simulate(7, kind).trace.digest == int(digests.pop())
    assert simulate(8, kind).trace.digest != simulate(7, kind).trace.digest


def test_a_failure_has_the_command_and_the_last_events() -> None:
    with pytest.raises(Failure) as failed:
        simulate(3, settled_within_s=0.0)
    text = str(failed.value)
    assert "python -m simulation embedded --seed 3" in text
    assert "the faults have ended" in text
    assert len(text.splitlines()) > 50


@pytest.mark.parametrize("kind", [(), ("zookeeper",)], ids=["of-each-kind", "of-one-kind"])
def test_the_command_prints_nothing_without_failures(kind: tuple[ClusterKind, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "simulation", *kind, "--seeds", "1", "--first", "3"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
