"""Helpers for servers that tests start: free ports, the end of a server, the last lines of its log."""

import contextlib
import random
import shutil
import socket
import subprocess
from pathlib import Path

LOOPBACK = "127.0.0.1"
_LOWEST_PORT, _HIGHEST_PORT = 20_000, 32_000


def killed_with_parent() -> list[str]:
    """Return a command prefix that kills the command when this process ends, even by SIGKILL (Linux).

    The signal comes at the end of the thread that started the command, so this thread must not end earlier.
    """
    return ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []


def wait_or_kill(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait for a process to end; send SIGKILL after a timeout."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def log_tail(directory: Path, lines: int) -> str:
    """Return the last lines of a server's log and standard output in `directory`."""
    tail: list[str] = []
    for name in ("server.log", "stdout.log"):
        file = directory / name
        if file.exists():
            tail += [f"--- {file}", *file.read_text(errors="replace").splitlines()[-lines:]]
    return "\n".join(tail)


def free_ports(count: int) -> list[int]:
    """Return different ports that were free a moment ago.

    They are below the system's ephemeral ports, so that no other test gets one of them while a JVM is starting.
    """
    with contextlib.ExitStack() as stack:
        ports: list[int] = []
        while len(ports) < count:
            port = random.randrange(_LOWEST_PORT, _HIGHEST_PORT)
            with contextlib.suppress(OSError):
                stack.enter_context(socket.create_server((LOOPBACK, port)))
                ports.append(port)
        return ports
