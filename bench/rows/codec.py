"""Decoding and encoding of messages, compared with kafka-python's protocol package and kio (`bench.wire`)."""

from __future__ import annotations

from collections.abc import Iterator

from bench.measurement import ODRADEK, Measurement, as_fast_as, limit, within
from bench.session import Session
from bench.wire import WORK, compare, import_milliseconds

# The messages with a target.
_WITH_TARGETS = (
    "Produce v9, 3 x 16 KiB",
    "Produce v9, 12 x 16 KiB",
    "Fetch v12, 3 x 16 KiB",
    "Fetch v12, 12 x 16 KiB",
    "Metadata v12, 100 topics",
)
_KAFKA_PYTHON, _KIO = "kafka-python", "kio"


def measurements(session: Session) -> Iterator[Measurement]:
    rounds = session.runs(15)
    targets = {
        "decode": (as_fast_as(3, _KAFKA_PYTHON), within(3.5, _KIO)),
        "encode": (as_fast_as(3, _KAFKA_PYTHON), as_fast_as(4, _KIO)),
    }
    for title, message, version in WORK:
        for way, times in compare(message, version, rounds).items():
            figures = {ODRADEK: times["odradek"], _KAFKA_PYTHON: times[_KAFKA_PYTHON], _KIO: times[_KIO]}
            yield Measurement(f"{title}, {way}", "µs", figures, targets[way] if title in _WITH_TARGETS else ())
    yield Measurement("import odradek_wire.codec", "ms", {ODRADEK: import_milliseconds(rounds)}, (limit(60, "ms"),))
