"""Record batches: decoding compared with kafka-python and aiokafka, validation, CRC-32C (`bench.records`)."""

from __future__ import annotations

from collections.abc import Iterator

from bench.measurement import ODRADEK, Measurement
from bench.records import NOW, decoders, microseconds, records
from bench.session import Session
from odradek_wire.records.builder import build_batch
from odradek_wire.records.crc import crc32c
from odradek_wire.records.log_validator import ValidationRules, validate

_MIB = 1 << 20


def measurements(session: Session) -> Iterator[Measurement]:
    """These rows have no targets: the rows above include their cost."""
    runs = session.runs(7)
    data = memoryview(build_batch(records(1000, 100)))
    decoded = {library: microseconds(work, runs=runs) for library, work in decoders(data).items()}
    yield Measurement("decode 1,000 records of 100 B", "µs", decoded)
    strict = ValidationRules(strict=True)
    checked = microseconds(lambda: validate(data, strict, NOW + 2000), runs=runs)
    yield Measurement("validate 1,000 records strictly", "µs", {ODRADEK: checked})
    megabyte = memoryview(bytearray(_MIB))
    yield Measurement("CRC-32C of 1 MiB", "µs", {ODRADEK: microseconds(lambda: crc32c(megabyte), runs=runs)})
