"""Records inside their batches: decoded beside kafka-python and aiokafka, checked, summed (`bench.records`)."""

from __future__ import annotations

from collections.abc import Iterator

from bench.line import ODRADEK, Line
from bench.records import NOW, decoders, microseconds, records
from bench.session import Session
from odradek_wire.records.builder import build_batch
from odradek_wire.records.crc import crc32c
from odradek_wire.records.log_validator import ValidationRules, validate

_MIB = 1 << 20


def lines(session: Session) -> Iterator[Line]:
    """Nothing is aimed at here: what of it matters shows in the rows above."""
    runs = session.runs(7)
    data = memoryview(build_batch(records(1000, 100)))
    decoded = {library: microseconds(work, runs=runs) for library, work in decoders(data).items()}
    yield Line("decode 1,000 records of 100 B", "µs", decoded)
    strict = ValidationRules(strict=True)
    checked = microseconds(lambda: validate(data, strict, NOW + 2000), runs=runs)
    yield Line("validate them strictly", "µs", {ODRADEK: checked})
    megabyte = memoryview(bytearray(_MIB))
    yield Line("CRC-32C of 1 MiB", "µs", {ODRADEK: microseconds(lambda: crc32c(megabyte), runs=runs)})
