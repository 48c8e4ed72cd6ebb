"""Processor time and memory of a server's process, from /proc."""

from __future__ import annotations

import os
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it ships no types

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_USER, _SYSTEM = 11, 12  # fields of /proc/PID/stat behind the name


def cpu_seconds(pid: int) -> float:
    """Return user and system time of all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[_USER]) + int(fields[_SYSTEM])) / _TICKS_PER_S


def resident_mb(pid: int) -> float:
    """Return the resident memory in 10^6 bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES / 1e6


def listening_on(port: int) -> int | None:
    """Return the process that listens on a port of this machine, None if it is not visible (in a container)."""
    for connection in psutil.net_connections(kind="tcp"):
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid:
            return int(connection.pid)
    return None
