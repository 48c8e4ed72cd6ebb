"""A Fetch at a random offset of a log of 10 GB, compared with one of 100 MB, and the look-up of the offset alone."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from bench.brokers import Odradek
from bench.log import LARGE, SMALL, random_lookups, write_sparse
from bench.measurement import ODRADEK, Measurement, limit
from bench.process import cpu_seconds
from bench.session import Session
from bench.topics import create
from odradek.client import Client
from odradek_wire.messages.fetch import FetchRequest, FetchResponse
from odradek_wire.uuid import Uuid

_FETCH_BYTES = 64 << 10
_FETCHES = 1000
_ROUNDS = 9


def measurements(session: Session) -> Iterator[Measurement]:
    """The logs are sparse files: only the batch headers take space on the disk."""
    if session.quick:
        return
    small, large = random_lookups(session.folder / "log")
    yield Measurement("find a random offset, 10 GB ÷ 100 MB", "×", {ODRADEK: large / small}, (), _note(small, large))
    (small, large), (small_cpu, large_cpu) = _fetches(session.folder / "fetched")
    work = "Fetch 64 KiB at a random offset, 10 GB ÷ 100 MB"
    yield Measurement(f"{work}, time", "×", {ODRADEK: large / small}, (limit(1.2, "×"),), _note(small, large, ""))
    yield Measurement(f"{work}, server CPU", "×", {ODRADEK: large_cpu / small_cpu}, (), _note(small_cpu, large_cpu))


def _note(small: float, large: float, kind: str = " of processor time") -> str:
    return f"{small:.1f} µs and {large:.1f} µs{kind}"


def _fetches(folder: Path) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return microseconds per Fetch, and of the server's processor time, for the small and the large log."""
    broker = Odradek(folder)
    broker.start()
    create(broker.address, ["small", "large"])
    broker.stop()
    ends = {
        name: write_sparse(folder / "data" / f"{name}-0", size) for name, size in (("small", SMALL), ("large", LARGE))
    }
    broker.start()
    rng = random.Random(1)
    taken: dict[str, list[float]] = {name: [] for name in ends}
    cpu: dict[str, list[float]] = {name: [] for name in ends}
    assert broker.pid is not None
    try:
        with Client(broker.address) as client:
            ids = {topic.name: topic.topic_id for topic in client.metadata().topics}
            # With the same offsets in each round, the page cache has both logs from the second round on.
            requests = {
                name: [_request(ids[name], rng.randrange(end)) for _ in range(_FETCHES)] for name, end in ends.items()
            }
            for _ in range(_ROUNDS):
                for name, wanted in requests.items():
                    begun, used = time.perf_counter(), cpu_seconds(broker.pid)
                    for request in wanted:
                        fetched = client.call(request, FetchResponse).responses[0].partitions[0]
                        assert len(fetched.records or b"") == _FETCH_BYTES, fetched.error_code
                    taken[name].append((time.perf_counter() - begun) / _FETCHES * 1e6)
                    cpu[name].append((cpu_seconds(broker.pid) - used) / _FETCHES * 1e6)
    finally:
        broker.close()
    times, processor = ({name: statistics.median(runs[1:]) for name, runs in each.items()} for each in (taken, cpu))
    return (times["small"], times["large"]), (processor["small"], processor["large"])


def _request(topic_id: Uuid, offset: int) -> FetchRequest:
    wanted = FetchRequest.FetchPartition(0, -1, offset, partition_max_bytes=_FETCH_BYTES)
    topic = FetchRequest.FetchTopic(topic_id=topic_id, partitions=[wanted])
    return FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=1, topics=[topic])
