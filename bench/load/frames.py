"""Requests as finished bytes, and where in an answer its error stands: so that a client costs little beside a broker.

Produce v7 and Fetch v11, the versions of many clients in the field, with headers and bodies of fixed lengths; both
releases of Kafka that we compare with serve them.
"""

from __future__ import annotations

import struct

from bench.ready import framed
from odradek_wire.messages.fetch import FetchRequest
from odradek_wire.messages.produce import ProduceRequest
from odradek_wire.records.builder import BatchBuilder

PRODUCE_VERSION = 7
FETCH_VERSION = 11
_PLACE = 0x0123456789ABCDEF
_LENGTH_AND_CORRELATION = 8


class Calls:
    """A produce of one record to one partition, and the fetch of a record there."""

    def __init__(self, topic: str, partition: int, size: int) -> None:
        builder = BatchBuilder()
        builder.append(1_700_000_000_000, None, b"x" * size)
        data = ProduceRequest.PartitionProduceData(partition, bytes(builder.build()))
        produce = ProduceRequest.TopicProduceData(topic, partition_data=[data])
        self.produce = framed(ProduceRequest(None, -1, 30_000, [produce]), PRODUCE_VERSION)
        wanted = FetchRequest.FetchPartition(partition, -1, _PLACE, partition_max_bytes=1)
        fetch = FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchRequest.FetchTopic(topic, partitions=[wanted])])
        self._fetch = framed(fetch, FETCH_VERSION)
        self._place = self._fetch.index(struct.pack(">q", _PLACE))
        # Topics' count, name, partitions' count, partition index; a fetch's error, session and throttling come first.
        to_error = _LENGTH_AND_CORRELATION + 4 + 2 + len(topic) + 4 + 4
        self._produced = struct.Struct(">hq"), to_error
        self._fetched = struct.Struct(">hqqqi"), to_error + 10

    def fetch(self, offset: int) -> bytes:
        """The request for the record at an offset."""
        return b"".join((self._fetch[: self._place], struct.pack(">q", offset), self._fetch[self._place + 8 :]))

    def produced_at(self, answer: bytes) -> int:
        """The offset that a produced record got, or less than 0 if it was refused."""
        form, position = self._produced
        error, offset = form.unpack_from(answer, position)
        return -1 if error else int(offset)

    def fetched(self, answer: bytes) -> bool:
        """Did it bring records?"""
        form, position = self._fetched
        error, _, _, _, aborted = form.unpack_from(answer, position)
        start = position + form.size + max(aborted, 0) * 16 + 4
        return not error and int(struct.unpack_from(">i", answer, start)[0]) > 0
