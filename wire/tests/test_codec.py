"""What is encoded is decoded equal, by the compiled codec and by the one that walks the layout."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_samples import MESSAGES, messages, versions

from odradek_wire.codec import decode, encode, layout
from odradek_wire.message import Message
from odradek_wire.walk import Reader, Writer


@pytest.mark.parametrize(("cls", "version"), versions())
@given(data=st.data())
def test_a_message_comes_back_equal_from_its_bytes(cls: type[Message], version: int, data: Any) -> None:
    message = data.draw(messages(cls, version))
    encoded = encode(message, version)
    assert b"".join(Writer(layout(cls), version).encode(message)) == encoded
    for buffer in (encoded, memoryview(encoded), bytearray(encoded)):
        assert decode(cls, version, buffer) == message
    assert Reader(layout(cls), cls, version, encoded, 0).decode() == message
    assert encode(decode(cls, version, encoded), version) == encoded


@pytest.mark.parametrize("cls", MESSAGES.values())
def test_a_new_message_has_fresh_defaults(cls: type[Message]) -> None:
    for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
        assert decode(cls, version, encode(cls(), version)) == cls()
    one, other = cls(), cls()
    for name in cls.__slots__:
        if isinstance(getattr(one, name), list | Message):
            assert getattr(one, name) is not getattr(other, name)
