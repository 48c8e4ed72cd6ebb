"""Control records; the expected bytes were written by Kafka 4.3's MemoryRecords."""

import pytest

from odradek_wire.message import Message
from odradek_wire.messages.end_txn_marker import EndTxnMarker
from odradek_wire.messages.k_raft_version_record import KRaftVersionRecord
from odradek_wire.messages.leader_change_message import LeaderChangeMessage
from odradek_wire.messages.snapshot_footer_record import SnapshotFooterRecord
from odradek_wire.messages.snapshot_header_record import SnapshotHeaderRecord
from odradek_wire.messages.voters_record import VotersRecord
from odradek_wire.records import batch
from odradek_wire.records.control import (
    ControlRecordType,
    control_batch,
    decode_control_record,
    encode_key,
    end_txn_marker_batch,
    record_type_of,
)
from odradek_wire.records.record import Record
from odradek_wire.records.record_codec import read_records
from odradek_wire.records.record_errors import InvalidRecordError


def test_the_end_of_a_transaction_has_kafkas_bytes() -> None:
    data = end_txn_marker_batch(
        commit=True,
        coordinator_epoch=11,
        producer_id=9,
        producer_epoch=2,
        timestamp=123,
        base_offset=7,
        partition_leader_epoch=5,
    )
    assert data == bytes.fromhex(
        "0000000000000007000000420000000502fcf904a2003000000000000000000000007b000000000000007b"
        "00000000000000090002ffffffff000000012000000008000000010c00000000000b00"
    )
    header = batch.validate(data)
    assert (header.is_control, header.is_transactional) == (True, True)
    assert [decode_control_record(record) for record in read_records(data, header)] == [
        (ControlRecordType.COMMIT, EndTxnMarker(coordinator_epoch=11))
    ]


@pytest.mark.parametrize(
    ("record_type", "message", "body"),
    [
        (ControlRecordType.LEADER_CHANGE, LeaderChangeMessage(leader_id=3), "00000000000301010000"),
        (ControlRecordType.SNAPSHOT_HEADER, SnapshotHeaderRecord(last_contained_log_timestamp=77), None),
        (ControlRecordType.SNAPSHOT_FOOTER, SnapshotFooterRecord(), "00000000"),
        (ControlRecordType.KRAFT_VERSION, KRaftVersionRecord(k_raft_version=1), None),
        (ControlRecordType.KRAFT_VOTERS, VotersRecord(), "0000010000"),
    ],
)
def test_records_of_the_metadata_log_come_back(
    record_type: ControlRecordType, message: Message, body: str | None
) -> None:
    data = control_batch(record_type, message, timestamp=123, base_offset=7, partition_leader_epoch=5)
    header = batch.validate(data)
    (record,) = read_records(data, header)
    assert (record.offset, record.timestamp, header.is_control, header.is_transactional) == (7, 123, True, False)
    assert decode_control_record(record) == (record_type, message)
    if body is not None:
        assert data.hex().endswith(body)


def test_a_leader_change_has_kafkas_bytes() -> None:
    data = control_batch(
        ControlRecordType.LEADER_CHANGE,
        LeaderChangeMessage(leader_id=3),
        timestamp=123,
        base_offset=7,
        partition_leader_epoch=5,
    )
    assert data == bytes.fromhex(
        "00000000000000070000004500000005021d50e312002000000000000000000000007b000000000000007b"
        "ffffffffffffffffffffffffffff000000012600000008000000021200000000000301010000"
    )


def test_a_control_record_of_an_unknown_type_is_skipped() -> None:
    assert decode_control_record(Record(0, 0, b"\0\0\0\x63", b"whatever")) == (ControlRecordType.UNKNOWN, None)


def test_a_control_record_of_a_later_version_is_read_as_the_latest_known() -> None:
    record = Record(0, 0, encode_key(ControlRecordType.ABORT), b"\0\x07\0\0\0\x0bmore")
    assert decode_control_record(record) == (ControlRecordType.ABORT, EndTxnMarker(coordinator_epoch=11))


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\0"])
def test_a_broken_key_is_invalid(key: bytes | None) -> None:
    with pytest.raises(InvalidRecordError):
        record_type_of(key)


@pytest.mark.parametrize("value", [None, b"", b"\0", b"\xff\xff\0\0\0\0", b"\0\0\0\0\0"])
def test_a_broken_value_is_invalid(value: bytes | None) -> None:
    for record_type in (ControlRecordType.COMMIT, ControlRecordType.LEADER_CHANGE):
        with pytest.raises(InvalidRecordError):
            decode_control_record(Record(0, 0, encode_key(record_type), value))
