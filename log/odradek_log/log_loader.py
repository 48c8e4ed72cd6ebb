"""Load the segments of a log from its directory, and repair them after a crash (LogLoader).

After a clean shutdown it reads only the end of the active segment. Otherwise it reads and checks every segment from the
recovery point on, rebuilds the indexes and truncates a torn tail. Kafka truncates at the first damaged batch. Here, if
valid batches follow a damaged one, the partition stays offline (CorruptLogError), so that an operator can save them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from odradek_log import file_batches
from odradek_log.disk import READ
from odradek_log.file_names import (
    CLEANED,
    DELETED,
    INDEX,
    LEADER_EPOCH_CHECKPOINT,
    LOG,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    offset_of,
    segment_name,
)
from odradek_log.leader_epoch_cache import LeaderEpochCache
from odradek_log.log_config import LogConfig
from odradek_log.log_environment import LogEnvironment
from odradek_log.log_errors import CorruptLogError
from odradek_log.log_segment import LogSegment
from odradek_log.producer_snapshots import ProducerSnapshots
from odradek_wire.records.batch import (
    HEADER_SIZE,
    MAGIC,
    RecordBatchHeader,
    check_crc,
    entry_size_at,
    read_header,
)
from odradek_wire.records.record_errors import CorruptRecordError

_CHUNK = 4 << 20
_MAX_RELATIVE = 0x7FFF_FFFF


@dataclass(slots=True)
class LoadedLog:
    """The content of a directory, from which a Log is made."""

    segments: list[LogSegment]
    next_offset: int
    log_start_offset: int
    epochs: LeaderEpochCache
    snapshots: ProducerSnapshots


def load(
    env: LogEnvironment,
    directory: str,
    config: LogConfig,
    *,
    recovery_point: int,
    log_start_offset: int,
    clean_shutdown: bool,
) -> LoadedLog:
    """Load and check the segments of a directory. Raises CorruptLogError and OSError."""
    names = env.disk.names(directory)
    if any(name.endswith((DELETED, CLEANED, SWAP)) for name in names):
        names = _finish_replacements(env, directory, names, config)
    present = set(names)
    bases = sorted(offset for name in names if name.endswith(LOG) and (offset := offset_of(name)) is not None)
    snapshots = sorted(offset for name in names if name.endswith(SNAPSHOT) and (offset := offset_of(name)) is not None)
    known_epochs = _read_epochs(env, directory, present)
    epochs = known_epochs if known_epochs is not None else LeaderEpochCache()
    _remove_orphans(env, directory, names, bases)
    segments = [_segment(env, directory, base, present, config) for base in bases]
    if not segments:
        # An empty log keeps its start offset in the name of its file: only a log that starts at 0 needs no file.
        begin_at = LogSegment.create(env, directory, log_start_offset, config) if log_start_offset else None
        segments = [begin_at or LogSegment.without_files(env, directory, config)]
        epochs.clear()
    if clean_shutdown:
        next_offset = segments[-1].next_offset()
    else:
        next_offset = _recover(env, segments, recovery_point, epochs, compact=config.compact)
    if known_epochs is None:
        epochs = _epochs_of(segments)
    log_start_offset = max(log_start_offset, segments[0].base_offset)
    if next_offset < log_start_offset:
        # The start offset advanced, and the records after it never reached the disk: the log is empty.
        env.reporter.warning(
            "emptied a log that ends before its start offset",
            directory=directory,
            log_end_offset=next_offset,
            log_start_offset=log_start_offset,
        )
        _remove(env, segments, 0)
        segments = [LogSegment.create(env, directory, log_start_offset, config)]
        next_offset = log_start_offset
    epochs.truncate_from_end(next_offset)
    epochs.truncate_from_start(log_start_offset)
    producer_snapshots = ProducerSnapshots(env, directory, snapshots)
    producer_snapshots.keep_only({segment.base_offset for segment in segments})
    return LoadedLog(segments, next_offset, log_start_offset, epochs, producer_snapshots)


def _read_epochs(env: LogEnvironment, directory: str, present: set[str]) -> LeaderEpochCache | None:
    """Return None if the file is missing, empty or damaged: it is written without a sync, because the batches have the
    epochs too."""
    if LEADER_EPOCH_CHECKPOINT not in present:
        return None
    path = f"{directory}/{LEADER_EPOCH_CHECKPOINT}"
    try:
        data = env.disk.read_file(path)
        return LeaderEpochCache.decode(data, path) if data else None
    except CorruptLogError as error:
        env.reporter.warning("rebuilding leader epochs from the log", file=path, error=str(error))
        return None


def _epochs_of(segments: list[LogSegment]) -> LeaderEpochCache:
    epochs = LeaderEpochCache()
    for segment in segments:
        if segment.size:
            for header in file_batches.batch_headers(segment.open(), 0, segment.size):
                if header.partition_leader_epoch > epochs.latest:
                    epochs.assign(header.partition_leader_epoch, header.base_offset)
    return epochs


def _segment(env: LogEnvironment, directory: str, base: int, present: set[str], config: LogConfig) -> LogSegment:
    path = f"{directory}/{segment_name(base, LOG)}"
    segment = LogSegment(
        env,
        directory,
        base,
        size=env.disk.size(path),
        created_ms=env.wall_ms(),
        index_interval=config.index_interval_bytes,
    )
    segment.sealed = segment_name(base, INDEX) in present and segment_name(base, TIME_INDEX) in present
    return segment


def _remove_orphans(env: LogEnvironment, directory: str, names: list[str], bases: list[int]) -> None:
    """Remove index files without a log file, which an interrupted deletion has left."""
    known = set(bases)
    for name in names:
        if name.endswith(SEGMENT_SUFFIXES) and not name.endswith(LOG) and offset_of(name) not in known:
            env.reporter.warning("removing an index file without a log file", file=f"{directory}/{name}")
            env.disk.remove(f"{directory}/{name}")


def _finish_replacements(env: LogEnvironment, directory: str, names: list[str], config: LogConfig) -> list[str]:
    """Complete or undo an interrupted cleaning or deletion (LogLoader.removeTempFilesAndCollectSwapFiles).

    A `.swap` file is complete, unless another file of the same replacement is still `.cleaned`.
    """
    disk = env.disk
    cleaned = [offset for name in names if name.endswith(CLEANED) and (offset := offset_of(name)) is not None]
    first_undone_offset = min(cleaned, default=1 << 63)
    swaps = [name for name in names if name.endswith(SWAP)]
    for name in [name for name in swaps if (offset_of(name) or 0) >= first_undone_offset]:
        disk.remove(f"{directory}/{name}")
        swaps.remove(name)
    # Remove these after the `.swap` files: a crash in between must not make half of a replacement look complete.
    for name in names:
        if name.endswith((DELETED, CLEANED)):
            disk.remove(f"{directory}/{name}")
    for name in [name for name in swaps if name.endswith(LOG + SWAP)]:
        base = offset_of(name) or 0
        size = disk.size(f"{directory}/{name}")
        segment = LogSegment(
            env, directory, base, size=size, created_ms=env.wall_ms(), index_interval=config.index_interval_bytes
        )
        env.open_files.open(f"{directory}/{name}", READ, segment)
        # An empty segment replaces at least the old one with the same base offset.
        end = base + 1
        for header in file_batches.batch_headers(segment.open(), 0, segment.size):
            end = header.next_offset
        segment.release()
        for other in names:
            offset = offset_of(other)
            if other.endswith(SEGMENT_SUFFIXES) and offset is not None and base <= offset < end:
                disk.remove(f"{directory}/{other}")
    for name in swaps:
        disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP)}")
    return disk.names(directory)


def _recover(
    env: LogEnvironment, segments: list[LogSegment], recovery_point: int, epochs: LeaderEpochCache, *, compact: bool
) -> int:
    """Check every segment from the one with the recovery point on; return the end of the log."""
    first = max((at for at, segment in enumerate(segments) if segment.base_offset <= recovery_point), default=0)
    next_offset = segments[first].base_offset
    for at in range(first, len(segments)):
        segment = segments[at]
        if segment.size and segment.base_offset > next_offset and not compact:
            env.reporter.warning("offsets missing before a segment", file=segment.path(LOG), after=next_offset)
        end_offset, end_position = _check_segment(segment, max(next_offset, segment.base_offset), epochs)
        if end_position == segment.size:
            next_offset = end_offset if end_position else next_offset
            continue
        if any(later.size for later in segments[at + 1 :]) or _batch_follows(segment, end_position):
            raise CorruptLogError(
                f"{segment.path(LOG)}: damaged at position {end_position}, offset {end_offset}, and valid batches "
                "follow; the partition stays offline: copy or truncate the file by hand"
            )
        env.reporter.warning(
            "truncating a torn tail",
            file=segment.path(LOG),
            position=end_position,
            bytes_cut=segment.size - end_position,
            log_end_offset=end_offset,
        )
        segment.truncate(end_position, end_offset)
        next_offset = end_offset if end_position else next_offset
        _remove(env, segments, at + 1)
        break
    # Remove empty segments with a gap before them: the records in the gap never reached the disk. Keep those up to the
    # recovery point, because the records before them were flushed and their offsets must not be used again. The cleaner
    # leaves no such gap, because it keeps the last batch that it reads.
    while len(segments) > 1 and not segments[-1].size:
        if segments[-1].base_offset <= max(next_offset, recovery_point):
            break
        _remove(env, segments, len(segments) - 1)
    return max(next_offset, segments[-1].base_offset)


def _remove(env: LogEnvironment, segments: list[LogSegment], start: int) -> None:
    for segment in segments[start:]:
        for path in segment.mark_deleted():
            env.disk.remove(path)
    del segments[start:]


def _check_segment(segment: LogSegment, next_offset: int, epochs: LeaderEpochCache) -> tuple[int, int]:
    """Read a segment and rebuild its indexes; return (offset, position) after the last valid batch."""
    segment.reset_indexes()
    file = segment.open()
    position = 0
    chunk_size = _CHUNK
    while position < segment.size:
        chunk = memoryview(file.read(min(chunk_size, segment.size - position), position))
        at = 0
        while at < len(chunk):
            header = _valid_batch(chunk, at, segment)
            if header is None or header.base_offset < next_offset:
                break
            segment.update_indexes(position + at, header.size_in_bytes, header.last_offset, header.max_timestamp)
            if header.partition_leader_epoch > epochs.latest:
                epochs.assign(header.partition_leader_epoch, header.base_offset)
            next_offset = header.next_offset
            at = header.end
        if at:
            position += at
            chunk_size = _CHUNK
            continue
        # No valid batch at the beginning: either a batch is larger than the chunk, or it is damaged.
        size = _batch_size(chunk)
        if size is None or size <= len(chunk) or position + size > segment.size:
            break
        chunk_size = size
    return next_offset, position


def _valid_batch(chunk: memoryview, at: int, segment: LogSegment) -> RecordBatchHeader | None:
    try:
        header = read_header(chunk, at)
        check_crc(chunk, header)
    except CorruptRecordError:
        return None
    # The CRC does not cover the base offset.
    valid = header.last_offset_delta >= 0 and 0 <= header.base_offset - segment.base_offset <= _MAX_RELATIVE
    return header if valid else None


def _batch_size(chunk: memoryview) -> int | None:
    try:
        return entry_size_at(chunk)
    except CorruptRecordError:
        return None


def _batch_follows(segment: LogSegment, position: int) -> bool:
    """Return whether a valid batch is anywhere from `position` on: then the damage is no torn tail. The batch at
    `position` itself may be valid but for its offset, which has to be above those before it."""
    # A batch begins with its base offset, whose upper four bytes are those of the segment's base offset, or one more.
    upper = segment.base_offset >> 32
    halves = b"|".join(re.escape(half.to_bytes(4, "big")) for half in (upper, upper + 1))
    pattern = re.compile(b"(?:" + halves + b").{12}" + bytes([MAGIC]), re.DOTALL)
    file = segment.open()
    while position < segment.size:
        chunk = memoryview(file.read(_CHUNK, position))
        at = 0
        while match := pattern.search(chunk, at):
            at = match.start() + 1
            size = _batch_size(chunk[match.start() :])
            if size is None or position + match.start() + size > segment.size:
                continue
            candidate = memoryview(file.read(size, position + match.start()))
            if _valid_batch(candidate, 0, segment):
                return True
        position += len(chunk) - HEADER_SIZE if len(chunk) == _CHUNK else len(chunk)
    return False
