"""Kafka's UUIDs: 16 bytes on the wire, url-safe base64 without padding in text (kafka.common.Uuid).

Owns the type and its text form. Randomness comes from the caller.
"""

from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable
from typing import NewType

Uuid = NewType("Uuid", bytes)

ZERO_UUID = Uuid(bytes(16))
"""Stands for "no id"."""

METADATA_TOPIC_ID = Uuid(bytes(15) + b"\x01")
"""The id of the topic ``__cluster_metadata``; reserved, as is ZERO_UUID."""

_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_", b"+/")


def uuid_to_text(uuid: Uuid) -> str:
    """22 characters, as Kafka prints topic, cluster and directory ids."""
    return b2a_base64(uuid, newline=False).translate(_TO_URL)[:22].decode("ascii")


def uuid_from_text(text: str) -> Uuid:
    """The inverse of `uuid_to_text`; `ValueError` if the text is not 16 bytes of url-safe base64."""
    try:
        raw = a2b_base64(text.encode("ascii").translate(_FROM_URL).rstrip(b"=") + b"==", strict_mode=True)
    except (Base64Error, UnicodeEncodeError):
        raise ValueError(f"not a Kafka uuid: {text!r}") from None
    if len(raw) != 16:
        raise ValueError(f"not a Kafka uuid: {text!r} is {len(raw)} bytes, not 16")
    return Uuid(raw)


def random_uuid(randbytes: Callable[[int], bytes]) -> Uuid:
    """A version 4 UUID whose text begins with no dash (as Kafka: such an id would look like an option)."""
    while True:
        raw = bytearray(randbytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        uuid = Uuid(bytes(raw))
        if not uuid_to_text(uuid).startswith("-"):
            return uuid
