"""The cost of a message: `python bench/wire.py` compares our codec with kafka-python's protocol package and kio.

All libraries decode and encode the same bytes, in turn, so that a busy machine affects all of them; the figures are
medians of CPU time. Targets: decode and encode at least 3 times as fast as kafka-python, encode at least 4 times as
fast as kio, decode in at most 3.5 times the time of kio's native reader; import the codec within 60 ms.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

from odradek_wire.codec import decoder, definition, encode, encode_parts
from odradek_wire.compiled_decoder import compile_decoder
from odradek_wire.compiled_encoder import compile_encoder
from odradek_wire.message import Message
from odradek_wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek_wire.messages.fetch import FetchRequest, FetchResponse
from odradek_wire.messages.metadata import MetadataRequest, MetadataResponse
from odradek_wire.messages.produce import ProduceRequest, ProduceResponse
from odradek_wire.notation import load
from odradek_wire.uuid import Uuid

BATCH = bytes(range(256)) * 64


def produce(partitions: int, batch: bytes) -> ProduceRequest:
    data = [ProduceRequest.PartitionProduceData(i, batch) for i in range(partitions)]
    return ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[ProduceRequest.TopicProduceData("orders", partition_data=data)]
    )


def produced() -> ProduceResponse:
    partition = ProduceResponse.PartitionProduceResponse(0, base_offset=42, log_start_offset=0)
    return ProduceResponse([ProduceResponse.TopicProduceResponse("orders", partition_responses=[partition])])


def fetch() -> FetchRequest:
    partitions = [FetchRequest.FetchPartition(i, 5, 1_000_000 + i, partition_max_bytes=1 << 20) for i in range(3)]
    return FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 << 20,
        topics=[FetchRequest.FetchTopic("orders", partitions=partitions)],
    )


def fetched(count: int) -> FetchResponse:
    partitions = [
        FetchResponse.PartitionData(i, high_watermark=1_000_100, last_stable_offset=1_000_100, records=BATCH)
        for i in range(count)
    ]
    return FetchResponse(responses=[FetchResponse.FetchableTopicResponse("orders", partitions=partitions)])


def metadata() -> MetadataResponse:
    brokers = [
        MetadataResponse.MetadataResponseBroker(i, f"broker-{i}.example.com", 9092, f"rack-{i}") for i in range(3)
    ]
    topics = [
        MetadataResponse.MetadataResponseTopic(
            name=f"some-topic-{i}",
            topic_id=Uuid(i.to_bytes(16)),
            partitions=[
                MetadataResponse.MetadataResponsePartition(0, p, p, 7, replica_nodes=[0, 1, 2], isr_nodes=[0, 1, 2])
                for p in range(3)
            ],
        )
        for i in range(100)
    ]
    return MetadataResponse(brokers=brokers, cluster_id="odradek", controller_id=1, topics=topics)


WORK: list[tuple[str, Message, int]] = [
    ("Produce v9, 3 x 16 KiB", produce(3, BATCH), 9),
    ("Produce v9, 12 x 16 KiB", produce(12, BATCH), 9),
    ("Produce v9, 100 B", produce(1, BATCH[:100]), 9),
    ("Produce v9 response", produced(), 9),
    ("Fetch v12 request", fetch(), 12),
    ("Fetch v12, 3 x 16 KiB", fetched(3), 12),
    ("Fetch v12, 12 x 16 KiB", fetched(12), 12),
    ("Metadata v12, 100 topics", metadata(), 12),
]


class OtherLibrary:
    """Another library's decoder and encoder of one message."""

    def __init__(self, decode: Callable[[memoryview], Any], encode: Callable[[Any], Any]) -> None:
        self.decode = decode
        self.encode = encode


def kafka_python(message: Message, version: int) -> OtherLibrary:
    api_message = import_module("kafka.protocol.api_message")
    for part in ("consumer", "metadata", "producer"):
        import_module(f"kafka.protocol.{part}")
    theirs: Any = next(cls for cls in api_message.ApiMessage.__subclasses__() if cls.name == type(message).__name__)

    def decode(data: memoryview) -> Any:
        read = theirs.decode(data, version=version)
        read._header = None
        return read

    return OtherLibrary(decode, lambda value: value.encode(version=version))


def kio(message: Message, version: int) -> OtherLibrary:
    from kio.index import load_request_schema, load_response_schema
    from kio.serial import entity_reader, entity_writer

    find = load_request_schema if type(message).__name__.endswith("Request") else load_response_schema
    theirs: Any = find(message.API_KEY, version)
    read, write = entity_reader(theirs), entity_writer(theirs)

    def encode(value: Any) -> bytes:
        buffer = io.BytesIO()
        write(buffer, value)
        return buffer.getvalue()

    return OtherLibrary(lambda data: read(data, 0)[0], encode)


def microseconds(work: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the median CPU time of one call of each function; the functions run in turn."""
    calls = {}
    for name, call in work.items():
        call()
        started = time.process_time()
        call()
        calls[name] = max(1, int(0.01 / max(time.process_time() - started, 1e-6)))
    times: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, call in work.items():
            started = time.process_time()
            for _ in range(calls[name]):
                call()
            times[name].append((time.process_time() - started) / calls[name] * 1e6)
    return {name: statistics.median(values) for name, values in times.items()}


def import_milliseconds(rounds: int) -> float:
    """Return the import time of odradek_wire and its codec in a new interpreter, with bytecode as after an install."""
    program = "import time; s = time.process_time(); import odradek_wire.codec; print((time.process_time() - s) * 1e3)"
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": cache}
        command = [sys.executable, "-c", program]
        times = [
            float(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)
            for _ in range(rounds + 1)
        ]
    return statistics.median(times[1:])


def compile_milliseconds(rounds: int) -> dict[str, float]:
    """Return the time to read a definition and compile a decoder and an encoder, as a broker's start does."""
    work: dict[str, Callable[[], object]] = {}
    for request, response, version in (
        (ApiVersionsRequest, ApiVersionsResponse, 3),
        (MetadataRequest, MetadataResponse, 12),
    ):

        def make(request: Any = request, response: Any = response, version: int = version) -> None:
            messages = {message.name: message for message in load(request.DEFINITION)}
            compile_decoder(messages[request.__name__], request, version)
            compile_encoder(messages[response.__name__], response, version)

        work[f"{request.DEFINITION}: definition, request decoder, response encoder"] = make
    return {name: value / 1e3 for name, value in microseconds(work, rounds).items()}


def compare(message: Message, version: int, rounds: int) -> dict[str, dict[str, float]]:
    """Return the microseconds to decode and to encode one message, for us and for the other libraries."""
    cls = type(message)
    data = memoryview(encode(message, version))
    assert definition(cls).name == cls.__name__
    others = {"kafka-python": kafka_python(message, version), "kio": kio(message, version)}
    read = {name: library.decode(data) for name, library in others.items()}
    ours = decoder(cls, version)
    decoding: dict[str, Callable[[], object]] = {"odradek": lambda: ours(data)}
    encoding: dict[str, Callable[[], object]] = {
        "odradek": lambda: encode(message, version),
        "odradek, parts": lambda: encode_parts(message, version),
    }
    for name, library in others.items():
        assert library.encode(read[name]) == data
        decoding[name] = lambda library=library: library.decode(data)  # type: ignore[misc]
        encoding[name] = lambda library=library, value=read[name]: library.encode(value)  # type: ignore[misc]
    return {"decode": microseconds(decoding, rounds), "encode": microseconds(encoding, rounds)}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=15)
    arguments.add_argument("--json", action="store_true")
    options = arguments.parse_args()
    results: dict[str, Any] = {title: compare(message, version, options.rounds) for title, message, version in WORK}
    results["import, ms"] = import_milliseconds(options.rounds)
    results["compile, ms"] = compile_milliseconds(options.rounds)
    if options.json:
        print(json.dumps(results, indent=1))
        return
    print(f"{'microseconds (x: how many times our time)':<42}{'odradek':>9}{'kafka-python':>20}{'kio':>20}")
    for title, _, _ in WORK:
        for way in ("decode", "encode"):
            us = results[title][way]
            row = f"{title + ', ' + way:<42}{us['odradek']:>9.2f}"
            for name in ("kafka-python", "kio"):
                row += f"{us[name]:>12.2f} {us[name] / us['odradek']:>6.2f}x"
            print(row)
    print(f"{'import odradek_wire.codec':<42}{results['import, ms']:>9.2f} ms")
    for name, value in results["compile, ms"].items():
        print(f"{name:<70}{value:>6.2f} ms")


if __name__ == "__main__":
    main()
