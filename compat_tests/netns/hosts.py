"""Hosts: network namespaces, one address each, joined by a wire that can cut or slow links and drop packets.

Owns the wire's process and the namespaces, which are named `odradek-PID-N` so that a later run can remove those of a
killed test. Run as a program, it fails with the reason if this machine cannot have hosts.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from odradek_peers.processes import killed_with_parent

from compat_tests.netns.wire import LinkFaults

_NAMESPACES = Path("/run/netns")
_OURS = re.compile(r"odradek-(\d+)-\d+")
_NETWORK = "10.99.0"
_CLONE_NEWNET = 0x40000000
_END_S = 10.0
_ROOT = Path(__file__).parents[2]


class HostsError(Exception):
    """A command failed on this machine, or in the wire."""


def unsupported_reason() -> str | None:
    """Return the reason why this machine cannot have hosts, or None if it can."""
    if sys.platform != "linux":
        return "network namespaces need Linux"
    if shutil.which("ip") is None:
        return "`ip` is missing (Debian: the package iproute2)"
    if os.geteuid() != 0:
        return "only root can create network namespaces"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "/dev/net/tun is missing: this kernel or container has no TUN devices"
    try:
        with Hosts(["a", "b"]):
            return None
    except (HostsError, OSError) as error:
        return f"this machine cannot create network namespaces with TUN devices: {error}"


class Hosts:
    """A context manager: the hosts exist inside it. It does not end the processes that run in them."""

    def __init__(self, names: Iterable[str], *, seed: int = 0) -> None:
        self._seed = seed
        self._namespaces = {name: f"odradek-{os.getpid()}-{number}" for number, name in enumerate(names, 1)}
        self.addresses = {name: f"{_NETWORK}.{number}" for number, name in enumerate(self._namespaces, 1)}
        self._wire: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        _remove_stale_namespaces()
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def prefix(self, name: str) -> tuple[str, ...]:
        """Return the command prefix that runs a command on the host."""
        return ("ip", "netns", "exec", self._namespaces[name])

    @contextlib.contextmanager
    def on(self, name: str) -> Iterator[None]:
        """Run the block on the host, with the sockets, threads and processes that this thread makes there."""
        with open("/proc/thread-self/ns/net") as before, (_NAMESPACES / self._namespaces[name]).open() as namespace:
            _enter_namespace(namespace.fileno())
            try:
                yield
            finally:
                _enter_namespace(before.fileno())

    def set_link(self, source: str, target: str, faults: LinkFaults) -> None:
        """Set the faults of packets from one host to the other."""
        cut, delay_ms, jitter_ms, loss = faults
        self._command(
            f"link {self.addresses[source]} {self.addresses[target]} {int(cut)} {delay_ms} {jitter_ms} {loss}"
        )

    def count(self, source: str, target: str) -> tuple[int, int]:
        """Return the numbers of carried and of dropped packets."""
        carried, dropped = self._command(f"count {self.addresses[source]} {self.addresses[target]}").split()
        return int(carried), int(dropped)

    def _start(self) -> None:
        for namespace in self._namespaces.values():
            _ip("netns", "add", namespace)
            _ip("-n", namespace, "link", "set", "lo", "up")
        self._wire = subprocess.Popen(
            [*killed_with_parent(), sys.executable, "-m", "compat_tests.netns.wire", str(self._seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            cwd=_ROOT,
        )
        for name, namespace in self._namespaces.items():
            self._command(f"join {namespace} {self.addresses[name]}")

    def _end(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.communicate(timeout=_END_S)
        for namespace in self._namespaces.values():
            _remove(namespace)

    def _command(self, command: str) -> str:
        assert self._wire is not None
        assert self._wire.stdin is not None
        assert self._wire.stdout is not None
        self._wire.stdin.write(command + "\n")
        response = self._wire.stdout.readline().strip()
        if not response or response.startswith("failed"):
            raise HostsError(f"{command}: {response or 'the wire has ended'}")
        return response


def _remove_stale_namespaces() -> None:
    """Remove the namespaces of killed tests."""
    if not _NAMESPACES.is_dir():
        return
    for name in sorted(os.listdir(_NAMESPACES)):
        match = _OURS.fullmatch(name)
        if match and not Path("/proc", match[1]).exists():
            _remove(name)


def _remove(namespace: str) -> None:
    if (_NAMESPACES / namespace).exists():
        _ip("netns", "delete", namespace)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise HostsError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


def _enter_namespace(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__" and (reason := unsupported_reason()):
    sys.exit(f"test-netns cannot run here: {reason}")
