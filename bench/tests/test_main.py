"""The program `python -m bench`."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it ships no types

ROOT = Path(__file__).parents[2]
WAIT_S = 60


def listening_brokers(bench: int) -> Iterator[psutil.Process]:
    for child in psutil.Process(bench).children(recursive=True):
        with suppress(psutil.Error):  # a child that has ended
            if any(connection.status == psutil.CONN_LISTEN for connection in child.net_connections("tcp")):
                yield child


def test_sigterm_stops_the_brokers() -> None:
    command = [sys.executable, "-m", "bench", "--quick", "unbatched"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as bench:
        deadline = time.monotonic() + WAIT_S
        while not (brokers := list(listening_brokers(bench.pid))):
            assert time.monotonic() < deadline, "the bench started no broker"
            time.sleep(0.005)
        bench.terminate()
        assert bench.wait(WAIT_S) == 143
    gone, alive = psutil.wait_procs(brokers, WAIT_S)
    assert (len(gone), alive) == (len(brokers), [])
