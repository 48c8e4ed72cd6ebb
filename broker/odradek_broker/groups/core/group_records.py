"""The records of `__consumer_offsets` that hold offsets and classic groups, and their bytes.

Owns Kafka's format of keys and values: a version as int16, then the message. Leaves batches to the shell, the effect of
a record to its kind of group and to `offset_store`, and decoding by the type of a key to `group_kinds`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from odradek_broker.groups.core.group_type import GroupType
from odradek_wire.codec import decode, encode
from odradek_wire.messages.group_metadata_key import GroupMetadataKey
from odradek_wire.messages.group_metadata_value import GroupMetadataValue
from odradek_wire.messages.legacy_offset_commit_key import LegacyOffsetCommitKey
from odradek_wire.messages.offset_commit_key import OffsetCommitKey
from odradek_wire.messages.offset_commit_value import OffsetCommitValue
from odradek_wire.records.attributes import NO_PRODUCER_ID

LEGACY_OFFSET_KEY = 0
OFFSET_KEY = 1
GROUP_METADATA_KEY = 2

# The versions that Kafka 4.3 writes. Every release since 2.3 can read group metadata of this version, and the offsets
# without their topic id, a tagged field.
GROUP_VALUE_VERSION = 3
OFFSET_VALUE_VERSION = 4
OFFSET_VALUE_VERSION_WITH_EXPIRY = 1
"""The only version with a retention of its own, which clients can request up to OffsetCommit v4."""


class CoordinatorRecord(Protocol):
    """One record of `__consumer_offsets`."""

    @property
    def group_id(self) -> str: ...

    @property
    def group_type(self) -> GroupType | None:
        """The kind of group that replays the record; None for an offset, or a record that is ignored."""

    def encode(self) -> tuple[bytes, bytes | None]:
        """The record's key and value in the log."""


@dataclass(frozen=True, slots=True)
class GroupMetadataRecord:
    """A snapshot of a classic group; the value None deletes the group."""

    group_id: str
    value: GroupMetadataValue | None

    @property
    def group_type(self) -> GroupType:
        return GroupType.CLASSIC

    def encode(self) -> tuple[bytes, bytes | None]:
        key = _prefixed(GROUP_METADATA_KEY, encode(GroupMetadataKey(group=self.group_id), 0))
        if self.value is None:
            return key, None
        return key, _prefixed(GROUP_VALUE_VERSION, encode(self.value, GROUP_VALUE_VERSION))


@dataclass(frozen=True, slots=True)
class OffsetRecord:
    """A committed offset; the value None deletes it. `producer_id` is that of the transactional batch that holds the
    record; a deletion is never part of a transaction."""

    group_id: str
    topic: str
    partition: int
    value: OffsetCommitValue | None
    producer_id: int = NO_PRODUCER_ID
    group_type: ClassVar[None] = None

    def encode(self) -> tuple[bytes, bytes | None]:
        key = OffsetCommitKey(group=self.group_id, topic=self.topic, partition=self.partition)
        key_bytes = _prefixed(OFFSET_KEY, encode(key, 0))
        if self.value is None:
            return key_bytes, None
        has_expiry = self.value.expire_timestamp != -1
        version = OFFSET_VALUE_VERSION_WITH_EXPIRY if has_expiry else OFFSET_VALUE_VERSION
        return key_bytes, _prefixed(version, encode(self.value, version))


@dataclass(frozen=True, slots=True)
class UnknownRecord:
    """A record with a type of key that this release does not know. It is ignored, as in Kafka."""

    key: bytes
    value: bytes | None
    group_id: str = ""
    group_type: ClassVar[None] = None

    def encode(self) -> tuple[bytes, bytes | None]:
        return self.key, self.value


def key_type(key: bytes) -> int:
    return int.from_bytes(key[:2], "big")


def is_offset_key(key: bytes) -> bool:
    """Whether this is the key of a committed offset."""
    return key_type(key) in (OFFSET_KEY, LEGACY_OFFSET_KEY)


def decode_offset(key: bytes, value: bytes | None) -> OffsetRecord:
    """Raises `DecodeError`."""
    committed: OffsetCommitKey | LegacyOffsetCommitKey
    if key_type(key) == OFFSET_KEY:
        committed = decode(OffsetCommitKey, 0, key[2:])
    else:  # Kafka 0.8.2 wrote these keys; the fields are the same
        committed = decode(LegacyOffsetCommitKey, 0, key[2:])
    offset = None if value is None else decode(OffsetCommitValue, _version(value), value[2:])
    return OffsetRecord(committed.group, committed.topic, committed.partition, offset)


def decode_group_metadata(key: bytes, value: bytes | None) -> GroupMetadataRecord:
    """Raises `DecodeError`."""
    group_id = decode(GroupMetadataKey, 0, key[2:]).group
    return GroupMetadataRecord(
        group_id, None if value is None else decode(GroupMetadataValue, _version(value), value[2:])
    )


def _prefixed(number: int, body: bytes) -> bytes:
    return number.to_bytes(2, "big") + body


def _version(value: bytes) -> int:
    return int.from_bytes(value[:2], "big")
