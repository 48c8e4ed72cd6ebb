"""Encoding and decoding return an equal message, with the compiled codec and with the interpreter."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_samples import MESSAGES, few_examples, messages, versions

from odradek_wire.codec import decode, decode_prefix, definition, encode, encode_parts, limited_decoder
from odradek_wire.compiled import TABLE_LIMIT
from odradek_wire.errors import EncodeError, TooManyElementsError, UnsupportedVersionError
from odradek_wire.interpreter import Reader, Writer
from odradek_wire.message import Message
from odradek_wire.messages.fetch import FetchRequest, FetchResponse
from odradek_wire.messages.metadata import MetadataRequest
from odradek_wire.messages.offset_fetch import OffsetFetchRequest
from odradek_wire.messages.produce import ProduceRequest, ProduceResponse
from odradek_wire.uuid import Uuid


@pytest.mark.parametrize(("cls", "version"), versions())
@few_examples
@given(data=st.data())
def test_a_message_comes_back_equal_from_its_bytes(cls: type[Message], version: int, data: Any) -> None:
    message = data.draw(messages(cls, version))
    encoded = encode(message, version)
    assert b"".join(Writer(definition(cls), version).encode(message)) == encoded
    for buffer in (encoded, memoryview(encoded), bytearray(encoded)):
        assert decode(cls, version, buffer) == message
    assert Reader(definition(cls), cls, version, encoded).decode() == message
    assert encode(decode(cls, version, encoded), version) == encoded


@pytest.mark.parametrize(("cls", "version"), versions())
@few_examples
@given(data=st.data())
def test_a_limited_decoder_counts_elements_as_the_reader_does(cls: type[Message], version: int, data: Any) -> None:
    message = data.draw(messages(cls, version))
    encoded = encode(message, version)
    reader = Reader(definition(cls), cls, version, encoded, limit=1_000_000)
    assert reader.decode() == message
    elements = 1_000_000 - reader.left
    decode_limited = limited_decoder(cls, version)
    assert decode_limited(encoded, 0, elements) == (message, elements)
    assert decode_prefix(cls, version, encoded + b"more", 0, elements) == (message, len(encoded))
    if elements:
        with pytest.raises(TooManyElementsError):
            decode_limited(encoded, 0, elements - 1)
        with pytest.raises(TooManyElementsError):
            decode_prefix(cls, version, encoded, 0, elements - 1)


def test_a_limited_decoder_counts_5_million_names_before_it_reads_them() -> None:
    encoded = b"\x00\x4c\x4b\x40" + b"\x00\x01a" * 5_000_000 + b"\x01"
    with pytest.raises(TooManyElementsError):
        limited_decoder(MetadataRequest, 4)(memoryview(encoded), 0, 200_000)


@pytest.mark.parametrize("cls", MESSAGES.values())
def test_a_new_message_has_fresh_defaults(cls: type[Message]) -> None:
    for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
        assert decode(cls, version, encode(cls(), version)) == cls()
    one, other = cls(), cls()
    for name in cls.__slots__:
        if isinstance(getattr(one, name), list | Message):
            assert getattr(one, name) is not getattr(other, name)


def refusal(message: Message, version: int) -> tuple[str, str]:
    with pytest.raises(EncodeError) as caught:
        encode(message, version)
    assert (caught.value.message, caught.value.version) == (type(message).__name__, version)
    return caught.value.path, caught.value.reason


def test_a_set_field_that_the_version_lacks_must_be_ignorable() -> None:
    assert encode(ProduceResponse(throttle_time_ms=7), 0) == encode(ProduceResponse(), 0)
    assert refusal(ProduceRequest(transactional_id="t"), 2) == (
        "transactional_id",
        "set to 't', but version 2 has no such field",
    )
    assert refusal(FetchRequest(forgotten_topics_data=[FetchRequest.ForgottenTopic()]), 4) == (
        "forgotten_topics_data",
        "set to [ForgottenTopi...partitions=[])], but version 4 has no such field",
    )


def test_a_set_tagged_struct_that_the_version_lacks_is_rejected() -> None:
    partition = ProduceResponse.PartitionProduceResponse(current_leader=ProduceResponse.LeaderIdAndEpoch(1, 2))
    response = ProduceResponse([ProduceResponse.TopicProduceResponse(partition_responses=[partition])])
    assert refusal(response, 9) == (
        "responses[0].partition_responses[0].current_leader",
        "set to LeaderIdAndEp...eader_epoch=2), but version 9 has no such field",
    )
    partition.current_leader = ProduceResponse.LeaderIdAndEpoch()
    assert encode(response, 9) == encode(decode(ProduceResponse, 9, encode(response, 9)), 9)


def test_null_and_values_out_of_range_are_rejected_with_their_path() -> None:
    topic = MetadataRequest.MetadataRequestTopic(name=None)
    assert refusal(MetadataRequest([topic]), 9) == ("topics[0].name", "null where null is not allowed")
    assert refusal(MetadataRequest(None), 0) == ("topics", "null where null is not allowed")
    assert refusal(ProduceRequest(acks=1 << 15), 9)[0] == "acks"
    assert refusal(ProduceRequest(transactional_id="x" * 32768), 9) == (
        "transactional_id",
        "a string of 32768 bytes, at most 32767 allowed",
    )
    assert refusal(ProduceRequest(transactional_id="\ud800"), 9)[0] == "transactional_id"
    assert refusal(MetadataRequest([MetadataRequest.MetadataRequestTopic(topic_id=Uuid(b"short"))]), 12) == (
        "topics[0].topic_id",
        "a uuid of 5 bytes, expected 16",
    )


def test_unknown_tags_need_a_flexible_version() -> None:
    request = MetadataRequest()
    request.unknown_tags = ((100, b"later"),)
    assert decode(MetadataRequest, 9, encode(request, 9)) == request
    assert refusal(request, 8)[1] == "unknown tagged fields, but this version has no tags"


def test_a_version_out_of_range_is_named() -> None:
    for version in (-1, 14):
        with pytest.raises(UnsupportedVersionError, match=f"MetadataRequest has versions 0 to 13, got {version}"):
            encode(MetadataRequest(), version)
        with pytest.raises(UnsupportedVersionError):
            decode(MetadataRequest, version, b"")


class Slice:
    """A double of records in a file."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def tobytes(self) -> bytes:
        return self.data


@pytest.mark.parametrize("version", [0, 4, 11, 12, 18])
@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 16382, 16383, 16384, 70_000, 2_097_151, 2_097_152])
def test_records_are_passed_on_uncopied_both_ways(version: int, size: int) -> None:
    records = Slice(bytes(size))
    partition = FetchResponse.PartitionData(records=records)
    response = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(partitions=[partition])])
    parts = encode_parts(response, version)
    assert [part for part in parts if isinstance(part, Slice)] == [records]
    frame = bytearray(encode(response, version))
    assert frame == b"".join(part.tobytes() if isinstance(part, Slice) else part for part in parts)

    read = decode(FetchResponse, version, frame).responses[0].partitions[0].records
    assert isinstance(read, memoryview)
    assert read == records.data
    if size:
        read[0] = 77
        assert decode(FetchResponse, version, frame).responses[0].partitions[0].records[:1] == b"\x4d"


@pytest.mark.parametrize("version", [4, 11, 12, 18])
@pytest.mark.parametrize("count", [None, 0, 1, 2, 126, 127, 128, 300])
@pytest.mark.parametrize("records", [None, b"", bytes(200)])
def test_aborted_transactions_are_read_null_empty_or_long(
    version: int, count: int | None, records: bytes | None
) -> None:
    aborted = None if count is None else [FetchResponse.AbortedTransaction(i, 1 << 40) for i in range(count)]
    partitions = [
        FetchResponse.PartitionData(i, aborted_transactions=aborted, records=records, high_watermark=7)
        for i in range(2)
    ]
    response = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(partitions=partitions)])
    assert decode(FetchResponse, version, encode(response, version)) == response


def test_lengths_decode_the_same_with_and_without_a_table_entry() -> None:
    for _ in range(2):
        for size in range(TABLE_LIMIT + 50):
            request = MetadataRequest([MetadataRequest.MetadataRequestTopic(name="x" * size)])
            assert decode(MetadataRequest, 9, encode(request, 9)) == request
            asked = OffsetFetchRequest("g", [OffsetFetchRequest.OffsetFetchRequestTopic("t", [*range(size)])])
            assert decode(OffsetFetchRequest, 7, encode(asked, 7)) == asked


def test_a_tagged_struct_created_at_first_use_equals_the_default() -> None:
    response = FetchResponse.PartitionData()
    assert response == FetchResponse.PartitionData(current_leader=FetchResponse.LeaderIdAndEpoch(-1, -1))
    response.current_leader.leader_id = 5
    assert response.current_leader == FetchResponse.LeaderIdAndEpoch(5, -1)
    assert "current_leader=LeaderIdAndEpoch(leader_id=5, leader_epoch=-1)" in repr(response)
