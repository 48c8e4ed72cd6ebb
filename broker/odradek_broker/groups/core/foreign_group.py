"""Consumer, share and streams groups, which this broker does not serve. Kafka brokers have written their records.

Owns the keys of these records: ListGroups shows the group, a classic group takes its id only when it has no members,
and deleting the group writes a tombstone for each key.
"""

from __future__ import annotations

from dataclasses import dataclass

from odradek_broker.groups.core.classic_group import ClassicGroupState
from odradek_broker.groups.core.group import DescribedGroup, Groups, ListedGroup, OffsetExpirationCondition
from odradek_broker.groups.core.group_kind import GroupKind
from odradek_broker.groups.core.group_listing import described_as_dead
from odradek_broker.groups.core.group_records import CoordinatorRecord, key_type
from odradek_broker.groups.core.group_step import Deadlines, GroupStep
from odradek_broker.groups.core.group_type import GroupType
from odradek_wire.errors import ErrorCode

MEMBER_KEYS = frozenset({5, 10, 19})
"""The types of keys of member records: ConsumerGroup-, ShareGroup- and StreamsGroupMemberMetadataKey."""


@dataclass(frozen=True, slots=True)
class ForeignRecord:
    """A record of a foreign group; the value None deletes it."""

    group_type: GroupType
    group_id: str
    key: bytes
    value: bytes | None

    @property
    def is_member(self) -> bool:
        return key_type(self.key) in MEMBER_KEYS

    def encode(self) -> tuple[bytes, bytes | None]:
        return self.key, self.value


class ForeignGroup:
    """The keys of a group's records; a key in `members` is that of one member."""

    __slots__ = ("_type", "group_id", "keys", "members")

    def __init__(self, group_id: str, type_: GroupType) -> None:
        self.group_id = group_id
        self._type = type_
        self.keys: dict[bytes, None] = {}
        self.members: set[bytes] = set()

    @property
    def type(self) -> GroupType:
        return self._type

    @property
    def is_empty(self) -> bool:
        return not self.members

    def replay(self, record: ForeignRecord) -> None:
        if record.value is None:
            self.keys.pop(record.key, None)
            self.members.discard(record.key)
        else:
            self.keys[record.key] = None
            if record.is_member:
                self.members.add(record.key)

    def as_listed_group(self) -> ListedGroup:
        state = ClassicGroupState.EMPTY if self.is_empty else ClassicGroupState.STABLE
        return ListedGroup(
            group_id=self.group_id,
            protocol_type=self.type.value,
            group_state=state.value,
            group_type=self.type.value,
        )

    def as_described_group(self) -> DescribedGroup:
        return described_as_dead(self.group_id, "is not a classic group")

    def validate_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        transactional: bool,
        api_version: int,
    ) -> ErrorCode:
        """Accept only the commit of an admin client to an empty group, because member epochs are not known here."""
        if generation < 0 and self.is_empty:
            return ErrorCode.NONE
        return ErrorCode.UNKNOWN_MEMBER_ID

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        return ErrorCode.NONE

    def validate_offset_delete(self) -> ErrorCode:
        """Refuse every deletion, because the subscriptions of the members are not known here."""
        return ErrorCode.NON_EMPTY_GROUP

    def is_subscribed_to(self, topic: str) -> bool:
        return True

    def offsets_committed(self, step: GroupStep, member_id: str) -> None:
        """Do nothing: sessions are not known here."""

    @property
    def should_expire(self) -> bool:
        return False

    def offset_expiration_condition(self) -> OffsetExpirationCondition | None:
        return None

    def tombstones(self) -> list[CoordinatorRecord]:
        """Return tombstones for the keys, the last written one first: members before the group."""
        return [ForeignRecord(self.type, self.group_id, key, None) for key in reversed(self.keys)]


def foreign_kind(type_: GroupType, key_types: frozenset[int]) -> GroupKind[ForeignGroup, ForeignRecord]:
    """Return a kind of group that serves no requests and only keeps the keys of records."""

    def decode(key: bytes, value: bytes | None) -> ForeignRecord:
        return ForeignRecord(type_, _first_string(key[2:]), key, value)

    def replay(groups: Groups, record: ForeignRecord, deadlines: Deadlines) -> None:
        load(groups, record)

    def load(groups: Groups, record: ForeignRecord) -> None:
        group = groups.get(record.group_id)
        if not isinstance(group, ForeignGroup):
            if record.value is None or (group is not None and not group.is_empty):
                return
            group = groups[record.group_id] = ForeignGroup(record.group_id, type_)
        group.replay(record)
        if not group.keys:
            del groups[record.group_id]

    return GroupKind(group_type=type_, key_types=key_types, decode=decode, replay=replay, load=load)


def _first_string(body: bytes) -> str:
    """Return the group id: the first field in the keys of all these kinds of groups."""
    length = int.from_bytes(body[:2], "big")
    return body[2 : 2 + length].decode("utf-8", "replace")


CONSUMER = foreign_kind(GroupType.CONSUMER, frozenset({3, 4, 5, 6, 7, 8, 16}))
SHARE = foreign_kind(GroupType.SHARE, frozenset({10, 11, 12, 13, 14, 15}))
STREAMS = foreign_kind(GroupType.STREAMS, frozenset({17, 19, 20, 21, 22, 23}))
