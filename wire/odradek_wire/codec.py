"""Messages to bytes and back: the door through which everybody goes.

A codec is made for one (message class, version) at first use and kept. `encoder` and `decoder` hand it out for hot
paths.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from odradek_wire import notation
from odradek_wire.compiled_decoder import compile_decoder, compile_limited_decoder
from odradek_wire.compiled_encoder import compile_encoder
from odradek_wire.errors import UnsupportedVersionError
from odradek_wire.message import FileRecords, Message
from odradek_wire.walk import Reader

M = TypeVar("M", bound=Message)

Buffer = bytes | bytearray | memoryview
Part = bytes | memoryview | FileRecords
Encoder = Callable[[Any], list[Part]]
Decoder = Callable[..., Any]

_layouts: dict[str, notation.MessageType] = {}
_encoders: dict[tuple[type[Message], int], Encoder] = {}
_decoders: dict[tuple[type[Message], int], Decoder] = {}
_limited_decoders: dict[tuple[type[Message], int], Decoder] = {}


def layout(cls: type[Message]) -> notation.MessageType:
    """The definition of a message class, read at first use."""
    if cls.__name__ not in _layouts:
        for message in notation.load(cls.DEFINITION):
            _layouts[message.name] = message
    return _layouts[cls.__name__]


def encoder(cls: type[Message], version: int) -> Encoder:
    """``encode(message) -> list of parts``; records are parts of their own, as they were given."""
    try:
        return _encoders[cls, version]
    except KeyError:
        pass
    encode = _encoders[cls, version] = compile_encoder(_checked(cls, version), cls, version)
    return encode


def decoder(cls: type[M], version: int) -> Callable[..., M]:
    """``decode(data, position=0) -> message``: it must end where the data ends."""
    try:
        return _decoders[cls, version]
    except KeyError:
        pass
    decode = _decoders[cls, version] = compile_decoder(_checked(cls, version), cls, version)
    return decode


def limited_decoder(cls: type[M], version: int) -> Callable[..., tuple[M, int]]:
    """``decode(data, position, limit) -> (message, its elements)``; `TooManyElementsError` as soon as the message is
    known to have more than `limit` elements: entries of arrays and tagged fields, and one for each 4,096 bytes of a
    string or bytes. Records do not count."""
    try:
        return _limited_decoders[cls, version]
    except KeyError:
        pass
    decode = _limited_decoders[cls, version] = compile_limited_decoder(_checked(cls, version), cls, version)
    return decode


def encode_parts(message: Message, version: int) -> list[Part]:
    """The message as a list whose concatenation is its bytes."""
    return encoder(type(message), version)(message)


def encode(message: Message, version: int) -> bytes:
    """The message as bytes, records copied in."""
    parts = encoder(type(message), version)(message)
    try:
        return b"".join(parts)  # type: ignore[arg-type]
    except TypeError:
        return b"".join(part if isinstance(part, bytes | memoryview) else part.tobytes() for part in parts)


def decode(cls: type[M], version: int, data: Buffer) -> M:
    """The message that the data are, from first to last byte; `DecodeError` otherwise."""
    return decoder(cls, version)(data)


def decode_prefix(
    cls: type[M], version: int, data: Buffer, position: int = 0, limit: int | None = None
) -> tuple[M, int]:
    """The message that begins at `position`, and where it ends; what follows is not looked at. Slower than `decode`.
    With a `limit` as `limited_decoder`."""
    message, end = Reader(_checked(cls, version), cls, version, data, position, limit).decode_prefix()
    return message, end


def _checked(cls: type[Message], version: int) -> notation.MessageType:
    if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
        raise UnsupportedVersionError(cls.__name__, version, cls.MIN_VERSION, cls.MAX_VERSION)
    return layout(cls)
