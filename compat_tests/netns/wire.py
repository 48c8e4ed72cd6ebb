"""The wire between network namespaces: a process that carries every IP packet, and can drop and delay packets.

Each namespace has one TUN device whose other end is a file here, so that all traffic between namespaces passes this
program. netem does the same in the kernel, but not all kernels are built with it, and its random numbers have no seed.
TUN devices are available nearly everywhere, links are one-way, and the losses follow from a seed. The devices' MTU is
large, because each packet costs a read and a write here.

    python -m compat_tests.netns.wire SEED

Commands are lines on its standard input; it writes a line of response to each, and ends at the end of its input.

    join NAMESPACE ADDRESS                     a device `wire` in that namespace (a name of iproute2's)
    link FROM TO CUT DELAY_MS JITTER_MS LOSS   set the faults of packets from one address to the other: CUT is 0 or 1,
                                               LOSS a probability; packets of a link stay in order
    count FROM TO                              carried and dropped packets
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import itertools
import os
import random
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

DEVICE = "wire"
MTU = 65_000
_NETWORK_BITS = 24
_TUN = "/dev/net/tun"
_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_IPV4 = 4
_FROM, _TO = slice(12, 16), slice(16, 20)
_PACKETS_AT_A_TIME = 64
_QUEUE_PACKETS = 5_000
_HELD_PACKETS_MAX = 20_000


class LinkFaults(NamedTuple):
    """The faults that the packets of a link suffer."""

    cut: bool = False
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss: float = 0.0


NO_FAULTS = LinkFaults()


@dataclass
class _Link:
    faults: LinkFaults = NO_FAULTS
    last_due: float = 0.0
    held: int = 0
    carried: int = 0
    dropped: int = 0


class Wire:
    """All devices, and the links between them. Times are seconds of the monotonic clock."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._devices: dict[bytes, int] = {}
        self._links: dict[tuple[bytes, bytes], _Link] = {}
        self._due: list[tuple[float, int, _Link, bytes]] = []
        self._order = itertools.count()
        self._epoll = select.epoll()

    def join(self, namespace: str, address: str) -> None:
        """Create a device in the namespace. Raises OSError, or CalledProcessError with the output of `ip`."""
        device = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        # The device has a unique name in this namespace until it is moved.
        here = f"{DEVICE}{os.getpid()}"
        fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", here.encode(), _IFF_TUN | _IFF_NO_PI))
        _ip("link", "set", here, "netns", namespace, "name", DEVICE)
        _ip("-n", namespace, "addr", "add", f"{address}/{_NETWORK_BITS}", "dev", DEVICE)
        _ip("-n", namespace, "link", "set", DEVICE, "mtu", str(MTU), "txqueuelen", str(_QUEUE_PACKETS), "up")
        self._devices[socket.inet_aton(address)] = device
        self._epoll.register(device, select.EPOLLIN)

    def link(self, source: str, target: str, faults: LinkFaults) -> None:
        self._link(socket.inet_aton(source), socket.inet_aton(target)).faults = faults

    def count(self, source: str, target: str) -> tuple[int, int]:
        """Return the numbers of carried and dropped packets."""
        link = self._link(socket.inet_aton(source), socket.inet_aton(target))
        return link.carried, link.dropped

    def run(self, commands: int, command: Callable[[], bool]) -> None:
        """Carry packets, and call `command` when the file `commands` is readable, until it returns False."""
        self._epoll.register(commands, select.EPOLLIN)
        while True:
            for file, _ in self._epoll.poll(self._until_next()):
                if file != commands:
                    self._receive(file)
                elif not command():
                    return
            self._deliver_due_packets()

    def _until_next(self) -> float:
        return max(0.0, self._due[0][0] - time.monotonic()) if self._due else -1

    def _receive(self, device: int) -> None:
        with contextlib.suppress(BlockingIOError):
            for _ in range(_PACKETS_AT_A_TIME):
                packet = os.read(device, MTU + 1)
                if packet[0] >> 4 == _IPV4:
                    self._send(packet)

    def _send(self, packet: bytes) -> None:
        link = self._link(packet[_FROM], packet[_TO])
        faults = link.faults
        if faults.cut or (faults.loss and self._rng.random() < faults.loss) or link.held >= _HELD_PACKETS_MAX:
            link.dropped += 1
        elif faults.delay_ms or faults.jitter_ms or link.held:
            delay_s = (faults.delay_ms + self._rng.uniform(0, faults.jitter_ms)) / 1000
            link.last_due = due = max(time.monotonic() + delay_s, link.last_due)
            link.held += 1
            heapq.heappush(self._due, (due, next(self._order), link, packet))
        else:
            self._deliver(link, packet)

    def _deliver_due_packets(self) -> None:
        now = time.monotonic()
        while self._due and self._due[0][0] <= now:
            _, _, link, packet = heapq.heappop(self._due)
            link.held -= 1
            # A packet that was held when the link was cut is lost too.
            if link.faults.cut:
                link.dropped += 1
            else:
                self._deliver(link, packet)

    def _deliver(self, link: _Link, packet: bytes) -> None:
        device = self._devices.get(packet[_TO])
        if device is None:
            link.dropped += 1
            return
        try:
            os.write(device, packet)
            link.carried += 1
        except OSError:
            # A network would also drop the packet.
            link.dropped += 1

    def _link(self, source: bytes, target: bytes) -> _Link:
        return self._links.setdefault((source, target), _Link())


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def _execute(wire: Wire, line: str) -> str:
    """Execute one command and return the response."""
    match line.split():
        case ["join", namespace, address]:
            wire.join(namespace, address)
            return "done"
        case ["link", source, target, cut, delay_ms, jitter_ms, loss]:
            wire.link(source, target, LinkFaults(cut == "1", float(delay_ms), float(jitter_ms), float(loss)))
            return "done"
        case ["count", source, target]:
            return "{} {}".format(*wire.count(source, target))
    raise ValueError(f"not a command: {line!r}")


def main() -> None:
    wire = Wire(int(sys.argv[1]))
    commands = sys.stdin.fileno()
    unread = bytearray()

    def command() -> bool:
        piece = os.read(commands, 65536)
        unread.extend(piece)
        while b"\n" in unread:
            line, _, rest = bytes(unread).partition(b"\n")
            unread[:] = rest
            try:
                response = _execute(wire, line.decode())
            except subprocess.CalledProcessError as error:
                response = f"failed: {error.stderr.strip()}"
            except OSError as error:
                response = f"failed: {error}"
            print(response, flush=True)
        return bool(piece)

    wire.run(commands, command)


if __name__ == "__main__":
    main()
