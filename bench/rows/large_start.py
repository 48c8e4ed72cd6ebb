"""Starting on a log of 10 GB: after a clean stop, and after kill -9, when the last segment of each partition is read.

The segments before are sparse files, as in `large_log`; the last ones are produced, so that their sums are right.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from bench import load
from bench.brokers import Odradek
from bench.line import ODRADEK, Line, limit
from bench.log import SEGMENT, write_sparse
from bench.process import cpu_seconds
from bench.session import Session
from bench.topics import PARTITIONS, create
from odradek.client import Client
from odradek_wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse

_TOPIC = "large"
_SEGMENTS = 3
"""Full ones, in each of three partitions: 9.7 GB."""
_LAST_BYTES = (60_000_000, 600_000_000)
"""In the last segments of all partitions together."""
_LATEST = -1
_PAUSE_S = 0.002
_TIMEOUT_S = 60.0


def lines(session: Session) -> Iterator[Line]:
    """How long until all partitions tell their ends, in turn with a log that has no sealed segments."""
    runs = session.runs(5)
    large = _Log(session.folder / "started" / "large", 1 if session.quick else _SEGMENTS)
    small = _Log(session.folder / "started" / "small", 0)
    try:
        after, alone = _starts(large, small, runs, Odradek.stop)
        note = f"{after} ÷ {alone} without a log"
        yield Line("start on 10 GB after a clean stop", "s", {ODRADEK: after.seconds}, (limit(0.5, "s"),), note)
        for size in _LAST_BYTES:
            for log in large, small:
                log.write(session.sized(size) - log.written)
            after, alone = _starts(large, small, runs, Odradek.kill)
            note = f"{large.written / 1e6:.0f} MB in the last segments of {PARTITIONS} partitions, in the page cache"
            yield Line("… after kill -9", "s", {ODRADEK: after.seconds}, (), note)
            times = after.seconds / alone.seconds
            note = f"{after} ÷ {alone}"
            yield Line("… with 10 GB ÷ with the last segments alone", "×", {ODRADEK: times}, (limit(1.2, "×"),), note)
    finally:
        large.broker.close()
        small.broker.close()


class _Start(NamedTuple):
    seconds: float
    cpu: float
    """Seconds of the broker's processor time."""

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s ({self.cpu:.2f} s of processor time)"


def _starts(large: _Log, small: _Log, runs: int, end: Callable[[Odradek], None]) -> tuple[_Start, _Start]:
    """Medians."""
    taken = [(large.start_again(end), small.start_again(end)) for _ in range(runs)]
    after, alone = (_Start(*map(statistics.median, zip(*starts, strict=True))) for starts in zip(*taken, strict=True))
    return after, alone


class _Log:
    """A running broker with one topic: so many sealed segments in each partition, and what is written then."""

    def __init__(self, folder: Path, segments: int) -> None:
        self.broker = Odradek(folder)
        self.written = 0
        self.broker.start()
        create(self.broker.address, [_TOPIC])
        if segments:
            self.broker.stop()
            for index in range(PARTITIONS):
                write_sparse(folder / "data" / f"{_TOPIC}-{index}", segments * SEGMENT)
            # Once up and down, so that the checkpoint knows what is on the disk.
            self.broker.start()
            self.broker.stop()
            self.broker.start()

    def write(self, size: int) -> None:
        """So many bytes more."""
        done = load.run("bulk", "produce", self.broker.address, _TOPIC, "--bytes", size)
        self.written += int(done["bytes"])

    def start_again(self, end: Callable[[Odradek], None]) -> _Start:
        """From the command to the ends of all partitions, the same as before."""
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
        """None: not known yet."""
        wanted = [ListOffsetsRequest.ListOffsetsPartition(index, -1, _LATEST) for index in range(PARTITIONS)]
        request = ListOffsetsRequest(-1, topics=[ListOffsetsRequest.ListOffsetsTopic(_TOPIC, wanted)])
        with Client(self.broker.address) as client:
            (topic,) = client.call(request, ListOffsetsResponse).topics
        return [None if each.error_code else each.offset for each in topic.partitions]
