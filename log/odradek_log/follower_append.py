"""Append as a follower: batches of the leader at the offsets that they have, in few writes."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from odradek_log import truncation
from odradek_log.append import AppendInfo
from odradek_wire.records.batch import RecordBatchHeader, check_crc, iterate
from odradek_wire.records.record_errors import CorruptRecordError

if TYPE_CHECKING:
    from odradek_log.log import Log

ANY_EPOCH = 0x7FFF_FFFF
"""A leader epoch that is not below that of any batch."""


def append(log: Log, view: memoryview, leader_epoch: int) -> AppendInfo | None:
    """See `Log.append_as_follower`."""
    next_offset = _first_offset(log, view)
    headers, fault = _valid_batches(log, view, next_offset, leader_epoch)
    if headers and next_offset < log.log_end_offset:
        start = log.log_end_offset
        truncation.truncate_fully_and_start_at(log, next_offset)
        log.log_start_offset = start
    run: list[RecordBatchHeader] = []
    for header in headers:
        segment = log.segments.active
        size = header.end - (run[0].position if run else header.position)
        if segment.should_roll(size, header.max_timestamp, header.last_offset, log.config):
            _write(log, view, run)
            run = []
            # Compaction at the leader leaves gaps: the base offset of the new segment is that of its first batch.
            log.log_end_offset = header.base_offset
            log.roll_segment()
        run.append(header)
    _write(log, view, run)
    if headers and log.log_end_offset - log.recovery_point >= log.config.flush_messages:
        log.flush()
    if fault is not None:
        raise fault
    return AppendInfo(headers[0].base_offset, headers[-1].last_offset, -1, log.log_start_offset) if headers else None


def _first_offset(log: Log, view: memoryview) -> int:
    """Return the lowest offset that the first batch may have: the end of the log, or less if the log is empty and
    begins inside that batch, as it does after DeleteRecords at the leader (appendRecordsToFollowerOrFutureReplica)."""
    end = log.log_end_offset
    if log.log_start_offset == end:
        with suppress(CorruptRecordError):  # `_valid_batches` raises it
            first = next(iterate(view, allow_partial=True), None)
            if first is not None and first.base_offset < end <= first.last_offset:
                return first.base_offset
    return end


def _valid_batches(
    log: Log, view: memoryview, next_offset: int, leader_epoch: int
) -> tuple[list[RecordBatchHeader], CorruptRecordError | None]:
    """Return the whole batches up to the first that is invalid or of a later leader epoch; and the error if it is
    invalid."""
    headers: list[RecordBatchHeader] = []
    try:
        for header in iterate(view, allow_partial=True):
            if header.partition_leader_epoch > leader_epoch:
                log.env.reporter.info(
                    "ignored batches of a later leader epoch",
                    partition=log.name,
                    offset=header.base_offset,
                    leader_epoch=leader_epoch,
                    batch_epoch=header.partition_leader_epoch,
                )
                break
            check_crc(view, header)
            if header.base_offset < next_offset or header.last_offset_delta < 0:
                raise CorruptRecordError(f"batch at offset {header.base_offset}, at least {next_offset} expected")
            headers.append(header)
            next_offset = header.next_offset
    except CorruptRecordError as fault:
        return headers, fault
    return headers, None


def _write(log: Log, view: memoryview, run: list[RecordBatchHeader]) -> None:
    """Append neighbouring batches of `view`, for which the active segment has room, in one write."""
    if not run:
        return
    for header in run:
        if header.partition_leader_epoch > log.leader_epochs.latest:
            log.leader_epoch_file.begin(header.partition_leader_epoch, header.base_offset)
    segment = log.segments.active
    first, last = run[0], run[-1]
    position = segment.size + last.position - first.position
    segment.append_batches(view[first.position : last.end], run)
    for header in run:
        if header.producer_id >= 0:
            log.update_producers(header, view[header.position : header.end])
    log.set_last_batch(last, position)
