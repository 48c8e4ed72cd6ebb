"""Records of `__consumer_offsets`: their bytes are Kafka's, and those of unknown keys stay."""

from __future__ import annotations

import pytest

from odradek_broker.groups.core.classic_records import group_from_record, group_record
from odradek_broker.groups.core.foreign_group import ForeignRecord
from odradek_broker.groups.core.group_kinds import GROUP_KINDS
from odradek_broker.groups.core.group_records import GroupMetadataRecord, OffsetRecord, UnknownRecord
from odradek_broker.groups.core.group_type import GroupType
from odradek_wire.errors import DecodeError
from odradek_wire.messages.group_metadata_value import GroupMetadataValue
from odradek_wire.messages.offset_commit_value import OffsetCommitValue
from odradek_wire.uuid import Uuid

# Cut out of a log that Kafka 4.3.0 wrote for a kafka-python consumer.
NEW_GROUP = ("000200026731", "0003000000000000ffffffff000001a1fce66c0000000000")
EMPTY_GROUP = ("000200026731", "00030008636f6e73756d657200000002ffffffff000001a1fce66ce000000000")
OFFSET = (
    "0001000267310001740000" + "0000",
    "0004"
    + "0000000000000001"
    + "00000000"
    + "01"
    + "000001a1fce66c99"
    + "010010"
    + "49d4fc9392ec4ce487467d655694313b",
)
TOPIC_ID = Uuid(bytes.fromhex("49d4fc9392ec4ce487467d655694313b"))

NEW_GROUP_RECORD = GroupMetadataRecord(
    "g1", GroupMetadataValue("", 0, None, None, current_state_timestamp=0x1A1FCE66C00, members=[])
)
OFFSET_RECORD = OffsetRecord("g1", "t", 0, OffsetCommitValue(1, 0, "", 0x1A1FCE66C99, -1, TOPIC_ID))


def raw(pair: tuple[str, str]) -> tuple[bytes, bytes]:
    return bytes.fromhex(pair[0]), bytes.fromhex(pair[1])


def test_a_new_group_has_the_bytes_that_kafka_writes() -> None:
    assert NEW_GROUP_RECORD.encode() == raw(NEW_GROUP)
    assert GROUP_KINDS.decode(*raw(NEW_GROUP)) == NEW_GROUP_RECORD


def test_an_empty_group_keeps_protocol_type_and_generation() -> None:
    record = GroupMetadataRecord("g1", GroupMetadataValue("consumer", 2, None, None, 0x1A1FCE66CE0, []))
    assert record.encode() == raw(EMPTY_GROUP)
    assert record.value is not None
    group = group_from_record("g1", record.value)
    assert group_record(group, {}) == record


def test_an_offset_is_written_with_its_topic_id() -> None:
    assert OFFSET_RECORD.encode() == raw(OFFSET)
    assert GROUP_KINDS.decode(*raw(OFFSET)) == OFFSET_RECORD


def test_only_an_offset_with_an_expire_timestamp_has_value_version_1() -> None:
    record = OffsetRecord("g", "t", 3, OffsetCommitValue(7, -1, "note", 1000, 2000))
    key, value = record.encode()
    assert value == bytes.fromhex("0001" + "0000000000000007" + "0004") + b"note" + bytes.fromhex(
        "00000000000003e8" + "00000000000007d0"
    )
    assert GROUP_KINDS.decode(key, value) == record


def test_a_record_without_a_value_is_a_tombstone() -> None:
    assert GROUP_KINDS.decode(raw(NEW_GROUP)[0], None) == GroupMetadataRecord("g1", None)
    assert GROUP_KINDS.decode(raw(OFFSET)[0], None) == OffsetRecord("g1", "t", 0, None)


def test_keys_of_kafka_0_8_2_are_offset_keys() -> None:
    key = b"\0\0" + raw(OFFSET)[0][2:]
    assert GROUP_KINDS.decode(key, None) == OffsetRecord("g1", "t", 0, None)


@pytest.mark.parametrize(("kind", "owner"), [(3, GroupType.CONSUMER), (11, GroupType.SHARE), (17, GroupType.STREAMS)])
def test_records_of_foreign_groups_keep_their_bytes(kind: int, owner: GroupType) -> None:
    key = kind.to_bytes(2, "big") + b"\0\2g1"
    record = GROUP_KINDS.decode(key, b"anything")
    assert record == ForeignRecord(owner, "g1", key, b"anything")
    assert record.encode() == (key, b"anything")


def test_records_with_unknown_key_types_keep_their_bytes() -> None:
    record = GROUP_KINDS.decode(b"\x03\xe7whatever", b"x")
    assert record == UnknownRecord(b"\x03\xe7whatever", b"x")
    assert record.encode() == (b"\x03\xe7whatever", b"x")


def test_a_known_key_with_an_invalid_value_raises() -> None:
    with pytest.raises(DecodeError):
        GROUP_KINDS.decode(raw(NEW_GROUP)[0], b"\0\3\0")
