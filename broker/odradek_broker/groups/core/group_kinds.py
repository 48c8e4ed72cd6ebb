"""The registry of the kinds of groups: one line for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from odradek_broker.groups.core import classic_kind, foreign_group
from odradek_broker.groups.core.group import Group
from odradek_broker.groups.core.group_kind import GroupKind
from odradek_broker.groups.core.group_records import (
    CoordinatorRecord,
    UnknownRecord,
    decode_offset,
    is_offset_key,
    key_type,
)

AnyKind = GroupKind[Any, Any]


class GroupKinds:
    """Finds the kind of a group, and of a record by the type of its key."""

    def __init__(self, kinds: Sequence[AnyKind]) -> None:
        self._by_type = {kind.group_type: kind for kind in kinds}
        self._by_key_type = {number: kind for kind in kinds for number in kind.key_types}
        assert len(self._by_key_type) == sum(len(kind.key_types) for kind in kinds), "a key type belongs to one kind"

    def of_group(self, group: Group) -> AnyKind:
        return self._by_type[group.type]

    def of_record(self, record: CoordinatorRecord) -> AnyKind | None:
        """Return the kind of group that replays the record; None for an offset, or a record that is ignored."""
        return None if record.group_type is None else self._by_type[record.group_type]

    def decode(self, key: bytes | memoryview, value: bytes | memoryview | None) -> CoordinatorRecord:
        """Raises `DecodeError` for a known key with an invalid body, or for a value of an unknown version."""
        key, value = bytes(key), None if value is None else bytes(value)
        if is_offset_key(key):
            return decode_offset(key, value)
        kind = self._by_key_type.get(key_type(key))
        if kind is None:
            return UnknownRecord(key, value)
        record: CoordinatorRecord = kind.decode(key, value)
        return record


GROUP_KINDS = GroupKinds(
    [
        classic_kind.CLASSIC,
        foreign_group.CONSUMER,
        foreign_group.SHARE,
        foreign_group.STREAMS,
    ]
)
