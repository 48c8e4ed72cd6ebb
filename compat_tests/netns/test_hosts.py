"""The wire applies its faults to packets, per direction; hosts leave nothing behind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.netns.hosts import Hosts
from compat_tests.netns.wire import NO_FAULTS, LinkFaults

pytestmark = pytest.mark.netns

PORT = 5000
WAIT_S = 10.0


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    with Hosts(["a", "b"], seed=1) as hosts:
        yield hosts


def bound(hosts: Hosts, name: str) -> socket.socket:
    """Return a datagram socket on the host."""
    with hosts.on(name):
        found = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        found.bind((hosts.addresses[name], PORT))
    found.settimeout(WAIT_S)
    return found


def received(target: socket.socket, mark: bytes) -> list[bytes]:
    """Return all datagrams up to `mark`."""
    found = [target.recv(100)]
    while found[-1] != mark:
        found.append(target.recv(100))
    return found


def test_a_link_is_cut_one_way(hosts: Hosts) -> None:
    with bound(hosts, "a") as a, bound(hosts, "b") as b:
        to_a, to_b = (hosts.addresses["a"], PORT), (hosts.addresses["b"], PORT)
        hosts.set_link("a", "b", LinkFaults(cut=True))
        a.sendto(b"lost", to_b)
        b.sendto(b"back", to_a)
        assert a.recv(100) == b"back"
        hosts.set_link("a", "b", NO_FAULTS)
        a.sendto(b"healed", to_b)
        assert received(b, b"healed") == [b"healed"]
        assert hosts.count("a", "b") == (1, 1)


def test_delayed_packets_arrive_in_order(hosts: Hosts) -> None:
    with bound(hosts, "a") as a, bound(hosts, "b") as b:
        hosts.set_link("a", "b", LinkFaults(delay_ms=100, jitter_ms=100))
        begun = time.monotonic()
        sent = [b"%d" % number for number in range(20)]
        for each in sent:
            a.sendto(each, (hosts.addresses["b"], PORT))
        assert received(b, sent[-1]) == sent
        assert time.monotonic() - begun > 0.1


def test_some_packets_are_lost(hosts: Hosts) -> None:
    with bound(hosts, "a") as a:
        hosts.set_link("a", "b", LinkFaults(loss=0.3))
        for _ in range(400):
            a.sendto(b"some", (hosts.addresses["b"], PORT))
    give_up = time.monotonic() + WAIT_S
    while sum(hosts.count("a", "b")) < 400:
        assert time.monotonic() < give_up
    _, dropped = hosts.count("a", "b")
    assert 80 < dropped < 160


def test_namespaces_of_a_killed_test_are_removed() -> None:
    script = "import os, signal\nfrom compat_tests.netns.hosts import Hosts\nHosts(['x']).__enter__()\n"
    killed = subprocess.Popen([sys.executable, "-c", script + "os.kill(os.getpid(), signal.SIGKILL)"])
    killed.wait(WAIT_S)
    left = f"odradek-{killed.pid}-1"
    assert left in os.listdir("/run/netns")
    with Hosts(["a"]):
        assert left not in os.listdir("/run/netns")
    assert not [name for name in os.listdir("/run/netns") if name.startswith(f"odradek-{os.getpid()}-")]


def test_a_thread_returns_to_its_network_namespace(hosts: Hosts) -> None:
    before = os.readlink("/proc/thread-self/ns/net")
    with hosts.on("a"):
        assert os.readlink("/proc/thread-self/ns/net") != before
    assert os.readlink("/proc/thread-self/ns/net") == before
    assert Path("/proc/thread-self/ns/net").exists()
