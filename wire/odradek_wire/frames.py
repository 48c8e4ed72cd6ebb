"""Encode and decode requests and responses with their headers, without the four bytes of length before them.

A server decodes the header with `decode_request_header`, then the body from the position that it returns. The other
functions are for clients and tests.
"""

from struct import Struct as Packing
from struct import error as PackingError

from odradek_wire import codec
from odradek_wire.apis import APIS, request_header_version, response_header_version
from odradek_wire.codec import Buffer, M, Part
from odradek_wire.errors import UnsupportedVersionError
from odradek_wire.interpreter import Reader
from odradek_wire.message import Message
from odradek_wire.messages.request_header import RequestHeader
from odradek_wire.messages.response_header import ResponseHeader

SIZE_BYTES = 4
"""The length before a frame."""
HEADER_MIN_BYTES = 10
"""The size of API key, version, correlation id and length of the client id, with which every request header begins
except that of ControlledShutdown v0."""

_unpack_head = Packing(">hhih").unpack_from
_CORRELATION_ID = Packing(">i")


def decode_request_header(data: Buffer) -> tuple[int, int, int, str | None, int]:
    """Return ``(api_key, api_version, correlation_id, client_id, body_position)``. Raises DecodeError.

    Reads the header of an unknown API as header v1, and that of an unsupported version by `request_header_version`, so
    that the broker can answer ApiVersions with UNSUPPORTED_VERSION.
    """
    try:
        api_key, api_version, correlation_id, size = _unpack_head(data, 0)
        position = HEADER_MIN_BYTES
        client_id = None
        if size >= 0:
            position += size
            client_id = str(data[HEADER_MIN_BYTES:position], "utf-8")
            if position > len(data):
                return _decode_slowly(data)
        elif size != -1:
            return _decode_slowly(data)
        if api_key in APIS and api_version >= APIS[api_key].flexible_from:
            if data[position]:
                return _decode_slowly(data)
            position += 1
        elif api_key == 7 and api_version == 0:
            return _decode_slowly(data)
    except (PackingError, ValueError, IndexError):
        return _decode_slowly(data)
    return api_key, api_version, correlation_id, client_id, position


def _decode_slowly(data: Buffer) -> tuple[int, int, int, str | None, int]:
    """Decode a header with tagged fields, the header v0 of ControlledShutdown, or a malformed one."""
    definition = codec.definition(RequestHeader)
    head, _ = Reader(definition, RequestHeader, 0, data, 0).decode_prefix()
    key, version = head.request_api_key, head.request_api_version
    header_version = request_header_version(key, version) if key in APIS else 1
    header, position = Reader(definition, RequestHeader, header_version, data, 0).decode_prefix()
    return key, version, header.correlation_id, header.client_id if header_version else None, position


def decode_request(data: Buffer) -> tuple[RequestHeader, Message]:
    """Decode a whole request frame. Raises DecodeError and UnsupportedVersionError."""
    key, version, correlation_id, client_id, position = decode_request_header(data)
    header = RequestHeader(key, version, correlation_id, client_id)
    if key not in APIS:
        raise UnsupportedVersionError(f"API {key}", version, 0, -1)
    return header, codec.decoder(APIS[key].request_class(), version)(data, position)


def decode_response(cls: type[M], version: int, data: Buffer) -> tuple[int, M]:
    """Decode a whole response frame to ``(correlation id, response)``. Raises DecodeError and
    UnsupportedVersionError."""
    definition = codec.definition(ResponseHeader)
    header_version = response_header_version(cls.API_KEY, version)
    header, position = Reader(definition, ResponseHeader, header_version, data, 0).decode_prefix()
    return header.correlation_id, codec.decoder(cls, version)(data, position)


def encode_request(request: Message, version: int, correlation_id: int, client_id: str | None = None) -> bytes:
    """Encode a whole request frame. Raises EncodeError and UnsupportedVersionError."""
    key = request.API_KEY
    header = RequestHeader(key, version, correlation_id, client_id)
    return codec.encode(header, request_header_version(key, version)) + codec.encode(request, version)


def encode_response_parts(response: Message, version: int, correlation_id: int) -> list[Part]:
    """Encode a whole response frame to parts; records in files are not read."""
    head = _CORRELATION_ID.pack(correlation_id)
    if response_header_version(response.API_KEY, version) == 1:
        head += b"\0"
    return [head, *codec.encode_parts(response, version)]
