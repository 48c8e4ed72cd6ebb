"""A broker keeps acknowledged and read data after kill -9. More seeds: `python -m compat_tests.crash --seeds 100`."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.crash.run import run

CRASHES = 10


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_a_killed_broker_keeps_acknowledged_and_read_records(seed: int, tmp_path: Path) -> None:
    assert run(seed, tmp_path, CRASHES)
