"""Headers and whole frames, with the exceptions that Kafka makes for single APIs."""

from typing import Any

import pytest
from wire_samples import MESSAGES

from odradek_wire.apis import APIS, ApiKey, request_header_version, response_header_version
from odradek_wire.codec import encode
from odradek_wire.errors import ErrorCode, UnsupportedVersionError
from odradek_wire.frames import (
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response_parts,
)
from odradek_wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek_wire.messages.controlled_shutdown import ControlledShutdownRequest
from odradek_wire.messages.fetch import FetchResponse
from odradek_wire.messages.metadata import MetadataRequest, MetadataResponse
from odradek_wire.messages.request_header import RequestHeader

EVERY_VERSION = [
    pytest.param(api, version, id=f"{api.name}-v{version}")
    for api in APIS.values()
    for version in range(api.versions[0], api.versions[1] + 1)
]


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_a_frame_comes_back_with_its_header(api: Any, version: int) -> None:
    has_client_id = request_header_version(api.key, version) > 0
    client_id = "spool" if has_client_id else None
    frame = encode_request(api.request_class()(), version, 77, client_id)
    for buffer in (frame, memoryview(frame), bytearray(frame)):
        key, *rest, position = decode_request_header(buffer)
        assert [key, *rest] == [api.key, version, 77, client_id]
        assert frame[position:] == encode(api.request_class()(), version)
        header, request = decode_request(buffer)
        assert header == RequestHeader(api.key, version, 77, client_id)
        assert request == api.request_class()()
    answer = b"".join(bytes(part) for part in encode_response_parts(api.response_class()(), version, 77))  # type: ignore[arg-type]
    assert decode_response(api.response_class(), version, answer) == (77, api.response_class()())


def test_a_null_client_id_is_not_an_empty_one() -> None:
    for version, size in ((1, 10), (9, 11)):
        assert decode_request_header(encode_request(MetadataRequest(), version, 1, None))[3:] == (None, size)
        assert decode_request_header(encode_request(MetadataRequest(), version, 1, ""))[3:] == ("", size)


def test_controlled_shutdown_v0_has_no_client_id() -> None:
    frame = b"\x00\x07\x00\x00\x00\x00\x00\x05" + b"\x00\x00\x00\x2a"
    assert decode_request_header(frame) == (7, 0, 5, None, 8)
    assert decode_request(frame)[1] == ControlledShutdownRequest(broker_id=42)
    assert request_header_version(ApiKey.CONTROLLED_SHUTDOWN, 0) == 0


def test_api_versions_responses_have_header_v0_in_flexible_versions_too() -> None:
    assert [response_header_version(ApiKey.API_VERSIONS, version) for version in range(5)] == [0] * 5
    assert encode_response_parts(ApiVersionsResponse(), 3, 9)[0] == b"\x00\x00\x00\x09"
    assert encode_response_parts(MetadataResponse(), 9, 9)[0] == b"\x00\x00\x00\x09\x00"


def test_tagged_fields_of_a_request_header_are_skipped() -> None:
    frame = encode_request(ApiVersionsRequest("spool", "1"), 3, 7, "me")
    header = RequestHeader(18, 3, 7, "me")
    header.unknown_tags = ((5, b"later"), (300, bytes(200)))
    tagged = encode(header, 2) + frame[13:]
    assert decode_request_header(tagged) == (18, 3, 7, "me", len(encode(header, 2)))
    assert decode_request(tagged)[1] == ApiVersionsRequest("spool", "1")


def test_the_header_of_an_unknown_version_can_be_read() -> None:
    """The broker must be able to answer ApiVersions of any version with UNSUPPORTED_VERSION."""
    assert decode_request_header(b"\x00\x12\x00\x63\x00\x00\x00\x07\x00\x02me\x00rest") == (18, 99, 7, "me", 13)
    with pytest.raises(UnsupportedVersionError):
        decode_request(b"\x00\x12\x00\x63\x00\x00\x00\x07\x00\x02me\x00rest")
    assert decode_request_header(b"\x7f\xff\x00\x00\x00\x00\x00\x07\x00\x02me") == (32767, 0, 7, "me", 12)
    with pytest.raises(UnsupportedVersionError):
        decode_request(b"\x7f\xff\x00\x00\x00\x00\x00\x07\x00\x02me")


def test_records_stay_parts_of_a_response() -> None:
    batch = memoryview(b"batch")
    partition = FetchResponse.PartitionData(records=batch)
    response = FetchResponse(responses=[FetchResponse.FetchableTopicResponse("t", partitions=[partition])])
    assert [part for part in encode_response_parts(response, 12, 1) if part is batch] == [batch]


def test_every_request_has_its_response_and_its_api() -> None:
    requests = {name.removesuffix("Request") for name in MESSAGES if name.endswith("Request")}
    responses = {name.removesuffix("Response") for name in MESSAGES if name.endswith("Response")}
    assert requests == responses == {api.name for api in APIS.values()}


def test_error_codes_are_those_of_kafka_4_3() -> None:
    assert sorted(ErrorCode) == list(range(-1, 134))
    assert (ErrorCode(35), ErrorCode(133)) == (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.SHARE_SESSION_LIMIT_REACHED)
