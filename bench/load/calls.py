"""Many connections, one request in flight on each: `python -m bench.load.calls HOST:PORT TOPIC --connections N …`.

Each Produce request has one small record; with `--fetch` a Fetch of that record follows. Without `--rate` a connection
sends its next request as soon as it has the response. With it, all connections together send this number of requests a
second, in even steps, and the latency of a late request counts from the time at which it was due. One thread on epoll
sends prepared bytes over raw sockets. Prints completed requests, seconds, p50 and p99 in milliseconds, errors, the
smallest number of responses on a connection, the client's share of a processor and, with `--pid`, the server's
processor time per request.
"""

from __future__ import annotations

import argparse
import heapq
import json
import select
import socket
import time

from bench.load.frames import PreparedRequests
from bench.process import cpu_seconds
from bench.topics import PARTITIONS
from odradek.client.client import parse_address

_WARM_UP_S = 0.5
_EPOLL_STEP_S = 0.001
_RECEIVE_BYTES = 1 << 16


class Caller:
    """One connection: repeats Produce and, with `fetch`, a Fetch of the record."""

    def __init__(self, address: tuple[str, int], requests: PreparedRequests, *, fetch: bool) -> None:
        self.socket = socket.create_connection(address, timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.requests = requests
        self.fetch = fetch
        self.next = requests.produce
        self.due = 0.0
        """The time from which the latency of the request in flight counts."""
        self.responses = 0
        self._received = b""

    def send(self, due: float) -> None:
        self.due = due
        self.socket.send(self.next)

    def receive(self) -> bool | None:
        """Return None if the response is incomplete, else whether it has no error."""
        received = self.socket.recv(_RECEIVE_BYTES)
        if not received:
            raise ConnectionError("the broker closed the connection")
        if self._received:
            received = self._received + received
        if len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4]):
            self._received = received
            return None
        self._received = b""
        self.responses += 1
        if self.next is not self.requests.produce:
            self.next = self.requests.produce
            return self.requests.has_records(received)
        offset = self.requests.produced_offset(received)
        if self.fetch and offset >= 0:
            self.next = self.requests.fetch(offset)
        return offset >= 0


class Load:
    """The load of all connections."""

    def __init__(self, callers: list[Caller], rate: float) -> None:
        self.by_descriptor = {caller.socket.fileno(): caller for caller in callers}
        self.period = len(callers) / rate if rate else 0.0
        self.latencies: list[float] = []
        self.errors = 0
        self._due: list[tuple[float, int]] = []
        self._poll = select.epoll()
        for descriptor in self.by_descriptor:
            self._poll.register(descriptor, select.EPOLLIN)

    def run(self, seconds: float) -> float:
        """Send requests for some seconds. Return the time up to the last response."""
        self.latencies, self.errors, waiting = [], 0, 0
        begun = time.perf_counter()
        end = begun + seconds
        step = self.period / len(self.by_descriptor)
        self._due = [(begun + number * step, descriptor) for number, descriptor in enumerate(self.by_descriptor)]
        while True:
            now = time.perf_counter()
            while self._due and self._due[0][0] <= now < end:
                due, descriptor = heapq.heappop(self._due)
                self.by_descriptor[descriptor].send(due)
                waiting += 1
            if now >= end and not waiting:
                return now - begun
            for descriptor, _ in self._poll.poll(self._pause(now, end)):
                waiting -= self._receive(descriptor, end)

    def _pause(self, now: float, end: float) -> float:
        """Return the time until a request is due, less a millisecond, because epoll rounds up to milliseconds."""
        if now >= end:
            return 10.0
        until = min(self._due[0][0], end) if self._due else end
        return max(until - now - _EPOLL_STEP_S, 0.0)

    def close(self) -> None:
        for caller in self.by_descriptor.values():
            caller.socket.close()

    def _receive(self, descriptor: int, end: float) -> int:
        """Receive from a connection. Return 1 if it has no request in flight afterwards, else 0."""
        caller = self.by_descriptor[descriptor]
        try:
            succeeded = caller.receive()
        except OSError:
            self._poll.unregister(descriptor)
            self.errors += 1
            return 1
        if succeeded is None:
            return 0
        now = time.perf_counter()
        self.latencies.append(now - caller.due)
        self.errors += not succeeded
        if now >= end:
            return 1
        if self.period:
            heapq.heappush(self._due, (caller.due + self.period, descriptor))
            return 1
        caller.send(now)
        return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("broker")
    parser.add_argument("topic")
    parser.add_argument("--connections", type=int, required=True)
    parser.add_argument("--idle", type=int, default=0, help="additional connections that send nothing")
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--fetch", action="store_true")
    parser.add_argument("--pid", type=int, help="the server's process, for its processor time per request")
    options = parser.parse_args()
    address = parse_address(options.broker)
    requests = [PreparedRequests(options.topic, partition, options.size) for partition in range(PARTITIONS)]
    idle = [socket.create_connection(address, timeout=30) for _ in range(options.idle)]
    callers = [
        Caller(address, requests[number % PARTITIONS], fetch=options.fetch) for number in range(options.connections)
    ]
    load = Load(callers, options.rate)
    load.run(_WARM_UP_S)
    for caller in callers:
        caller.responses = 0
    cpu, server_cpu = time.process_time(), cpu_seconds(options.pid) if options.pid else 0.0
    seconds = load.run(options.seconds)
    cpu = time.process_time() - cpu
    latencies = sorted(load.latencies)
    lost = sum(_closed(connection) for connection in idle)
    figures = {
        "requests": len(latencies),
        "seconds": seconds,
        "p50_ms": latencies[len(latencies) // 2] * 1e3,
        "p99_ms": latencies[len(latencies) * 99 // 100] * 1e3,
        "errors": load.errors + lost,
        "least_served": min(caller.responses for caller in callers),
        "client_busy": cpu / seconds,
    }
    if options.pid:
        figures["server_us"] = (cpu_seconds(options.pid) - server_cpu) / len(latencies) * 1e6
    load.close()
    print(json.dumps(figures))


def _closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return not connection.recv(1)
    except BlockingIOError:
        return False
    except OSError:
        return True


if __name__ == "__main__":
    main()
