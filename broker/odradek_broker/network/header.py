"""The size and the header of a request, which the hot path reads in one step, without a message object.

Owns the layout of both. A header that violates it raises ValueError or IndexError; the caller closes the connection.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from odradek_wire.apis import APIS, ApiKey
from odradek_wire.frames import HEADER_MIN_BYTES

# Size, API key and version as one number, correlation id, length of the client id.
REQUEST_HEAD = Struct(">iIih")
TAGS_MAX = 1000
"""Tagged fields that a header may have; Kafka defines none."""


def client_and_api(frame: memoryview, key_and_version: int, client_id_size: int) -> dict[str, Any]:
    """Return the client id and the API of a request, read from its header, as facts for the log."""
    key, version = key_and_version >> 16, key_and_version & 0xFFFF
    raw = bytes(frame[HEADER_MIN_BYTES : HEADER_MIN_BYTES + client_id_size]) if client_id_size >= 0 else None
    return {
        "client_id": None if raw is None else raw.decode("utf-8", "replace"),
        "api": f"{ApiKey(key).name if key in APIS else key} v{version}",
    }


def skip_tagged_fields(frame: memoryview, position: int) -> int:
    """Return the position after the tagged fields of a request header. Kafka defines none so far, but clients may send
    some."""
    count, position = _varint(frame, position)
    if count > TAGS_MAX:
        raise ValueError(f"a header may have at most {TAGS_MAX} tagged fields, got {count}")
    for _ in range(count):
        _, position = _varint(frame, position)
        size, position = _varint(frame, position)
        position += size
        if position > len(frame):
            raise ValueError("a tagged field of the header ends after the request")
    return position


def _varint(frame: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 28:
            raise ValueError("a varint of the header has more than 5 bytes")
