"""The stacks of a test: those of its own process and of every process below it, including brokers and JVMs.

A Python process writes its stacks when it receives a signal; `jstack` prints those of a JVM. The last lines of their
logs follow, because they show the last actions of a broker.
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
_JVM_WORDS = ("kafka", "zookeeper", "spark", '"main"')
"""The report has only the threads of a JVM with one of these words in their stacks: a JVM has a hundred threads."""


def stacks_of_all() -> str:
    """Return the stacks of this process and of all below it, which takes seconds."""
    parts = [f"==== this process {os.getpid()}\n{threads()}\n{tasks_and_requests()}"]
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error, OSError):
            parts.append(_report(child))
    return "\n".join(parts)


def _report(child: psutil.Process) -> str:
    command = " ".join(child.cmdline())[-300:]
    heading = f"==== process {child.pid} ({child.status()}): {command}"
    stacks = _jvm_stacks(child.pid) if child.name() == "java" else _python_stacks(child.pid)
    return "\n".join([heading, stacks, *_log_tails(child.pid)])


def _python_stacks(pid: int) -> str:
    file = Path(dump_file(os.environ.get(DIRECTORY, ""), pid))
    if not file.exists():
        return "(no stacks: this process does not handle SIGUSR2)"
    begin = file.stat().st_size
    os.kill(pid, signal.SIGUSR2)
    deadline = time.monotonic() + _DUMP_S
    while not (dump := file.read_bytes()[begin:].decode(errors="replace")).endswith(f"{END}\n"):
        if time.monotonic() > deadline:
            return f"{dump}\n(incomplete after {_DUMP_S:g} s: the process is stopped, or its main thread is stuck)"
        time.sleep(0.02)
    return dump.removesuffix(f"{END}\n")


def _jvm_stacks(pid: int) -> str:
    jstack = shutil.which("jstack")
    if jstack is None:
        return "(no stacks: jstack, which a JDK has, is not on the PATH)"
    try:
        done = subprocess.run([jstack, str(pid)], capture_output=True, text=True, timeout=_JSTACK_S, check=False)
    except subprocess.TimeoutExpired:
        return f"(no stacks: jstack did not end within {_JSTACK_S:g} s)"
    threads_of_jvm = done.stdout.split("\n\n")
    return "\n\n".join(block for block in threads_of_jvm if any(word in block for word in _JVM_WORDS)) or done.stderr


def _log_tails(pid: int) -> list[str]:
    """Return the last lines of the process's standard output and error and of its open logs, if they are files."""
    files: dict[str, None] = {}
    for descriptor in sorted(Path(f"/proc/{pid}/fd").iterdir(), key=lambda each: int(each.name)):
        target = os.readlink(descriptor)
        # The segments of partitions are .log files too; their names are numbers.
        is_log = descriptor.name in "12" or (target.endswith(".log") and not Path(target).stem.isdigit())
        if is_log and os.path.isfile(target):
            files[target] = None
    tails = []
    for name in files:
        with open(name, "rb") as log:
            log.seek(max(0, os.path.getsize(name) - _LOG_BYTES))
            lines = log.read().decode(errors="replace").splitlines()[-_LOG_LINES:]
        tails.append("\n".join([f"-- the last lines of {name}", *lines]))
    return tails
