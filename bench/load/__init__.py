"""Clients that load a broker, each in its own process: `run("bulk", …)`. They print their figures as JSON."""

from __future__ import annotations

import json
import subprocess
import sys

_TIMEOUT_S = 300


def run(program: str, *arguments: object) -> dict[str, float]:
    """Run a client and return the figures that it prints."""
    command = [sys.executable, "-m", f"bench.load.{program}", *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=_TIMEOUT_S, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures
