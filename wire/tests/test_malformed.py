"""Malformed bytes: the only error is a DecodeError that names field and byte, and little memory is allocated."""

import functools
import os
import random
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from wire_samples import MESSAGES, messages

from odradek_wire.apis import APIS
from odradek_wire.codec import decode, decoder, definition, encode
from odradek_wire.errors import DecodeError
from odradek_wire.frames import decode_request, encode_request
from odradek_wire.interpreter import Reader
from odradek_wire.message import Message
from odradek_wire.messages.alter_client_quotas import AlterClientQuotasRequest
from odradek_wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek_wire.messages.fetch import FetchRequest, FetchResponse
from odradek_wire.messages.metadata import MetadataRequest
from odradek_wire.messages.offset_fetch import OffsetFetchRequest
from odradek_wire.messages.produce import ProduceRequest
from odradek_wire.messages.write_txn_markers import WriteTxnMarkersRequest

FRAMES = int(os.environ.get("ODRADEK_FUZZ_FRAMES", "200000"))
SEED = int(os.environ.get("ODRADEK_FUZZ_SEED", "4"))

INTERESTING = (
    b"\x00",
    b"\x01",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff\xff",
    b"\x7f\xff",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
)
VARINTS = (b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff\x01", b"\x80\x80\x01", b"\x80\x00")


@functools.cache
def bodies() -> list[tuple[type[Message], int, bytes]]:
    """Return one valid body for each request and response in each version."""
    return [
        (cls, version, some_body(cls, version))
        for cls in MESSAGES.values()
        if cls.__name__.endswith(("Request", "Response"))
        for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1)
    ]


def some_body(cls: type[Message], version: int) -> bytes:
    """Return the bytes of a random message whose size is near 200 bytes."""
    drawn: list[bytes] = []

    @settings(
        max_examples=5,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(messages(cls, version))
    def draw(message: Any) -> None:
        drawn.append(encode(message, version))

    draw()
    return min(drawn, key=lambda body: abs(len(body) - 200))


def mutants(body: bytes, rng: random.Random) -> Iterator[bytes]:
    """Yield copies of the body that are truncated or extended, or have other bits, lengths or pieces."""
    while True:
        data = bytearray(body)
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            at = rng.randrange(len(data) + 1)
            kind = rng.randrange(8)
            if kind == 0:
                del data[at:]
            elif kind == 1:
                data[at:at] = rng.choice(INTERESTING)
            elif kind == 2:
                piece = rng.choice(INTERESTING)
                data[at : at + len(piece)] = piece
            elif kind == 3:
                data[at : at + 1] = rng.choice(VARINTS)
            elif kind == 4 and data:
                data[at % len(data)] ^= 1 << rng.randrange(8)
            elif kind == 5:
                del data[at : at + rng.randrange(1, 9)]
            elif kind == 6:
                data[at:at] = data[max(0, at - rng.randrange(1, 40)) : at]
            else:
                data += rng.randbytes(rng.randrange(1, 5))
        yield bytes(data)


@pytest.mark.long
def test_mutated_frames_decode_or_raise_in_bounded_time_and_memory() -> None:
    """If the decoder accepts a mutant, the interpreter must read the same message."""
    rng = random.Random(SEED)
    sources = bodies()
    each = FRAMES // len(sources) + 1
    refused = accepted = wrong = 0
    slowest = 0.0
    for cls, version, body in sources:
        decode_one = decoder(cls, version)
        source = mutants(body, rng)
        for _ in range(each):
            mutant = next(source)
            began = time.process_time()
            try:
                message = decode_one(mutant)
            except DecodeError as e:
                refused += 1
                wrong += (e.message, e.version) != (cls.__name__, version) or not 0 <= e.position <= len(mutant)
            else:
                accepted += 1
                if accepted % 50 == 0:
                    assert Reader(definition(cls), cls, version, mutant).decode() == message
            slowest = max(slowest, time.process_time() - began)
    assert wrong == 0
    assert refused + accepted >= FRAMES
    assert refused > FRAMES // 4
    assert slowest < 1


def test_memory_for_a_malformed_frame_is_a_small_multiple_of_its_size() -> None:
    """The worst case is an array of the smallest structs: a Python object for a few bytes."""
    rng = random.Random(SEED + 1)
    sources = bodies()
    tracemalloc.start()
    try:
        for cls, version, body in sources[::2]:
            decode_one = decoder(cls, version)
            source = mutants(body, rng)
            for _ in range(2):
                mutant = next(source)
                tracemalloc.reset_peak()
                before, _ = tracemalloc.get_traced_memory()
                try:
                    message = decode_one(mutant)
                except DecodeError:
                    message = None
                _, peak = tracemalloc.get_traced_memory()
                del message
                assert peak - before < 100_000 + 150 * len(mutant), (cls, version, mutant.hex())
    finally:
        tracemalloc.stop()


def test_a_frame_of_smallest_structs_is_the_most_expensive() -> None:
    """An element has three bytes in the frame. The broker's memory budget limits the size of frames."""
    entries = [AlterClientQuotasRequest.EntryData() for _ in range(10_000)]
    frame = encode(AlterClientQuotasRequest(entries), 1)
    assert len(frame) == 10_000 * 3 + 4
    read = decoder(AlterClientQuotasRequest, 1)
    tracemalloc.start()
    try:
        message = read(frame)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(message.entries) == 10_000
    assert peak < 80 * len(frame)


@pytest.mark.parametrize("count", [b"\xff\xff\xff\xff\x07", b"\x80\x80\x80\x80\x01"])
@pytest.mark.parametrize("cls", [cls for cls in MESSAGES.values() if cls.FLEXIBLE_FROM <= cls.MAX_VERSION])
def test_a_huge_count_anywhere_allocates_little_memory(cls: type[Message], count: bytes) -> None:
    body = encode(cls(), cls.MAX_VERSION)
    decode(cls, cls.MAX_VERSION, body)
    tracemalloc.start()
    try:
        for at in range(len(body)):
            with suppress(DecodeError):
                decode(cls, cls.MAX_VERSION, body[:at] + count + body[at + 1 :])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 200_000


def error(cls: type[Message], version: int, data: bytes) -> tuple[str, int, str]:
    with pytest.raises(DecodeError) as caught:
        decode(cls, version, data)
    assert (caught.value.message, caught.value.version) == (cls.__name__, version)
    return caught.value.path, caught.value.position, caught.value.reason


def test_a_truncated_message_names_the_field_and_the_byte() -> None:
    body = encode(MetadataRequest([MetadataRequest.MetadataRequestTopic(name="orders")]), 8)
    assert error(MetadataRequest, 8, body[:8]) == ("topics[0].name", 6, "6 bytes needed, 2 left")
    assert error(MetadataRequest, 8, b"") == ("topics", 0, "4 bytes needed, 0 left")


def test_bytes_after_the_end_are_rejected() -> None:
    assert error(ApiVersionsRequest, 0, b"\x00") == ("", 0, "1 bytes after the end of the message")


def test_null_is_rejected_where_the_version_has_none() -> None:
    assert error(MetadataRequest, 0, b"\xff\xff\xff\xff") == ("topics", 4, "null where null is not allowed")
    assert decode(MetadataRequest, 1, b"\xff\xff\xff\xff") == MetadataRequest(topics=None)
    assert error(MetadataRequest, 9, b"\x02\x00\x00") == ("topics[0].name", 2, "null where null is not allowed")


def test_null_may_be_written_as_an_overlong_varint() -> None:
    assert error(WriteTxnMarkersRequest, 1, b"\x80\x00\x00") == ("markers", 2, "null where null is not allowed")
    assert decode(MetadataRequest, 9, b"\x80\x00" + bytes(4)) == MetadataRequest(
        topics=None, allow_auto_topic_creation=False
    )


def test_a_fetch_cut_anywhere_is_rejected_and_long_varint_counts_are_read() -> None:
    partition = FetchResponse.PartitionData(aborted_transactions=None, records=None)
    response = FetchResponse(responses=[FetchResponse.FetchableTopicResponse("t", partitions=[partition])])
    body = encode(response, 12)
    for cut in range(len(body)):
        with pytest.raises(DecodeError):
            decode(FetchResponse, 12, body[:cut])
    for at, values in ((44, (None, [])), (49, (None, b""))):
        assert body[at] == 0
        for overlong, value in zip((b"\x80\x00", b"\x81\x80\x80\x00"), values, strict=True):
            setattr(partition, "aborted_transactions" if at == 44 else "records", value)
            assert decode(FetchResponse, 12, body[:at] + overlong + body[at + 1 :]) == response
        partition.aborted_transactions = partition.records = None


def test_a_negative_length_is_rejected() -> None:
    assert error(MetadataRequest, 1, b"\xff\xff\xff\xfe") == ("topics", 4, "length must be at least -1, got -2")
    assert error(ProduceRequest, 3, b"\xff\xfe") == ("transactional_id", 2, "length must be at least -1, got -2")


def test_an_array_count_is_checked_against_the_remaining_bytes() -> None:
    assert error(MetadataRequest, 0, b"\x7f\xff\xff\xff") == (
        "topics",
        4,
        "an array of 2147483647 elements, 0 bytes left",
    )
    assert error(OffsetFetchRequest, 0, b"\x00\x00\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x02\x00\x00\x00\x00") == (
        "topics[0].partition_indexes",
        13,
        "an array of 2 elements, 4 bytes left",
    )


def test_a_varint_must_fit_in_31_bits_and_5_bytes() -> None:
    assert error(MetadataRequest, 9, b"\xff\xff\xff\xff\x0f") == (
        "topics",
        5,
        "varint must be below 2^31, got 4294967295",
    )
    assert error(MetadataRequest, 9, b"\xff\xff\xff\xff\xff\x01") == ("topics", 5, "a varint of more than 5 bytes")


def test_text_must_be_utf_8() -> None:
    assert error(MetadataRequest, 0, b"\x00\x00\x00\x01\x00\x02a\xff") == (
        "topics[0].name",
        6,
        "not UTF-8: invalid start byte",
    )


def test_a_string_is_at_most_32767_bytes() -> None:
    path, position, reason = error(ProduceRequest, 9, b"\x81\x80\x02" + b"x" * 40_000)
    assert (path, position, reason) == ("transactional_id", 3, "a string of 32768 bytes, at most 32767 allowed")


def test_tags_ascend_and_end_where_they_say() -> None:
    start = encode(ApiVersionsResponse(), 3)[:-1]
    assert error(ApiVersionsResponse, 3, start + b"\x02\x64\x00\x63\x00") == (
        "tags",
        len(start) + 4,
        "tag 99 after tag 100: tags must ascend",
    )
    assert error(ApiVersionsResponse, 3, start + b"\x02\x64\x00\x64\x00") == (
        "tags",
        len(start) + 4,
        "tag 100 after tag 100: tags must ascend",
    )
    assert error(ApiVersionsResponse, 3, start + b"\x01\x01\x09" + bytes(9)) == (
        "finalized_features_epoch",
        len(start) + 11,
        "tag 1 of 9 bytes: its field ends at byte " + str(len(start) + 11),
    )
    assert error(ApiVersionsResponse, 3, start + b"\x01\x64\x05ab") == (
        "tags",
        len(start) + 3,
        "5 bytes needed, 2 left",
    )


def test_unknown_tags_are_kept_and_written_again_in_their_place() -> None:
    start = encode(ApiVersionsResponse(), 3)[:-1]
    body = start + b"\x03" + b"\x01\x08" + bytes(7) + b"\x05" + b"\x03\x01\x01" + b"\x64\x03abc"
    message = decode(ApiVersionsResponse, 3, body)
    assert message.unknown_tags == ((100, b"abc"),)
    assert (message.finalized_features_epoch, message.zk_migration_ready) == (5, True)
    assert encode(message, 3) == body


def test_a_broken_request_header_is_a_decode_error() -> None:
    whole = encode_request(FetchRequest(), 12, 7, "client")
    assert decode_request(whole)[1] == FetchRequest()
    for cut in range(len(whole)):
        with pytest.raises(DecodeError):
            decode_request(whole[:cut])
    with pytest.raises(DecodeError) as caught:
        decode_request(b"\x00\x03\x00\x09\x00\x00\x00\x01\xff\xfe\x00")
    assert str(caught.value) == "RequestHeader v2, client_id, byte 10: length must be at least -1, got -2"


def test_a_request_without_its_body_is_a_decode_error() -> None:
    for api in APIS.values():
        for version in range(api.versions[0], api.versions[1] + 1):
            body = encode(api.request_class()(), version)
            whole = encode_request(api.request_class()(), version, 1)
            assert whole.endswith(body)
            if body:
                with pytest.raises(DecodeError):
                    decode_request(whole[: len(whole) - len(body)])
