"""Control records: the end of a transaction, and the control messages of the metadata log.

A control batch has the control bit set. The key of its records is a version and a type, both int16. The value depends
on the type: the end of a transaction (a version and a message), or a message of the metadata log, which begins with its
version. Leaves their meaning to the coordinators and the controller.
"""

from __future__ import annotations

import struct
from enum import IntEnum

from odradek_wire.codec import decode, encode
from odradek_wire.errors import DecodeError
from odradek_wire.message import Message
from odradek_wire.messages.end_txn_marker import EndTxnMarker
from odradek_wire.messages.k_raft_version_record import KRaftVersionRecord
from odradek_wire.messages.leader_change_message import LeaderChangeMessage
from odradek_wire.messages.snapshot_footer_record import SnapshotFooterRecord
from odradek_wire.messages.snapshot_header_record import SnapshotHeaderRecord
from odradek_wire.messages.voters_record import VotersRecord
from odradek_wire.records.attributes import NO_LEADER_EPOCH
from odradek_wire.records.builder import BatchBuilder
from odradek_wire.records.record import Record
from odradek_wire.records.record_errors import InvalidRecordError

_KEY = struct.Struct(">hh")
_VERSION = struct.Struct(">h")
KEY_VERSION = 0


class ControlRecordType(IntEnum):
    """The type in the key of a control record. Readers skip records of type UNKNOWN."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_MESSAGES: dict[ControlRecordType, type[Message]] = {
    ControlRecordType.ABORT: EndTxnMarker,
    ControlRecordType.COMMIT: EndTxnMarker,
    ControlRecordType.LEADER_CHANGE: LeaderChangeMessage,
    ControlRecordType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlRecordType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlRecordType.KRAFT_VERSION: KRaftVersionRecord,
    ControlRecordType.KRAFT_VOTERS: VotersRecord,
}


def encode_key(record_type: ControlRecordType) -> bytes:
    """Encode the key of a control record."""
    return _KEY.pack(KEY_VERSION, record_type)


def record_type_of(key: bytes | None) -> ControlRecordType:
    """Return the type in the key of a control record. Raises InvalidRecordError for a malformed key."""
    if key is None or len(key) < _KEY.size:
        raise InvalidRecordError(f"the key of a control record has {len(key or b'')} bytes, expected {_KEY.size}")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecordError(f"the key of a control record has version {version}, expected at least 0")
    try:
        return ControlRecordType(number)
    except ValueError:
        return ControlRecordType.UNKNOWN


def decode_control_record(record: Record) -> tuple[ControlRecordType, Message | None]:
    """Return type and message of a record of a control batch; no message for an unknown type.

    Like Kafka, decodes a value of a later version as the latest known one, because later ones only add tagged fields.
    Raises InvalidRecordError.
    """
    record_type = record_type_of(record.key)
    message = _MESSAGES.get(record_type)
    if message is None:
        return record_type, None
    value = record.value
    if value is None or len(value) < _VERSION.size:
        raise InvalidRecordError(f"a {record_type.name} control record has a value without a version")
    version: int = _VERSION.unpack_from(value)[0]
    if version < 0:
        raise InvalidRecordError(f"a {record_type.name} control record has version {version}, expected at least 0")
    known = min(version, message.MAX_VERSION)
    try:
        if message is EndTxnMarker:
            # The version is before the message; bytes that a later version adds are ignored.
            return record_type, decode(message, known, value[2:6])
        return record_type, decode(message, known, value)
    except DecodeError as error:
        raise InvalidRecordError(f"bad {record_type.name} control record: {error}") from None


def end_txn_marker_batch(
    *,
    commit: bool,
    coordinator_epoch: int,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """Build the marker that ends a transaction in a partition."""
    builder = BatchBuilder(
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
        partition_leader_epoch=partition_leader_epoch,
    )
    builder.append(
        timestamp,
        encode_key(ControlRecordType.COMMIT if commit else ControlRecordType.ABORT),
        _VERSION.pack(0) + encode(EndTxnMarker(coordinator_epoch=coordinator_epoch), 0),
    )
    return builder.build()


def control_batch(
    record_type: ControlRecordType,
    message: Message,
    *,
    timestamp: int,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """Build a batch of one control record of the metadata log, in the version that the message's field has."""
    assert isinstance(message, _MESSAGES[record_type]), f"{type(message).__name__} is no {record_type.name}"
    version: int = message.version  # type: ignore[attr-defined]  # every one of them has the field
    builder = BatchBuilder(base_offset=base_offset, is_control=True, partition_leader_epoch=partition_leader_epoch)
    builder.append(timestamp, encode_key(record_type), encode(message, version))
    return builder.build()
