"""Unbatched produces against a running broker: requests per second, latency, and the server's CPU for each.

    python -m bench.unbatched HOST:PORT [--connections 1 16 64] [--seconds 3] [--pid SERVER] [--version 7] [--size 100]

One process, raw sockets and epoll, one request in flight on each connection, so that the client costs little beside the
server. With `--pid` the server's CPU time is read from /proc: on a busy machine it is the figure that means something.
"""

from __future__ import annotations

import argparse
import select
import socket
import struct
import time
from collections.abc import Callable

from odradek_wire.frames import decode_response, encode_request
from odradek_wire.message import Message
from odradek_wire.messages.metadata import MetadataRequest, MetadataResponse
from odradek_wire.messages.produce import ProduceRequest, ProduceResponse
from odradek_wire.records.builder import BatchBuilder

TOPIC = "bench-unbatched"
WARM_UP_S = 0.5


class Caller:
    """One connection that sends the same request again and again."""

    def __init__(self, address: tuple[str, int], frame: bytes) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.frame = frame
        self.sent_at = 0.0

    def send(self) -> None:
        self.sent_at = time.perf_counter()
        self.socket.send(self.frame)

    def receive(self) -> float:
        """Read an answer; seconds since the request."""
        if not self.socket.recv(4096):
            raise ConnectionError("the broker closed the connection")
        return time.perf_counter() - self.sent_at


def framed(request: Message, version: int) -> bytes:
    frame = encode_request(request, version, 1, "bench")
    return struct.pack(">i", len(frame)) + frame


def ask(address: tuple[str, int], frame: bytes) -> bytes:
    """The answer to one request, without its length."""
    with socket.create_connection(address) as connection:
        connection.sendall(frame)
        data = b""
        while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
            data += connection.recv(65536)
    return data[4:]


def produce_frame(version: int, partition: int, size: int, topic_id: bytes) -> bytes:
    builder = BatchBuilder()
    builder.append(int(time.time() * 1000), None, b"x" * size)
    data = ProduceRequest.PartitionProduceData(partition, bytes(builder.build()))
    topic = ProduceRequest.TopicProduceData(TOPIC, topic_id, [data])  # type: ignore[arg-type]  # 16 bytes
    return framed(ProduceRequest(None, -1, 30_000, [topic]), version)


def run(callers: list[Caller], seconds: float, measured: Callable[[float], object]) -> int:
    """Keep every connection busy; how many requests were answered."""
    poll = select.epoll()
    by_descriptor = {caller.socket.fileno(): caller for caller in callers}
    for descriptor in by_descriptor:
        poll.register(descriptor, select.EPOLLIN)
    for caller in callers:
        caller.send()
    answered, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        for descriptor, _ in poll.poll(1):
            caller = by_descriptor[descriptor]
            measured(caller.receive())
            caller.send()
            answered += 1
    for caller in callers:
        caller.receive()
    poll.close()
    return answered


def cpu_seconds(pid: int | None) -> float:
    if pid is None:
        return 0.0
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("broker")
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--pid", type=int)
    parser.add_argument("--version", type=int, default=7)
    parser.add_argument("--size", type=int, default=100)
    options = parser.parse_args()
    host, _, port = options.broker.rpartition(":")
    address = (host, int(port))
    metadata = framed(MetadataRequest([MetadataRequest.MetadataRequestTopic(name=TOPIC)]), 12)
    while True:
        _, known = decode_response(MetadataResponse, 12, ask(address, metadata))
        if not known.topics[0].error_code:
            break
        time.sleep(0.1)
    partitions = len(known.topics[0].partitions)
    frames = [
        produce_frame(options.version, partition, options.size, known.topics[0].topic_id)
        for partition in range(partitions)
    ]
    _, answer = decode_response(ProduceResponse, options.version, ask(address, frames[0]))
    assert answer.responses[0].partition_responses[0].error_code == 0, answer
    for count in options.connections:
        callers = [Caller(address, frames[number % partitions]) for number in range(count)]
        run(callers, WARM_UP_S, lambda _: None)
        latencies: list[float] = []
        cpu, started = cpu_seconds(options.pid), time.monotonic()
        answered = run(callers, options.seconds, latencies.append)
        elapsed, cpu = time.monotonic() - started, cpu_seconds(options.pid) - cpu
        latencies.sort()
        half, worst = latencies[len(latencies) // 2], latencies[len(latencies) * 99 // 100]
        line = f"{count:5d} connections {answered / elapsed:9.0f} req/s"
        line += f"   p50 {half * 1e6:7.0f} us   p99 {worst * 1e6:7.0f} us"
        print(line + (f"   server {cpu / answered * 1e6:5.1f} us CPU/req" if options.pid else ""))
        for caller in callers:
            caller.socket.close()


if __name__ == "__main__":
    main()
