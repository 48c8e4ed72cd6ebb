"""The tables of the bench, and the prepared requests of its fastest client."""

from __future__ import annotations

import struct

from bench.load.frames import FETCH_VERSION, PRODUCE_VERSION, PreparedRequests
from bench.measurement import KAFKA, ODRADEK, Measurement, as_fast_as, at_least, at_most, limit
from bench.table import markdown

from odradek_wire.codec import Part
from odradek_wire.frames import encode_response_parts
from odradek_wire.message import Message
from odradek_wire.messages.fetch import FetchResponse
from odradek_wire.messages.produce import ProduceResponse

_HEAD = "| --- | --- | ---: | ---: | ---: | --- | --- | --- |"


def test_a_row_has_figures_ratio_target_and_verdict() -> None:
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


def test_a_missing_figure_is_neither_met_nor_missed() -> None:
    measurements = [
        Measurement("produce", "MB/s", {ODRADEK: 700, KAFKA: 262}, (at_least(2),)),
        Measurement("processor", "CPU-s", {ODRADEK: 0.5}, (at_most(0.3),)),
    ]
    assert markdown(measurements).splitlines()[-1] == "| processor | CPU-s | 0.500 | – | – | ≤ 0.3 × | – |  |"


def test_rows_with_other_columns_have_their_own_table() -> None:
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


def test_the_client_reads_the_offset_and_error_of_a_produce_response() -> None:
    requests = PreparedRequests("topic", 2, 100)

    def response(error: int) -> bytes:
        partition = ProduceResponse.PartitionProduceResponse(2, error, base_offset=77)
        topic = ProduceResponse.TopicProduceResponse("topic", partition_responses=[partition])
        return _framed(ProduceResponse([topic]), PRODUCE_VERSION)

    assert requests.produced_offset(response(0)) == 77
    assert requests.produced_offset(response(6)) == -1


def test_the_client_reads_whether_a_fetch_response_has_records() -> None:
    requests = PreparedRequests("topic", 2, 100)

    def response(error: int, records: bytes) -> bytes:
        partition = FetchResponse.PartitionData(2, error, records=records, aborted_transactions=[])
        topic = FetchResponse.FetchableTopicResponse("topic", partitions=[partition])
        return _framed(FetchResponse(responses=[topic]), FETCH_VERSION)

    assert requests.has_records(response(0, b"records")) is True
    assert requests.has_records(response(0, b"")) is False
    assert requests.has_records(response(1, b"records")) is False


def _framed(response: Message, version: int) -> bytes:
    frame = b"".join(_plain(part) for part in encode_response_parts(response, version, 1))
    return struct.pack(">i", len(frame)) + frame


def _plain(part: Part) -> bytes:
    return bytes(part) if isinstance(part, bytes | memoryview) else bytes(part.tobytes())
