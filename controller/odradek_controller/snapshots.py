"""Snapshot files of the metadata log: `<end offset>-<epoch>.checkpoint`, and `bootstrap.checkpoint` of a formatted one.

Owns their names and bytes: a control batch with the header, batches of records, a control batch with the footer. A
snapshot is written beside its place and then renamed, so that a half-written one is never found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from odradek_log.disk import Disk
from odradek_wire.codec import Buffer
from odradek_wire.message import Message
from odradek_wire.messages.snapshot_footer_record import SnapshotFooterRecord
from odradek_wire.messages.snapshot_header_record import SnapshotHeaderRecord
from odradek_wire.records.batch import check_crc, iterate
from odradek_wire.records.builder import BatchBuilder
from odradek_wire.records.control import ControlRecordType, control_batch
from odradek_wire.records.records import read_records

from .framing import frame, unframe
from .levels import Levels
from .replay import InvalidMetadataError

BOOTSTRAP = "bootstrap.checkpoint"
BATCH_RECORDS = 1024
_NAME = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")


class SnapshotId(NamedTuple):
    """All records below `end_offset` are in it; the last of them was written in `epoch`."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}.checkpoint"


def find_snapshots(disk: Disk, directory: str) -> list[SnapshotId]:
    """Oldest first."""
    matches = (_NAME.fullmatch(name) for name in disk.names(directory))
    return sorted(SnapshotId(int(match[1]), int(match[2])) for match in matches if match is not None)


def encode_snapshot(
    records: Iterable[Message], levels: Levels, *, epoch: int, now_ms: int, last_timestamp: int
) -> bytes:
    """The bytes of a snapshot. Offsets count from 0; every batch carries the epoch."""
    parts = []
    offset = 0

    def control(kind: ControlRecordType, message: Message) -> None:
        nonlocal offset
        parts.append(control_batch(kind, message, timestamp=now_ms, base_offset=offset, partition_leader_epoch=epoch))
        offset += 1

    control(ControlRecordType.SNAPSHOT_HEADER, SnapshotHeaderRecord(0, last_timestamp))
    builder = None
    for record in records:
        if builder is None:
            builder = BatchBuilder(base_offset=offset, partition_leader_epoch=epoch)
        builder.append(now_ms, None, frame(record, levels))
        offset += 1
        if builder.count == BATCH_RECORDS:
            parts.append(builder.build())
            builder = None
    if builder is not None:
        parts.append(builder.build())
    control(ControlRecordType.SNAPSHOT_FOOTER, SnapshotFooterRecord(0))
    return b"".join(parts)


def decode_snapshot(data: Buffer, name: str) -> Iterator[Message]:
    """The records of a snapshot; InvalidMetadataError when it is not whole."""
    complete = False
    for header in iterate(data):
        check_crc(data, header)
        for record in read_records(data, header):
            if not header.is_control:
                if record.value is None:
                    raise InvalidMetadataError(f"{name}: a record without a value")
                yield unframe(record.value)
            elif record.key is not None and record.key[3] == ControlRecordType.SNAPSHOT_FOOTER:
                complete = True
    if not complete:
        raise InvalidMetadataError(f"{name}: the snapshot has no end")
