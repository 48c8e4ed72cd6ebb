"""What the bench prints: figures, ratios and verdicts, and the request bytes that its fastest client sends."""

from __future__ import annotations

import struct

from bench.load.frames import FETCH_VERSION, PRODUCE_VERSION, Calls
from bench.measurement import KAFKA, ODRADEK, Measurement, as_fast_as, at_least, at_most, limit
from bench.table import markdown

from odradek_wire.codec import Part
from odradek_wire.frames import encode_response_parts
from odradek_wire.message import Message
from odradek_wire.messages.fetch import FetchResponse
from odradek_wire.messages.produce import ProduceResponse

_HEAD = "| --- | --- | ---: | ---: | ---: | --- | --- | --- |"


def test_a_line_has_figures_ratio_target_and_verdict() -> None:
    measurements = [
        Measurement("produce", "MB/s", {ODRADEK: 743.2, KAFKA: 262}, (at_least(2),)),
        Measurement("processor", "CPU-s", {ODRADEK: 1.5, KAFKA: 3}, (at_most(0.3),), "why"),
        Measurement("memory", "MB", {ODRADEK: 31, KAFKA: 385}, (limit(45, "MB"),)),
    ]
    assert markdown(measurements).splitlines() == [
        "| work |  | Odradek | Apache Kafka 4.3.0 | ratio | target |  |  |",
        _HEAD,
        "| produce | MB/s | 743 | 262 | 2.84 × | ≥ 2 × | met |  |",
        "| processor | CPU-s | 1.50 | 3.00 | 0.500 × | ≤ 0.3 × | **missed** | why |",
        "| memory | MB | 31.0 | 385 | 0.0805 × | ≤ 45 MB | met |  |",
    ]


def test_what_could_not_be_measured_is_neither_met_nor_missed() -> None:
    measurements = [
        Measurement("produce", "MB/s", {ODRADEK: 700, KAFKA: 262}, (at_least(2),)),
        Measurement("processor", "CPU-s", {ODRADEK: 0.5}, (at_most(0.3),)),
    ]
    assert markdown(measurements).splitlines()[-1] == "| processor | CPU-s | 0.500 | – | – | ≤ 0.3 × | – |  |"


def test_lines_that_compare_with_others_have_a_table_of_their_own() -> None:
    measurements = [
        Measurement("produce", "MB/s", {ODRADEK: 1, KAFKA: 1}),
        Measurement("decode", "µs", {ODRADEK: 2, "kio": 8}, (as_fast_as(3, "kio"),)),
        Measurement("import", "ms", {ODRADEK: 20}),
    ]
    assert markdown(measurements).splitlines()[3:] == [
        "",
        "| work |  | Odradek | kio | ratio | target |  |  |",
        _HEAD,
        "| decode | µs | 2.00 | 8.00 | 0.250 × | 3 × as fast as kio | met |  |",
        "| import | ms | 20.0 | – | – |  |  |  |",
    ]


def test_the_client_finds_offset_and_error_of_a_produce() -> None:
    calls = Calls("topic", 2, 100)

    def answer(error: int) -> bytes:
        partition = ProduceResponse.PartitionProduceResponse(2, error, base_offset=77)
        topic = ProduceResponse.TopicProduceResponse("topic", partition_responses=[partition])
        return _framed(ProduceResponse([topic]), PRODUCE_VERSION)

    assert calls.produced_at(answer(0)) == 77
    assert calls.produced_at(answer(6)) == -1


def test_the_client_sees_whether_a_fetch_brought_records() -> None:
    calls = Calls("topic", 2, 100)

    def answer(error: int, records: bytes) -> bytes:
        partition = FetchResponse.PartitionData(2, error, records=records, aborted_transactions=[])
        topic = FetchResponse.FetchableTopicResponse("topic", partitions=[partition])
        return _framed(FetchResponse(responses=[topic]), FETCH_VERSION)

    assert calls.fetched(answer(0, b"records")) is True
    assert calls.fetched(answer(0, b"")) is False
    assert calls.fetched(answer(1, b"records")) is False


def _framed(response: Message, version: int) -> bytes:
    frame = b"".join(_plain(part) for part in encode_response_parts(response, version, 1))
    return struct.pack(">i", len(frame)) + frame


def _plain(part: Part) -> bytes:
    return bytes(part) if isinstance(part, bytes | memoryview) else bytes(part.tobytes())
