"""kafka-python's protocol package reads what we write and writes what we read."""

from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.schemas.fields.codecs import BitField
from wire_samples import MESSAGES, few_examples, messages, values

from odradek_wire.codec import decode, encode
from odradek_wire.message import Message

for _part in ("admin", "consumer", "metadata", "producer", "sasl"):
    import_module(f"kafka.protocol.{_part}")


def kafka_python_cases() -> list[Any]:
    cases = []
    for theirs in ApiMessage.__subclasses__():
        ours = MESSAGES[theirs.name]
        for version in range(ours.MIN_VERSION, min(ours.MAX_VERSION, theirs.max_version) + 1):
            cases.append(pytest.param(ours, theirs, version, id=f"{ours.__name__}-v{version}"))
    return cases


def plain(value: Any, version: int) -> Any:
    """Return kafka-python's containers as lists of the fields of that version."""
    if isinstance(value, list | tuple):
        return [plain(element, version) for element in value]
    if hasattr(value, "_struct"):
        present = [field for field in value._struct._fields if field.for_version_q(version)]
        return [bits(getattr(value, f.name)) if is_bits(f) else plain(getattr(value, f.name), version) for f in present]
    if hasattr(value, "bytes"):
        return value.bytes
    return bytes(value) if isinstance(value, memoryview) else value


def is_bits(field: Any) -> bool:
    return getattr(field, "_type", None) is BitField


def bits(value: set[int] | None) -> int:
    """Return a set of authorized operations as the int32 on the wire."""
    number = sum(1 << bit for bit in ({31} if value is None else value))
    return number - 2**32 if number >= 2**31 else number


@pytest.mark.parametrize(("ours", "theirs", "version"), kafka_python_cases())
@few_examples
@given(data=st.data())
def test_kafka_python_agrees_on_the_bytes_of_a_message(
    ours: type[Message], theirs: type[Any], version: int, data: Any
) -> None:
    message = data.draw(messages(ours, version, unknown_tags=False))
    encoded = encode(message, version)
    # Not its own decode: ApiVersionsResponse reads v0 whenever there is an error code.
    read = super(theirs, theirs).decode(encoded, version=version)
    assert plain(read, version) == values(message, version)
    read._header = None  # its decoder leaves this unset, its encoder asks for it
    assert decode(ours, version, bytes(read.encode(version=version))) == message


def test_kafka_python_knows_the_clients_part_of_the_protocol() -> None:
    assert len(kafka_python_cases()) > 400
