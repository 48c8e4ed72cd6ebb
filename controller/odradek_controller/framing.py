"""The frame of metadata records in the metadata log: frame version, record type, record version, then the record.

Owns the frame and the choice of each record's version from the cluster's levels.
"""

from __future__ import annotations

from odradek_wire.codec import Buffer, decoder, encode
from odradek_wire.message import Message
from odradek_wire.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from odradek_wire.messages.partition_change_record import PartitionChangeRecord
from odradek_wire.messages.partition_record import PartitionRecord
from odradek_wire.messages.register_broker_record import RegisterBrokerRecord

from .levels import Levels
from .replay import RECORD_TYPES, InvalidMetadataError

FRAME_VERSION = 1


def record_version(record: Message, levels: Levels) -> int:
    """Return the version in which Kafka writes the record at these levels."""
    match record:
        case PartitionRecord():
            return levels.partition_record_version
        case PartitionChangeRecord():
            # The lowest version that has the fields, so that older readers can read it.
            if record.eligible_leader_replicas is not None or record.last_known_elr is not None:
                return min(2, levels.partition_record_version)
            return min(1 if record.directories is not None else 0, levels.partition_record_version)
        case RegisterBrokerRecord():
            return levels.register_broker_record_version
        case BrokerRegistrationChangeRecord():
            if record.cordoned_log_dirs is not None:
                return 3
            return 2 if record.log_dirs else 1 if record.in_controlled_shutdown else 0
        case _:
            return record.MIN_VERSION


def frame(record: Message, levels: Levels) -> bytes:
    """Return the value of the log record."""
    version = record_version(record, levels)
    return bytes((FRAME_VERSION, record.API_KEY, version)) + encode(record, version)


def unframe(value: Buffer) -> Message:
    """Return the record in the value of a log record. Raises InvalidMetadataError for an unknown version or type."""
    if len(value) < 3:
        raise InvalidMetadataError(f"metadata record has {len(value)} bytes, expected at least 3")
    if value[0] != FRAME_VERSION:
        raise InvalidMetadataError(f"metadata record has frame version {value[0]}, expected {FRAME_VERSION}")
    kind, version = value[1], value[2]
    record = RECORD_TYPES.get(kind)
    if record is None or version > record.MAX_VERSION:
        raise InvalidMetadataError(f"metadata record type {kind} version {version} is from a later Kafka")
    message: Message = decoder(record, version)(value, 3)
    return message
