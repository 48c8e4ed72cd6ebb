"""The log cleaner: the speed of a pass over records of 1 KiB, half of them superseded, and the latency of Produce
requests during a pass."""

from __future__ import annotations

import os
import random
import statistics
import threading
import time
from collections.abc import Iterator

from confluent_kafka import Producer

from bench import load
from bench.measurement import ODRADEK, Measurement, floor, limit
from bench.session import Session
from bench.topics import topic
from odradek import Cluster

_RECORD_BYTES = 1000
_BYTES = 100_000_000
_TOPICS = 5
_SEGMENT_BYTES = 32 << 20
_SEGMENT_BYTES_MIN = 1 << 20
_LOG_TIMEOUT_S = 10.0


def measurements(session: Session) -> Iterator[Measurement]:
    """Clean topics on demand, first without other load, then during Produce requests."""
    speeds: list[float] = []
    p99_ms: dict[str, list[float]] = {"alone": [], "during": []}
    with Cluster(process=True, config={"log.cleaner.backoff.ms": 1 << 40}) as cluster:
        for run in range(session.runs(3)):
            _fill(cluster, [f"quiet-{run}"], session)
            cluster.clean_logs()
            speeds.append(_speed(cluster, f"quiet-{run}"))
            names = [f"busy-{run}-{number}" for number in range(_TOPICS)]
            _fill(cluster, names, session)
            p99_ms["alone"].append(_p99(cluster, session))
            cleaner = threading.Thread(target=cluster.clean_logs)
            cleaner.start()
            p99_ms["during"].append(_p99(cluster, session))
            cleaner.join()
    note = "bytes read by a pass that indexes them first, as Kafka counts them"
    yield Measurement(
        "log cleaner, 1 KiB records", "MB/s", {ODRADEK: statistics.median(speeds)}, (floor(100, "MB/s"),), note
    )
    alone, during = (statistics.median(p99_ms[kind]) for kind in ("alone", "during"))
    note = f"{alone:.2f} ms alone, {during:.2f} ms while a log is cleaned"
    work = "… p99 of an unbatched produce beside it, 1 connection"
    yield Measurement(work, "×", {ODRADEK: during / alone}, (limit(2, "×"),), note)


def _fill(cluster: Cluster, names: list[str], session: Session) -> None:
    """Write records with random keys, each twice on average."""
    records = session.sized(_BYTES) // _RECORD_BYTES
    segment_bytes = max(session.sized(_SEGMENT_BYTES), _SEGMENT_BYTES_MIN)
    config = {"cleanup.policy": "compact", "segment.bytes": segment_bytes, "min.cleanable.dirty.ratio": 0.01}
    rng = random.Random(1)
    value = os.urandom(_RECORD_BYTES)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 20, "batch.size": 1 << 16})
    for name in names:
        cluster.create_topic(name, config=config)
        for _ in range(records):
            producer.produce(name, value, b"key %08d" % rng.randrange(records // 2), 0)
            while len(producer) > 50_000:
                producer.poll(0.01)
        producer.flush()


def _p99(cluster: Cluster, session: Session) -> float:
    with topic(cluster.bootstrap_servers) as name:
        options = ("--connections", 1, "--seconds", session.seconds(2))
        done = load.run("calls", cluster.bootstrap_servers, name, *options)
    assert not done["errors"], done
    return done["p99_ms"]


def _speed(cluster: Cluster, name: str) -> float:
    """Return the megabytes per second of the pass over a topic from the broker's log, which may arrive later."""
    deadline = time.monotonic() + _LOG_TIMEOUT_S
    while time.monotonic() < deadline:
        for entry in cluster.logs:
            if entry.get("event") == "log cleaned" and entry["partition"] == f"{name}-0":
                return float(entry["bytes_read"] / max(entry["took_ms"], 1) / 1000)
        time.sleep(0.01)
    raise TimeoutError(f"the broker logged no pass over {name} within {_LOG_TIMEOUT_S:g} s")
