"""The records of `__consumer_offsets`, typed, and their bytes.

Owns Kafka's format of keys and values (a version as int16, then the message) and what a classic group looks like in it.
Leaves batches to the shell and the effect of a record to `group_shard` and `offset_requests`. Keys that we do not serve
(consumer, share and streams groups, and whatever comes later) pass as `ForeignRecord`, so that nothing that Kafka
wrote gets lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from odradek_broker.groups.core.classic_group import ClassicGroup, ClassicGroupState
from odradek_broker.groups.core.classic_member import ClassicGroupMember
from odradek_wire.codec import decode, encode
from odradek_wire.messages.group_metadata_key import GroupMetadataKey
from odradek_wire.messages.group_metadata_value import GroupMetadataValue
from odradek_wire.messages.legacy_offset_commit_key import LegacyOffsetCommitKey
from odradek_wire.messages.offset_commit_key import OffsetCommitKey
from odradek_wire.messages.offset_commit_value import OffsetCommitValue
from odradek_wire.records.attributes import NO_PRODUCER_ID

LEGACY_OFFSET_KEY = 0
OFFSET_KEY = 1
GROUP_KEY = 2

# What Kafka 4.3 writes: every release since 2.3 reads the first, and skips the tagged topic id of the second.
GROUP_VALUE_VERSION = 3
OFFSET_VALUE_VERSION = 4
OFFSET_VALUE_VERSION_WITH_EXPIRY = 1
"""A client before OffsetCommit v5 that asks for a retention of its own: only this version can carry it."""


class ForeignKind(Enum):
    """Groups that other brokers may have written here; the value is their type in ListGroups."""

    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


FOREIGN_KEYS: Mapping[int, ForeignKind] = {
    **dict.fromkeys([3, 4, 5, 6, 7, 8, 16], ForeignKind.CONSUMER),
    **dict.fromkeys([10, 11, 12, 13, 14, 15], ForeignKind.SHARE),
    **dict.fromkeys([17, 19, 20, 21, 22, 23], ForeignKind.STREAMS),
}
"""Type of a key → whose it is. All of them begin with the group's id."""
FOREIGN_MEMBER_KEYS = frozenset({5, 10, 19})
"""Keys that exist once for every member."""


@dataclass(frozen=True, slots=True)
class GroupMetadataRecord:
    """A classic group as a whole; None deletes it."""

    group_id: str
    value: GroupMetadataValue | None


@dataclass(frozen=True, slots=True)
class OffsetRecord:
    """A committed offset; None deletes it. With a producer's id it is part of that one's transaction, as its batch
    says; a deletion never is."""

    group_id: str
    topic: str
    partition: int
    value: OffsetCommitValue | None
    producer_id: int = NO_PRODUCER_ID


@dataclass(frozen=True, slots=True)
class ForeignRecord:
    """A record of a group of another type, or of a type of key from the future (kind None); None deletes it."""

    kind: ForeignKind | None
    group_id: str
    key: bytes
    value: bytes | None

    @property
    def is_member(self) -> bool:
        return int.from_bytes(self.key[:2], "big") in FOREIGN_MEMBER_KEYS


CoordinatorRecord = GroupMetadataRecord | OffsetRecord | ForeignRecord


def encode_record(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    """Key and value as they stand in the log."""
    match record:
        case GroupMetadataRecord(group_id, value):
            key = _prefixed(GROUP_KEY, encode(GroupMetadataKey(group=group_id), 0))
            return key, None if value is None else _prefixed(GROUP_VALUE_VERSION, encode(value, GROUP_VALUE_VERSION))
        case OffsetRecord(group_id, topic, partition, offset, _):
            key = _prefixed(OFFSET_KEY, encode(OffsetCommitKey(group=group_id, topic=topic, partition=partition), 0))
            if offset is None:
                return key, None
            version = OFFSET_VALUE_VERSION if offset.expire_timestamp == -1 else OFFSET_VALUE_VERSION_WITH_EXPIRY
            return key, _prefixed(version, encode(offset, version))
        case ForeignRecord(_, _, foreign_key, foreign_value):
            return foreign_key, foreign_value


def decode_record(key: bytes | memoryview, value: bytes | memoryview | None) -> CoordinatorRecord:
    """Raises `DecodeError` for a known key with a body that is none, or a value newer than we know."""
    key, value = bytes(key), None if value is None else bytes(value)
    match int.from_bytes(key[:2], "big"):
        case kind if is_offset_key(key):
            name: OffsetCommitKey | LegacyOffsetCommitKey
            if kind == OFFSET_KEY:
                name = decode(OffsetCommitKey, 0, key[2:])
            else:  # of Kafka 0.8.2, with the same fields
                name = decode(LegacyOffsetCommitKey, 0, key[2:])
            offset = None if value is None else decode(OffsetCommitValue, _version(value), value[2:])
            return OffsetRecord(name.group, name.topic, name.partition, offset)
        case kind if kind == GROUP_KEY:
            group_id = decode(GroupMetadataKey, 0, key[2:]).group
            group = None if value is None else decode(GroupMetadataValue, _version(value), value[2:])
            return GroupMetadataRecord(group_id, group)
        case kind:
            foreign = FOREIGN_KEYS.get(kind)
            return ForeignRecord(foreign, _first_string(key[2:]) if foreign else "", key, value)


def is_offset_key(key: bytes) -> bool:
    """Whether this is the key of a committed offset."""
    return int.from_bytes(key[:2], "big") in (OFFSET_KEY, LEGACY_OFFSET_KEY)


def group_record(group: ClassicGroup, assignments: Mapping[str, bytes]) -> GroupMetadataRecord:
    """The group as it is now, with these assignments by member id."""
    return GroupMetadataRecord(
        group.group_id,
        GroupMetadataValue(
            protocol_type=group.protocol_type or "",
            generation=group.generation,
            protocol=group.protocol,
            leader=group.leader,
            current_state_timestamp=-1 if group.state_since_ms is None else group.state_since_ms,
            members=[
                GroupMetadataValue.MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(group.protocol),
                    assignment=assignments.get(member.member_id, b""),
                )
                for member in group.members.values()
            ],
        ),
    )


def new_group_record(group: ClassicGroup) -> GroupMetadataRecord:
    """A group that just came into being: nobody has joined it yet, whoever waits to."""
    return GroupMetadataRecord(
        group.group_id,
        GroupMetadataValue(
            protocol_type="",
            generation=0,
            protocol=None,
            leader=None,
            current_state_timestamp=-1 if group.state_since_ms is None else group.state_since_ms,
            members=[],
        ),
    )


def group_from_record(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """The group that the record describes: stable if it has members, else empty."""
    since_ms = value.current_state_timestamp
    group = ClassicGroup(group_id, None if since_ms == -1 else since_ms)
    group.generation = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol = value.protocol
    group.leader = value.leader
    for member in value.members:
        timeout_ms = member.rebalance_timeout
        group.add(
            ClassicGroupMember(
                member_id=member.member_id,
                instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                # Version 0 had no rebalance timeout: the session timeout stood for both.
                rebalance_timeout_ms=member.session_timeout if timeout_ms == -1 else timeout_ms,
                session_timeout_ms=member.session_timeout,
                protocols=((value.protocol or "", bytes(member.subscription)),),
                assignment=bytes(member.assignment),
            ),
            value.protocol_type,
        )
    if group.members:
        group.state = ClassicGroupState.STABLE
    group.learn_subscribed_topics()
    return group


def _prefixed(number: int, body: bytes) -> bytes:
    return number.to_bytes(2, "big") + body


def _version(value: bytes) -> int:
    return int.from_bytes(value[:2], "big")


def _first_string(body: bytes) -> str:
    length = int.from_bytes(body[:2], "big")
    return body[2 : 2 + length].decode("utf-8", "replace")
