"""`partition.metadata`: the topic id of a partition's directory (PartitionMetadataFile, version 0)."""

from __future__ import annotations

from odradek_log.log_errors import CorruptLogError
from odradek_wire.uuid import Uuid, uuid_from_text, uuid_to_text

_HEAD = b"version: 0\ntopic_id: "
_ID_CHARACTERS = 22


def encode(topic_id: Uuid) -> bytes:
    return _HEAD + uuid_to_text(topic_id).encode()


def is_torn(data: bytes) -> bool:
    """Return whether the data are only the beginning of a file, which is written without a sync."""
    if len(data) <= len(_HEAD):
        return _HEAD.startswith(data)
    return data.startswith(_HEAD) and len(data) < len(_HEAD) + _ID_CHARACTERS


def decode(data: bytes, path: str) -> Uuid:
    """Parse the topic id. Raises CorruptLogError, also for a zero id, which would match any topic of the name."""
    fields = dict(line.split(": ", 1) for line in data.decode(errors="replace").splitlines() if ": " in line)
    if fields.get("version") != "0":
        raise CorruptLogError(f"{path}: version {fields.get('version')!r}, expected '0'")
    try:
        topic_id = uuid_from_text(fields["topic_id"])
    except (KeyError, ValueError):
        raise CorruptLogError(f"{path}: expected a topic id, got {data!r}") from None
    if not any(topic_id):
        raise CorruptLogError(f"{path}: the topic id is zero")
    return topic_id
