"""The machine and the time of a measurement."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from importlib.metadata import version
from pathlib import Path


def description(command: str, runs: int) -> str:
    """Describe the run in Markdown. Call it before the work, so that the load is that of other programs."""
    now = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    clients = f"confluent-kafka {version('confluent-kafka')}"
    return (
        f"Measured {now} at commit {_commit()} with `{command}`: {os.cpu_count()} processors ({_processor()}),"
        f" {memory:.0f} GiB, load before {os.getloadavg()[0]:.1f}, {platform.system()} {platform.release()},"
        f" Python {platform.python_version()}, {clients}, {_java()}. The brokers take turns; a figure"
        f" is the median of {runs} runs (at most 3 for memory, topics and many connections). Topics have 3"
        " partitions; the client shares the processors. Ratio: Odradek ÷ the other column.\n"
    )


def _commit() -> str:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _java() -> str:
    found = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    return "Java " + found.stderr.split('"')[1] if '"' in found.stderr else "no Java"
