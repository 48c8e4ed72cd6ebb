"""Encode messages to bytes and decode them: the public entry of this package.

The first use of a message class in a version compiles its codec, which is kept. `encoder` and `decoder` return that
codec to callers on a hot path.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from odradek_wire import notation
from odradek_wire.compiled_decoder import compile_decoder, compile_limited_decoder
from odradek_wire.compiled_encoder import compile_encoder
from odradek_wire.errors import DecodeError, EncodeError, TooManyElementsError, UnsupportedVersionError
from odradek_wire.interpreter import Reader
from odradek_wire.message import FileRecords, Message

__all__ = [
    "Buffer",
    "DecodeError",
    "Decoder",
    "EncodeError",
    "Encoder",
    "Part",
    "TooManyElementsError",
    "UnsupportedVersionError",
    "decode",
    "decode_prefix",
    "decoder",
    "definition",
    "encode",
    "encode_parts",
    "encoder",
    "limited_decoder",
]

M = TypeVar("M", bound=Message)

Buffer = bytes | bytearray | memoryview
Part = bytes | memoryview | FileRecords
Encoder = Callable[[Any], list[Part]]
Decoder = Callable[..., Any]

_definitions: dict[str, notation.MessageType] = {}
_encoders: dict[tuple[type[Message], int], Encoder] = {}
_decoders: dict[tuple[type[Message], int], Decoder] = {}
_limited_decoders: dict[tuple[type[Message], int], Decoder] = {}


def definition(cls: type[Message]) -> notation.MessageType:
    """Return the definition of a message class; the first use reads it from its file."""
    if cls.__name__ not in _definitions:
        for message in notation.load(cls.DEFINITION):
            _definitions[message.name] = message
    return _definitions[cls.__name__]


def encoder(cls: type[Message], version: int) -> Encoder:
    """Return ``encode(message) -> list of parts``; records are parts of their own, which it does not copy.

    Raises UnsupportedVersionError. The returned function raises EncodeError.
    """
    try:
        return _encoders[cls, version]
    except KeyError:
        pass
    encode = _encoders[cls, version] = compile_encoder(_definition_of(cls, version), cls, version)
    return encode


def decoder(cls: type[M], version: int) -> Callable[..., M]:
    """Return ``decode(data, position=0) -> message``; the message must reach to the end of the data.

    Raises UnsupportedVersionError. The returned function raises DecodeError.
    """
    try:
        return _decoders[cls, version]
    except KeyError:
        pass
    decode = _decoders[cls, version] = compile_decoder(_definition_of(cls, version), cls, version)
    return decode


def limited_decoder(cls: type[M], version: int) -> Callable[..., tuple[M, int]]:
    """Return ``decode(data, position, limit) -> (message, number of its elements)``.

    Elements are the entries of arrays, the tagged fields, and one for each 4,096 bytes of a string or of bytes. Records
    do not count. Raises UnsupportedVersionError. The returned function raises DecodeError, and TooManyElementsError as
    soon as the message is known to have more than `limit` elements.
    """
    try:
        return _limited_decoders[cls, version]
    except KeyError:
        pass
    decode = _limited_decoders[cls, version] = compile_limited_decoder(_definition_of(cls, version), cls, version)
    return decode


def encode_parts(message: Message, version: int) -> list[Part]:
    """Encode a message to a list of parts, whose concatenation is its bytes.

    Raises EncodeError for a field that this version cannot represent, and UnsupportedVersionError.
    """
    return encoder(type(message), version)(message)


def encode(message: Message, version: int) -> bytes:
    """Encode a message to bytes, with a copy of its records.

    Raises EncodeError for a field that this version cannot represent, and UnsupportedVersionError.
    """
    parts = encoder(type(message), version)(message)
    try:
        return b"".join(parts)  # type: ignore[arg-type]
    except TypeError:
        return b"".join(part if isinstance(part, bytes | memoryview) else part.tobytes() for part in parts)


def decode(cls: type[M], version: int, data: Buffer) -> M:
    """Decode the message that `data` holds from its first byte to its last.

    Raises DecodeError for bytes that are no such message, and UnsupportedVersionError.
    """
    return decoder(cls, version)(data)


def decode_prefix(
    cls: type[M], version: int, data: Buffer, position: int = 0, limit: int | None = None
) -> tuple[M, int]:
    """Decode the message that begins at `position`; return it and the position of its end. Slower than `decode`.

    Ignores the bytes after the message. Raises DecodeError, UnsupportedVersionError and, with a `limit`,
    TooManyElementsError as `limited_decoder` does.
    """
    message, end = Reader(_definition_of(cls, version), cls, version, data, position, limit=limit).decode_prefix()
    return message, end


def _definition_of(cls: type[Message], version: int) -> notation.MessageType:
    if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
        raise UnsupportedVersionError(cls.__name__, version, cls.MIN_VERSION, cls.MAX_VERSION)
    return definition(cls)
