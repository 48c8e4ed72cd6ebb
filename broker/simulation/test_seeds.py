"""Whole clusters under faults: every seed ends well. More of them: `make simulate SEEDS=1000`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.simulation import KINDS, Failure, Kind, simulate

SEEDS: dict[Kind, int] = {"embedded": 200, "zookeeper": 120, "alone": 80}
QUICK_SEEDS: dict[Kind, int] = {"embedded": 20, "zookeeper": 10, "alone": 20}
"""So many of them are in `make test`, the others in `make test-long`."""
AT_ONCE = 5
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("kind", "first"),
    [
        pytest.param(kind, first, marks=[] if first < QUICK_SEEDS[kind] else pytest.mark.long)
        for kind in KINDS
        for first in range(0, SEEDS[kind], AT_ONCE)
    ],
)
def test_nothing_is_lost_repeated_reordered_or_taken_back(kind: Kind, first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        simulate(seed, kind)


FAILED_ONCE: list[tuple[Kind, int]] = [
    ("zookeeper", 90051),  # the clients that waited for producer ids went away before the allocation failed
]


@pytest.mark.parametrize(("kind", "seed"), FAILED_ONCE)
def test_a_seed_that_failed_once_ends_well(kind: Kind, seed: int) -> None:
    simulate(seed, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_is_the_same_run_in_another_process_with_other_hashes(kind: Kind) -> None:
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


def test_a_failure_says_how_to_repeat_it_and_what_happened_last() -> None:
    with pytest.raises(Failure) as failed:
        simulate(3, settled_within_s=0.0)
    text = str(failed.value)
    assert "--seed 3" in text
    assert "is well again" in text
    assert len(text.splitlines()) > 50


@pytest.mark.parametrize("kind", [(), ("zookeeper",)], ids=["of-each-kind", "of-one-kind"])
def test_the_command_is_silent_when_all_is_well(kind: tuple[Kind, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "simulation", *kind, "--seeds", "1", "--first", "3"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
