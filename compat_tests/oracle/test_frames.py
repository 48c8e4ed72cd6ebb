"""ApiVersions, and frames that are not requests: the response, or the end of the connection."""

import struct
from collections.abc import Callable

import pytest

from compat_tests.oracle import schema
from compat_tests.oracle.cases import versions_of
from compat_tests.oracle.pair import Pair
from compat_tests.oracle.schema import Body

pytestmark = pytest.mark.peers
PairFor = Callable[[str, int], Pair]


def _header(api_key: int, version: int, client_id: bytes | None = b"oracle") -> bytes:
    name = b"\xff\xff" if client_id is None else struct.pack(">h", len(client_id)) + client_id
    return struct.pack(">hhi", api_key, version, 7) + name


def _without_the_list(response: Body) -> Body:
    """Drop the list of APIs, which the tests of emulation compare: by default it is the union of the releases."""
    return {name: value for name, value in response.items() if name != "api_keys"}


@versions_of("ApiVersions")
def test_api_versions(version: int, pair_for: PairFor) -> None:
    pair = pair_for("ApiVersions", version)
    named: Body = {"client_software_name": "oracle", "client_software_version": "1.0"} if version >= 3 else {}

    pair.ask("ApiVersions", version, named, _without_the_list)
    if version >= 3:
        pair.ask(
            "ApiVersions", version, {"client_software_name": "", "client_software_version": "1"}, _without_the_list
        )
        pair.ask("ApiVersions", version, {"client_software_name": "a b", "client_software_version": "1"})


def test_the_response_to_an_unknown_api_versions_version_is_version_0(pair_for: PairFor) -> None:
    pair = pair_for("ApiVersions", 4)
    responses = []
    for peer in (pair.kafka, pair.ours):
        peer.send_frame(_header(18, 99) + b"\x00whatever")
        responses.append(schema.decode("ApiVersionsResponse", 0, peer.receive()[4:], schema.KAFKA_4_3))
    kafka, ours = responses
    assert kafka["error_code"] == ours["error_code"] == 35
    versions = {each["api_key"]: each for each in ours["api_keys"]}
    assert versions[18] == {"api_key": 18, "min_version": 0, "max_version": 4}
    assert [each["api_key"] for each in kafka["api_keys"]] == [18]
    assert list(versions) == [18]


_FRAMES = {
    "an unknown version": _header(3, 99) + struct.pack(">i", 0),
    "an unknown API": _header(999, 0),
    "a negative API key": _header(-5, 0),
    "a negative version": _header(3, -1),
    "nothing": b"",
    "half a header": struct.pack(">hh", 3, 1),
    "a client id that is longer than the frame": struct.pack(">hhih", 3, 1, 7, 500) + b"x",
    "no body": _header(3, 1),
    "an array that is longer than the frame": _header(3, 1) + struct.pack(">i", 1_000_000),
    "a string that is longer than the frame": _header(3, 1) + struct.pack(">ih", 1, 1000),
    "a negative array in a version without null": _header(3, 0) + struct.pack(">i", -1),
    "a null string where none may be": _header(3, 1) + struct.pack(">ih", 1, -1),
    # LeaveGroup, because its response has no values of the broker itself.
    "unknown tagged fields": _header(13, 4) + b"\x01\x55\x02ab" + b"\x02g\x01" + b"\x01\x77\x03abc",
    "a varint without an end": _header(3, 9) + b"\xff\xff\xff\xff\xff\xff",
    "an inter-broker request": _header(4, 2) + bytes(20),
    "a controller's request on a broker": _header(62, 0) + bytes(20),
    "no client id": _header(10, 1, None) + struct.pack(">h", -1) + b"\x00",
}


@pytest.mark.parametrize("frame", _FRAMES.values(), ids=list(_FRAMES))
def test_a_malformed_frame_has_the_same_effect_as_with_kafka(frame: bytes, pair_for: PairFor) -> None:
    pair_for("Metadata", 9).frame(frame)


@pytest.mark.parametrize("length", [-1, 0x7FFFFFFF, 200_000_000], ids=["negative", "huge", "over the limit"])
def test_an_impossible_frame_length_closes_the_connection(length: int, pair_for: PairFor) -> None:
    pair = pair_for("Metadata", 9)
    for peer in (pair.kafka, pair.ours):
        peer.send_raw(struct.pack(">i", length))
        assert peer.is_closed(), peer.name


def test_responses_keep_the_order_of_pipelined_requests(pair_for: PairFor) -> None:
    pair = pair_for("ApiVersions", 0)
    for peer in (pair.kafka, pair.ours):
        together = b""
        for correlation_id in range(50):
            request = struct.pack(">hhih", 18, 0, correlation_id, -1)
            together += struct.pack(">i", len(request)) + request
        peer.send_raw(together)
        answered = [struct.unpack(">i", peer.receive()[:4])[0] for _ in range(50)]
        assert answered == list(range(50)), peer.name
