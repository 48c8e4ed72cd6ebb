"""A broker in a user's process leaves that process as it was."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import asyncio, logging, os, signal, sys, threading, warnings
import structlog
from odradek import Cluster
from odradek.client import Client
from odradek.hosts.loops import new_event_loop

def state():
    return {
        "signals": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "policy": type(asyncio.get_event_loop_policy()),
        "root handlers": list(logging.root.handlers), "root level": logging.root.level,
        "loggers with handlers": sorted(
            name for name, logger in logging.root.manager.loggerDict.items() if getattr(logger, "handlers", None)
        ),
        "structlog": structlog.get_config(), "structlog configured": structlog.is_configured(),
        "environment": dict(os.environ), "directory": os.getcwd(), "umask": os.umask(0o22),
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "excepthook": sys.excepthook, "unraisablehook": sys.unraisablehook, "warnings": list(warnings.filters),
        "switch interval": sys.getswitchinterval(), "recursion limit": sys.getrecursionlimit(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "default metrics": prometheus(),
    }

def prometheus():
    from prometheus_client import REGISTRY
    return sorted(metric.name for metric in REGISTRY.collect())

Cluster  # whatever importing changes is not what starting changes
# libuv keeps one pipe for signals in every process that ever had a loop of uvloop's.
new_event_loop().close()
before = state()
with Cluster(topics={"a": 3}) as cluster:
    with Client(cluster.bootstrap_servers) as client:
        client.metadata()
    cluster.reset()
after = state()
changed = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
assert not changed, changed
"""


def test_everything_global_is_as_before() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
