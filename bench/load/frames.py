"""Requests as prepared bytes, and where a response has its error, so that the client needs little processor time.

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
_OFFSET_PLACEHOLDER = 0x0123456789ABCDEF
_LENGTH_AND_CORRELATION = 8


class PreparedRequests:
    """The Produce request of one record to one partition, and the Fetch request of a record there."""

    def __init__(self, topic: str, partition: int, size: int) -> None:
        builder = BatchBuilder()
        builder.append(1_700_000_000_000, None, b"x" * size)
        data = ProduceRequest.PartitionProduceData(partition, bytes(builder.build()))
        produce = ProduceRequest.TopicProduceData(topic, partition_data=[data])
        self.produce = framed(ProduceRequest(None, -1, 30_000, [produce]), PRODUCE_VERSION)
        wanted = FetchRequest.FetchPartition(partition, -1, _OFFSET_PLACEHOLDER, partition_max_bytes=1)
        fetch = FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchRequest.FetchTopic(topic, partitions=[wanted])])
        self._fetch = framed(fetch, FETCH_VERSION)
        self._offset_position = self._fetch.index(struct.pack(">q", _OFFSET_PLACEHOLDER))
        # The topic count, topic name, partition count and partition index precede the partition's error; in Fetch, the
        # throttle time, error and session id come before these.
        to_error = _LENGTH_AND_CORRELATION + 4 + 2 + len(topic) + 4 + 4
        self._produce_response = struct.Struct(">hq"), to_error
        self._fetch_response = struct.Struct(">hqqqi"), to_error + 10

    def fetch(self, offset: int) -> bytes:
        """Return the Fetch request for the record at an offset."""
        position = self._offset_position
        return b"".join((self._fetch[:position], struct.pack(">q", offset), self._fetch[position + 8 :]))

    def produced_offset(self, response: bytes) -> int:
        """Return the offset of the produced record, or -1 after an error."""
        layout, position = self._produce_response
        error, offset = layout.unpack_from(response, position)
        return -1 if error else int(offset)

    def has_records(self, response: bytes) -> bool:
        """Return whether the Fetch response has records and no error."""
        layout, position = self._fetch_response
        error, _, _, _, aborted = layout.unpack_from(response, position)
        start = position + layout.size + max(aborted, 0) * 16 + 4
        return not error and int(struct.unpack_from(">i", response, start)[0]) > 0
