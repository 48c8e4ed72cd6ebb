"""A broker in a user's process does not change the global state of that process."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import asyncio, logging, os, signal, sys, threading, warnings
import structlog
from odradek import Cluster
from odradek.client import Client
from odradek.hosts.event_loop import new_event_loop

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

Cluster  # import first: the test is about starting
# libuv keeps a pipe for signals in every process that has had a uvloop event loop.
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


CYCLES = """
import gc, logging, os, threading, time
from odradek import Cluster
from odradek.client import Client
from odradek.client.records import RecordProducer
from odradek.hosts.event_loop import new_event_loop
from odradek_wire.records.record import Record

# -X dev also logs slow callbacks, which mean nothing on a busy machine.
logging.getLogger("asyncio").setLevel(logging.ERROR)

def cycles(process):
    with Cluster(topics={"a": 2}, process=process) as cluster:
        for end in (cluster.stop, cluster.kill):
            with Client(cluster.bootstrap_servers) as client:
                writer = RecordProducer(client, "a")
                writer.write(Record(0, 0, None, b"v"))
                writer.flush()
                cluster.faults.delay("Fetch", 1)
                cluster.reset()
                client.metadata()
                end()
            cluster.start()

def in_threads():
    threads = [threading.Thread(target=cycles, args=(process,)) for process in (False, False, True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

def state():
    gc.collect()
    return {
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "descriptors": len(os.listdir("/proc/self/fd")),
    }

new_event_loop().close()
before = state()
in_threads()
deadline = time.monotonic() + 20
while (after := state()) != before:
    # The thread of a cancelled timer ends a little later.
    assert time.monotonic() < deadline, (before, after)
"""


def test_a_cluster_does_not_change_global_state() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_clusters_in_threads_leave_no_thread_or_descriptor_behind() -> None:
    command = [sys.executable, "-X", "dev", "-W", "error::ResourceWarning", "-c", CYCLES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
