"""Clients that put load on a broker, each run as a process of its own: `run("bulk", …)`. They answer in JSON."""

from __future__ import annotations

import json
import subprocess
import sys

_TIMEOUT_S = 300


def run(program: str, *arguments: object) -> dict[str, float]:
    """The figures that one client prints at its end."""
    command = [sys.executable, "-m", f"bench.load.{program}", *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=_TIMEOUT_S, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures
