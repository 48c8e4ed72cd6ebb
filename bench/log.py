"""`python -m bench.log`: the cost of an append and of a read in the log itself, without a network.

The comparison of an offset look-up in 10 GB with one in 100 MB uses sparse files that contain only the headers of
64 KiB batches, with their indexes.
"""

from __future__ import annotations

import random
import statistics
import struct
import tempfile
import time
from pathlib import Path

from odradek_log.directory import LogDirectory
from odradek_log.disk import RealDisk
from odradek_log.file_names import INDEX, LOG, TIME_INDEX, segment_name
from odradek_log.index import OffsetIndex, TimeIndex
from odradek_log.log import Log
from odradek_log.log_config import LogConfig
from odradek_wire.records.builder import BatchBuilder

SMALL = 100 << 20
LARGE = 10 << 30
_BATCH = 64 << 10
_RECORDS = 64
SEGMENT = 1 << 30
_HEADER = struct.Struct(">qiibIhiqqqhii")


def write_sparse(directory: Path, size: int) -> int:
    """Write segments of `size` bytes, as a clean shutdown leaves them. Return the log end offset."""
    directory.mkdir(parents=True, exist_ok=True)
    offset = 0
    for start in range(0, size, SEGMENT):
        base = offset
        offsets, times = OffsetIndex(), TimeIndex()
        with (directory / segment_name(base, LOG)).open("wb") as file:
            length = min(SEGMENT, size - start)
            for position in range(0, length - _BATCH + 1, _BATCH):
                file.seek(position)
                now = 1_700_000_000_000 + offset
                file.write(_HEADER.pack(offset, _BATCH - 12, 0, 2, 0, 0, _RECORDS - 1, now, now, -1, -1, -1, _RECORDS))
                last = offset + _RECORDS - 1
                if position:
                    offsets.append(last - base, position)
                    times.maybe_append(now, last - base)
                offset += _RECORDS
            file.truncate(position + _BATCH)
        (directory / segment_name(base, INDEX)).write_bytes(offsets.to_bytes())
        (directory / segment_name(base, TIME_INDEX)).write_bytes(times.to_bytes())
    return offset


def _open(path: Path) -> LogDirectory:
    directory = LogDirectory.open(
        path,
        wall_ms=lambda: time.time_ns() // 1_000_000,
        later=lambda _delay, _callback: None,
        disk=RealDisk(sync=False),
    )
    directory.load(lambda _topic: LogConfig())
    return directory


def _locate(log: Log, offsets: list[int]) -> float:
    begun = time.thread_time()
    for offset in offsets:
        log.read(offset, _BATCH)
    return (time.thread_time() - begun) / len(offsets) * 1e6


def random_lookups(path: Path) -> tuple[float, float]:
    """Return the microseconds of processor time to find the position of a new random offset in 100 MB and in 10 GB, as
    medians of alternating rounds."""
    write_sparse(path / "small-0", SMALL)
    write_sparse(path / "large-0", LARGE)
    (path / ".kafka_cleanshutdown").touch()
    directory = _open(path)
    rng = random.Random(1)
    logs = [directory.logs["small", 0], directory.logs["large", 0]]
    lookups: tuple[list[float], list[float]] = ([], [])
    for _ in range(9):
        for log, figures in zip(logs, lookups, strict=True):
            figures.append(_locate(log, [rng.randrange(log.log_end_offset) for _ in range(5000)]))
    directory.close_without_writing()
    return statistics.median(lookups[0][1:]), statistics.median(lookups[1][1:])


def _batches(count: int, size: int, producer_id: int) -> list[bytearray]:
    made = []
    for number in range(count):
        sequence = number if producer_id >= 0 else -1
        builder = BatchBuilder(producer_id=producer_id, producer_epoch=min(producer_id, 0), base_sequence=sequence)
        builder.append(1_700_000_000_000, None, bytes(size - 69))
        made.append(builder.build())
    return made


def append(log: Log, count: int, size: int, *, producer_id: int = -1) -> float:
    """Return the microseconds to append a batch of one record, `size` bytes in all."""
    batches = _batches(count, size, producer_id)
    begun = time.thread_time()
    for batch in batches:
        log.append(batch, 0)
    return (time.thread_time() - begun) / count * 1e6


def appends_and_reads(path: Path) -> dict[str, float]:
    """Return the microseconds per call, of processor time, on which a busy machine has less influence."""
    directory = _open(path)
    logs = iter([directory.create_log("t", partition, None, LogConfig()) for partition in range(4)])
    plain = next(logs)
    figures = {"append 100 B": append(plain, 20_000, 100)}
    end = plain.log_end_offset
    figures["read the last batch"] = _locate(plain, [end - 1] * 20_000)
    figures["read anywhere in batches of 100 B"] = _locate(plain, random.Random(1).sample(range(end), 10_000))
    figures["append 100 B, idempotent"] = append(next(logs), 20_000, 100, producer_id=1)
    figures["append 16 KiB"] = append(next(logs), 2_000, 16 << 10)
    figures["append 1 MiB"] = append(next(logs), 100, (1 << 20) - 100)
    directory.close_without_writing()
    return figures


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory(prefix="bench-log-") as folder:
        for name, figure in appends_and_reads(Path(folder) / "a").items():
            print(f"{name:35} {figure:8.2f} µs")
        small, large = random_lookups(Path(folder) / "b")
        print(f"{'find a random offset':35} {small:8.2f} µs in 100 MB, {large:8.2f} µs in 10 GB")


if __name__ == "__main__":
    main()
