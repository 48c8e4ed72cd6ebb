"""The cost of record data: `python bench/records.py` prints microseconds for the work of a broker.

With --others also that of kafka-python's and aiokafka's record code for the same work. The figures are CPU time, the
minimum of several runs, so that other processes have little influence.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from functools import partial

from odradek_wire.records import batch
from odradek_wire.records.attributes import Compression, TimestampType
from odradek_wire.records.builder import build_batch
from odradek_wire.records.compression import compress, decompress
from odradek_wire.records.crc import crc32c
from odradek_wire.records.log_validator import ValidationRules, validate
from odradek_wire.records.record import Record
from odradek_wire.records.record_codec import read_records, records_data
from odradek_wire.records.record_summary import summarize_records

NOW = 1_795_246_704_249


def microseconds(work: Callable[[], object], *, runs: int = 7, at_least: float = 0.05) -> float:
    """Return the time of one call."""
    calls = 1
    while True:
        started = time.process_time()
        for _ in range(calls):
            work()
        if time.process_time() - started >= at_least:
            break
        calls *= 2
    times = []
    for _ in range(runs):
        started = time.process_time()
        for _ in range(calls):
            work()
        times.append((time.process_time() - started) / calls * 1e6)
    return min(times)


def records(count: int, size: int) -> list[Record]:
    rng = random.Random(1)
    letters = bytes(range(97, 123)) * 4
    return [
        Record(index, NOW + index, b"key-%d" % index, bytes(rng.choices(letters, k=size))) for index in range(count)
    ]


def print_row(name: str, work: Callable[[], object], note: str = "") -> None:
    print(f"{name:58} {microseconds(work):10.2f}  {note}")


def headers() -> None:
    tiny = memoryview(build_batch(records(1, 10)))
    header = batch.read_header(tiny)
    rules, strict = ValidationRules(), ValidationRules(strict=True)
    other = bytearray(tiny)

    def append() -> None:
        found = batch.read_header(tiny)
        batch.check_crc(tiny, found)
        batch.check_header(found)
        batch.set_offset_and_leader_epoch(tiny, found, 0, 3)

    print_row("header of a tiny batch", lambda: batch.read_header(tiny))
    print_row("read, check and set offset of a tiny batch", append, "the append path")
    print_row("validate a tiny batch by its header", lambda: validate(tiny, rules, NOW))
    print_row("validate a tiny batch, strict", lambda: validate(tiny, strict, NOW))
    print_row(
        "set the log append time",
        lambda: batch.set_max_timestamp(other, header, TimestampType.LOG_APPEND_TIME, NOW + 5),
        "with its CRC",
    )
    print_row("set offset and leader epoch", lambda: batch.set_offset_and_leader_epoch(tiny, header, 7, 3))
    many = memoryview(b"".join(bytes(build_batch(records(1, 100))) for _ in range(1000)))
    print_row("scan the headers of 1,000 batches", lambda: list(batch.iterate(many)))


def checksums() -> None:
    for size in (100, 16 << 10, 1 << 20, 10 << 20):
        data = memoryview(bytearray(random.Random(1).randbytes(size)))
        cost = microseconds(partial(crc32c, data))
        print(f"{f'CRC-32C of a view of {size:,} bytes':58} {cost:10.2f}  {size / cost / 1000:.1f} GB/s")


def record_data() -> None:
    thousand = records(1000, 100)
    data = memoryview(build_batch(thousand))
    header = batch.read_header(data)
    body = records_data(data, header)
    rules = ValidationRules(strict=True)
    print_row("decode 1,000 records of 100 bytes", lambda: list(read_records(data, header)))
    print_row("scan 1,000 records of 100 bytes", lambda: summarize_records(body, 1000))
    print_row("validate them, strict", lambda: validate(data, rules, NOW + 2000))
    print_row("build a batch of them", lambda: build_batch(thousand))
    for codec in list(Compression)[1:]:
        packed = memoryview(compress(codec, body))
        note = f"{len(body):,} -> {len(packed):,} bytes"
        print_row(f"{codec.label}: compress", partial(compress, codec, body), note)
        print_row(f"{codec.label}: decompress", partial(decompress, codec, packed))


def decoders(data: memoryview) -> dict[str, Callable[[], object]]:
    """Return a function per library that decodes the records of a batch; aiokafka's is in C."""
    from aiokafka.record.default_records import DefaultRecordBatch as Aiokafka
    from kafka.record.default_records import DefaultRecordBatch as KafkaPython

    header, copy = batch.read_header(data), bytes(data)
    return {
        "Odradek": lambda: list(read_records(data, header)),
        "kafka-python": lambda: list(KafkaPython(copy)),
        "aiokafka (C)": lambda: list(Aiokafka(copy)),
    }


def others() -> None:
    for name, work in decoders(memoryview(build_batch(records(1000, 100)))).items():
        print_row(f"decode 1,000 records: {name}", work)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--others", action="store_true", help="also kafka-python and aiokafka")
    arguments = parser.parse_args()
    print(f"{'':58} {'µs':>10}")
    headers()
    checksums()
    record_data()
    if arguments.others:
        others()


if __name__ == "__main__":
    main()
