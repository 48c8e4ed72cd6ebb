"""kio, a client library with one class per version, reads what we write and writes what we read."""

import io
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_entity_schema
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from wire_samples import MESSAGES, few_examples, messages, values

from odradek_wire.codec import decode, encode
from odradek_wire.message import Message

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def kio_cases() -> list[Any]:
    kinds = {EntityType.request: "Request", EntityType.response: "Response"}
    cases = []
    for name, known in schema_name_map.items():
        for version, types in known.items():
            for kind in types:
                theirs = load_entity_schema(name, version, kind)
                if kind in kinds or kind is EntityType.header or kind is EntityType.data:
                    ours = MESSAGES.get(theirs.__name__)
                    cases.append(pytest.param(ours, theirs, version, id=f"{theirs.__name__}-v{version}"))
    return cases


def plain(value: Any) -> Any:
    """Return the values on the wire of kio's rich types, structs as lists of their fields."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, datetime):
        return (value - EPOCH) // timedelta(milliseconds=1)
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, tuple):
        return [plain(element) for element in value]
    if hasattr(value, "__dataclass_fields__"):
        return [plain(getattr(value, field.name)) for field in fields(value)]
    return value


def without_zero_uuids(value: Any) -> Any:
    """Replace uuids of zeros by None, as kio reads them."""
    if isinstance(value, list):
        return [without_zero_uuids(element) for element in value]
    return None if value == bytes(16) else value


@pytest.mark.parametrize(("ours", "theirs", "version"), kio_cases())
@few_examples
@given(data=st.data())
def test_kio_agrees_on_the_bytes_of_a_message(ours: type[Message], theirs: type[Any], version: int, data: Any) -> None:
    message = data.draw(messages(ours, version, tame=True, unknown_tags=False))
    encoded = encode(message, version)
    read, size = entity_reader(theirs)(encoded, 0)
    assert (plain(read), size) == (without_zero_uuids(values(message, version)), len(encoded))

    buffer = io.BytesIO()
    entity_writer(theirs)(buffer, read)
    assert decode(ours, version, buffer.getvalue()) == message


def test_kio_knows_most_of_the_protocol() -> None:
    """Without its schemas, kio would pass these tests without a comparison."""
    assert len(kio_cases()) > 500
