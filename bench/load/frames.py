"""Requests as prepared bytes, and the position of the error in a response, so that the client needs little CPU time.

Produce v7 and Fetch v11, which many clients in use send, have headers and bodies of fixed lengths. Both releases of
Kafka in the comparison support them.
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
    """The Produce request of one record to one partition, and the Fetch request of a record there."""

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
        # The topic count, topic name, partition count and partition index precede the partition's error; in Fetch, the
        # throttle time, error and session id come before these.
        to_error = _LENGTH_AND_CORRELATION + 4 + 2 + len(topic) + 4 + 4
        self._produced = struct.Struct(">hq"), to_error
        self._fetched = struct.Struct(">hqqqi"), to_error + 10

    def fetch(self, offset: int) -> bytes:
        """Return the Fetch request for the record at an offset."""
        return b"".join((self._fetch[: self._place], struct.pack(">q", offset), self._fetch[self._place + 8 :]))

    def produced_at(self, answer: bytes) -> int:
        """Return the offset of the produced record, or -1 after an error."""
        form, position = self._produced
        error, offset = form.unpack_from(answer, position)
        return -1 if error else int(offset)

    def fetched(self, answer: bytes) -> bool:
        """Return whether the Fetch response has records and no error."""
        form, position = self._fetched
        error, _, _, _, aborted = form.unpack_from(answer, position)
        start = position + form.size + max(aborted, 0) * 16 + 4
        return not error and int(struct.unpack_from(">i", answer, start)[0]) > 0
