"""The start on a log of 10 GB: after a clean stop, and after kill -9, when recovery reads each last segment.

The older segments are sparse files, as in `large_log`; the last ones are produced, because recovery checks their CRCs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from bench import load
from bench.brokers import Odradek
from bench.log import SEGMENT, write_sparse
from bench.measurement import ODRADEK, Measurement, limit
from bench.process import cpu_seconds
from bench.session import Session
from bench.topics import PARTITIONS, create
from odradek.client import Client
from odradek_wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse

_TOPIC = "large"
_SEGMENTS = 3
"""Full segments per partition; 9.7 GB in three partitions."""
_LAST_BYTES = (60_000_000, 600_000_000)
"""Bytes in the last segments of all partitions."""
_LATEST = -1
_PAUSE_S = 0.002
_TIMEOUT_S = 60.0


def measurements(session: Session) -> Iterator[Measurement]:
    """Time the start until ListOffsets returns every log end offset, in turn with a log without sealed segments."""
    runs = session.runs(5)
    large = _Log(session.folder / "started" / "large", 1 if session.quick else _SEGMENTS)
    small = _Log(session.folder / "started" / "small", 0)
    try:
        after, alone = _starts(large, small, runs, Odradek.stop)
        note = f"{after} ÷ {alone} with an empty log"
        yield Measurement("start on 10 GB after a clean stop", "s", {ODRADEK: after.seconds}, (limit(0.5, "s"),), note)
        for size in _LAST_BYTES:
            for log in large, small:
                log.write(session.sized(size) - log.written)
            after, alone = _starts(large, small, runs, Odradek.kill)
            note = f"{large.written / 1e6:.0f} MB in the last segments of {PARTITIONS} partitions and in the page cache"
            yield Measurement("… after kill -9", "s", {ODRADEK: after.seconds}, (), note)
            times = after.seconds / alone.seconds
            note = f"{after} ÷ {alone}"
            yield Measurement("… 10 GB ÷ the last segments alone", "×", {ODRADEK: times}, (limit(1.2, "×"),), note)
    finally:
        large.broker.close()
        small.broker.close()


class _Start(NamedTuple):
    seconds: float
    cpu: float
    """The broker's processor time in seconds."""

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s ({self.cpu:.2f} s of processor time)"


def _starts(large: _Log, small: _Log, runs: int, end: Callable[[Odradek], None]) -> tuple[_Start, _Start]:
    """Return the medians of both logs."""
    taken = [(large.start_again(end), small.start_again(end)) for _ in range(runs)]
    after, alone = (_Start(*map(statistics.median, zip(*starts, strict=True))) for starts in zip(*taken, strict=True))
    return after, alone


class _Log:
    """A running broker with one topic: sparse sealed segments in each partition, and produced records after them."""

    def __init__(self, folder: Path, segments: int) -> None:
        self.broker = Odradek(folder)
        self.written = 0
        self.broker.start()
        create(self.broker.address, [_TOPIC])
        if segments:
            self.broker.stop()
            for index in range(PARTITIONS):
                write_sparse(folder / "data" / f"{_TOPIC}-{index}", segments * SEGMENT)
            # One start and stop writes the recovery point checkpoint.
            self.broker.start()
            self.broker.stop()
            self.broker.start()

    def write(self, size: int) -> None:
        """Produce `size` bytes."""
        done = load.run("bulk", "produce", self.broker.address, _TOPIC, "--bytes", size)
        self.written += int(done["bytes"])

    def start_again(self, end: Callable[[Odradek], None]) -> _Start:
        """End the broker with `end`. Return the time from the start command to the same log end offsets as before."""
        ends = self._ends()
        end(self.broker)
        begun = time.perf_counter()
        self.broker.start()
        while (found := self._ends()) != ends:
            assert None in found, (found, ends)
            assert time.perf_counter() - begun < _TIMEOUT_S, found
            time.sleep(_PAUSE_S)
        seconds = time.perf_counter() - begun
        assert self.broker.pid is not None
        return _Start(seconds, cpu_seconds(self.broker.pid))

    def _ends(self) -> list[int | None]:
        """Return the log end offsets, None for a partition that is not ready."""
        wanted = [ListOffsetsRequest.ListOffsetsPartition(index, -1, _LATEST) for index in range(PARTITIONS)]
        request = ListOffsetsRequest(-1, topics=[ListOffsetsRequest.ListOffsetsTopic(_TOPIC, wanted)])
        with Client(self.broker.address) as client:
            (topic,) = client.call(request, ListOffsetsResponse).topics
        return [None if each.error_code else each.offset for each in topic.partitions]
