"""Three brokers and ZooKeeper, each on its own host, which the tests of a module share, and a test's clients."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.netns.hosts import unsupported_reason
from compat_tests.netns.system import System, Workload

ROUNDS = int(os.environ.get("ODRADEK_ROUNDS", "1"))


@pytest.fixture(scope="module", params=range(ROUNDS), ids=lambda seed: f"round-{seed}")
def system(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    if reason := unsupported_reason():
        pytest.fail(reason)
    seed: int = request.param
    with System(tmp_path_factory.mktemp("system"), seed) as system:
        yield system


@pytest.fixture
def workload(system: System, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Workload]:
    workload = Workload(system, tmp_path / "history", f"t{time.monotonic_ns()}")
    yield workload
    workload.close()
