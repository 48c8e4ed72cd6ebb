"""The stacks of a test: those of its own process and of every process below it, including brokers and JVMs.

A Python process writes its stacks when it receives a signal, `jstack` queries a JVM. The ends of their logs follow,
because they show the last actions of a broker.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it ships no types

from odradek_stacks.process import DIRECTORY, END, dump_file, tasks_and_requests, threads

_DUMP_S = 5.0
_JSTACK_S = 20.0
_LOG_LINES = 25
_LOG_BYTES = 20_000
_OF_INTEREST = ("kafka", "zookeeper", "spark", '"main"')
"""A JVM has a hundred threads; the report leaves out those without any of these words in their stacks."""


def stacks_of_all() -> str:
    """Return the stacks of this process and of all below it, which takes seconds."""
    parts = [f"==== this process {os.getpid()}\n{threads()}\n{tasks_and_requests()}"]
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error, OSError):
            parts.append(_of_child(child))
    return "\n".join(parts)


def _of_child(child: psutil.Process) -> str:
    command = " ".join(child.cmdline())[-300:]
    heading = f"==== process {child.pid} ({child.status()}): {command}"
    stacks = _of_jvm(child.pid) if child.name() == "java" else _of_python(child.pid)
    return "\n".join([heading, stacks, *_ends_of_logs(child.pid)])


def _of_python(pid: int) -> str:
    file = Path(dump_file(os.environ.get(DIRECTORY, ""), pid))
    if not file.exists():
        return "(no Python process that can be asked)"
    begin = file.stat().st_size
    os.kill(pid, signal.SIGUSR2)
    deadline = time.monotonic() + _DUMP_S
    while not (dump := file.read_bytes()[begin:].decode(errors="replace")).endswith(f"{END}\n"):
        if time.monotonic() > deadline:
            return f"{dump}\n(no more within {_DUMP_S:g} s: the process is stopped, or its main thread is stuck)"
        time.sleep(0.02)
    return dump.removesuffix(f"{END}\n")


def _of_jvm(pid: int) -> str:
    jstack = shutil.which("jstack")
    if jstack is None:
        return "(no jstack here: a JDK has it)"
    try:
        done = subprocess.run([jstack, str(pid)], capture_output=True, text=True, timeout=_JSTACK_S, check=False)
    except subprocess.TimeoutExpired:
        return f"(jstack has no answer within {_JSTACK_S:g} s)"
    blocks = done.stdout.split("\n\n")
    return "\n\n".join(block for block in blocks if any(word in block for word in _OF_INTEREST)) or done.stderr


def _ends_of_logs(pid: int) -> list[str]:
    """Return the last lines of the process's standard output and error and of its open logs, if they are files."""
    files: dict[str, None] = {}
    for descriptor in sorted(Path(f"/proc/{pid}/fd").iterdir(), key=lambda each: int(each.name)):
        target = os.readlink(descriptor)
        # The segments of partitions are .log files too; their names are numbers.
        is_log = descriptor.name in "12" or (target.endswith(".log") and not Path(target).stem.isdigit())
        if is_log and os.path.isfile(target):
            files[target] = None
    ends = []
    for name in files:
        with open(name, "rb") as log:
            log.seek(max(0, os.path.getsize(name) - _LOG_BYTES))
            lines = log.read().decode(errors="replace").splitlines()[-_LOG_LINES:]
        ends.append("\n".join([f"-- the end of {name}", *lines]))
    return ends
