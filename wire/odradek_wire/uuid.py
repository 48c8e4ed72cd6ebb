"""Kafka's UUIDs (kafka.common.Uuid): 16 bytes on the wire, url-safe base64 without padding in text.

Owns the type and its text form. The caller passes the source of randomness.
"""

from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable
from typing import NewType

Uuid = NewType("Uuid", bytes)

ZERO_UUID = Uuid(bytes(16))
"""The value that means "no id"."""

METADATA_TOPIC_ID = Uuid(bytes(15) + b"\x01")
"""The reserved id of the topic ``__cluster_metadata``."""

_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_", b"+/")


def uuid_to_text(uuid: Uuid) -> str:
    """Return the 22 characters with which Kafka prints topic, cluster and directory ids."""
    return b2a_base64(uuid, newline=False).translate(_TO_URL)[:22].decode("ascii")


def uuid_from_text(text: str) -> Uuid:
    """Return the UUID of a text. Raises ValueError unless it is 16 bytes of url-safe base64."""
    try:
        raw = a2b_base64(text.encode("ascii").translate(_FROM_URL).rstrip(b"=") + b"==", strict_mode=True)
    except (Base64Error, UnicodeEncodeError):
        raise ValueError(f"{text!r} is not a Kafka UUID: expected 22 characters of url-safe base64") from None
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not a Kafka UUID: expected 16 bytes, got {len(raw)}")
    return Uuid(raw)


def random_uuid(randbytes: Callable[[int], bytes]) -> Uuid:
    """Return a UUID of version 4. Like Kafka's, its text never begins with a dash, because that would look like an
    option."""
    while True:
        raw = bytearray(randbytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        uuid = Uuid(bytes(raw))
        if not uuid_to_text(uuid).startswith("-"):
            return uuid
