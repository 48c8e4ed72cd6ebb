"""Groups of types that are not served here, as another broker's records leave them.

Owns that they exist: an id that belongs to a consumer, share or streams group is never silently empty, never taken over
while it has members, and all its records stay. Leaves serving them to a coordinator to come.
"""

from __future__ import annotations

from odradek_broker.groups.core.group_records import CoordinatorRecord, ForeignKind, ForeignRecord
from odradek_wire.errors import ErrorCode


class ForeignGroup:
    """Known by the keys of its records; its members are counted by theirs."""

    __slots__ = ("group_id", "keys", "kind", "members")

    def __init__(self, group_id: str, kind: ForeignKind) -> None:
        self.group_id = group_id
        self.kind = kind
        self.keys: dict[bytes, None] = {}
        self.members: set[bytes] = set()

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

    def tombstones(self) -> list[CoordinatorRecord]:
        """What deletes it, the youngest key first: members before the group."""
        return [ForeignRecord(self.kind, self.group_id, key, None) for key in reversed(self.keys)]

    def commit_error(self, member_epoch: int) -> ErrorCode:
        """Only an administrator may commit, and only while nobody is there: epochs of members are not known here."""
        if member_epoch < 0 and self.is_empty:
            return ErrorCode.NONE
        return ErrorCode.UNKNOWN_MEMBER_ID
