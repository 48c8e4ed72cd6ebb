"""Snapshot files of the metadata log: `<end offset>-<epoch>.checkpoint`, and `bootstrap.checkpoint` of a new cluster.

Owns their names and bytes: a control batch with the header, batches of records, a control batch with the footer. Leaves
it to the caller to replace the file atomically.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from odradek_log.disk import Disk
from odradek_wire.codec import Buffer
from odradek_wire.message import Message
from odradek_wire.messages.k_raft_version_record import KRaftVersionRecord
from odradek_wire.messages.snapshot_footer_record import SnapshotFooterRecord
from odradek_wire.messages.snapshot_header_record import SnapshotHeaderRecord
from odradek_wire.messages.voters_record import VotersRecord
from odradek_wire.records.batch import check_crc, iterate
from odradek_wire.records.builder import BatchBuilder
from odradek_wire.records.control import ControlRecordType, control_batch, decode_control_record
from odradek_wire.records.record_codec import read_records

from .framing import frame, unframe
from .levels import Levels
from .replay import InvalidMetadataError

BOOTSTRAP = "bootstrap.checkpoint"
BATCH_RECORDS = 1024
_NAME = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")


class SnapshotId(NamedTuple):
    """A snapshot of all records below `end_offset`; the last of them was written in `epoch`."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}.checkpoint"


def find_snapshots(disk: Disk, directory: str) -> list[SnapshotId]:
    """Return the snapshots in the directory, oldest first."""
    matches = (_NAME.fullmatch(name) for name in disk.names(directory))
    return sorted(SnapshotId(int(match[1]), int(match[2])) for match in matches if match is not None)


class VoterRecords(NamedTuple):
    """The control records that keep the voters of a quorum in the log (KIP-853); None with static voters."""

    version: KRaftVersionRecord | None = None
    voters: VotersRecord | None = None

    def updated(self, message: Message | None) -> VoterRecords:
        """Return the records after this control record; those of other types change nothing."""
        if isinstance(message, KRaftVersionRecord):
            return self._replace(version=message)
        if isinstance(message, VotersRecord):
            return self._replace(voters=message)
        return self


def encode_snapshot(
    records: Iterable[Message],
    levels: Levels,
    *,
    epoch: int,
    now_ms: int,
    last_timestamp: int,
    voters: VoterRecords = VoterRecords(),  # noqa: B008  immutable
) -> bytes:
    """Return the bytes of a snapshot. Offsets start at 0; every batch has the epoch."""
    parts = []
    offset = 0

    def control(kind: ControlRecordType, message: Message) -> None:
        nonlocal offset
        parts.append(control_batch(kind, message, timestamp=now_ms, base_offset=offset, partition_leader_epoch=epoch))
        offset += 1

    control(ControlRecordType.SNAPSHOT_HEADER, SnapshotHeaderRecord(0, last_timestamp))
    if voters.version is not None:
        control(ControlRecordType.KRAFT_VERSION, voters.version)
    if voters.voters is not None:
        control(ControlRecordType.KRAFT_VOTERS, voters.voters)
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


def decode_snapshot(data: Buffer, name: str) -> tuple[list[Message], VoterRecords]:
    """Return the records of a snapshot and its voters. Raises InvalidMetadataError for an incomplete one."""
    records: list[Message] = []
    voters = VoterRecords()
    complete = False
    for header in iterate(data):
        check_crc(data, header)
        for record in read_records(data, header):
            if header.is_control:
                kind, message = decode_control_record(record)
                voters = voters.updated(message)
                complete = kind is ControlRecordType.SNAPSHOT_FOOTER
            elif record.value is None:
                raise InvalidMetadataError(f"snapshot {name} has a record without a value")
            else:
                records.append(unframe(record.value))
    if not complete:
        raise InvalidMetadataError(f"snapshot {name} is incomplete, because it has no footer: restore it from a backup")
    return records, voters
