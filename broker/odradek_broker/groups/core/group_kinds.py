"""The kinds of groups: one line for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from odradek_broker.groups.core import classic_kind, foreign_group
from odradek_broker.groups.core.group_kind import GroupKind
from odradek_broker.groups.core.group_records import (
    CoordinatorRecord,
    UnknownRecord,
    decode_offset,
    is_offset_key,
    key_type,
)
from odradek_broker.groups.core.group_type import GroupType

ALL: Sequence[GroupKind[Any, Any]] = (
    classic_kind.CLASSIC,
    foreign_group.CONSUMER,
    foreign_group.SHARE,
    foreign_group.STREAMS,
)

KINDS: Mapping[GroupType, GroupKind[Any, Any]] = {kind.group_type: kind for kind in ALL}

KIND_OF_KEY: Mapping[int, GroupKind[Any, Any]] = {number: kind for kind in ALL for number in kind.key_types}


def decode_record(key: bytes | memoryview, value: bytes | memoryview | None) -> CoordinatorRecord:
    """Raises `DecodeError` for a known key with an invalid body, or for a value of an unknown version."""
    key, value = bytes(key), None if value is None else bytes(value)
    if is_offset_key(key):
        return decode_offset(key, value)
    kind = KIND_OF_KEY.get(key_type(key))
    if kind is None:
        return UnknownRecord(key, value)
    record: CoordinatorRecord = kind.decode(key, value)
    return record
