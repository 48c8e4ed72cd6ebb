"""The fast path of Produce: from the bytes of the usual request to the bytes of its response, without message objects.

The usual request has one topic, one partition, one batch and no transaction. Producers without batching send nothing
else, and a profile showed more time in the objects of request and response than in the log. For any other request, and
after any error, the fast path returns None, and the request takes the general path (`produce_append.append`), which
finds a refused batch unchanged. A test compares these responses with those of the codec.

The topic name or id, the number of partitions and the partition index are the same bytes in the request and in its
response. Each version has a cache of partitions by these `partition_bytes`. The removal of any partition clears it.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from odradek_broker.apis.context import BrokerServices, ClientConnection
from odradek_broker.apis.produce_append import append_usual_batch
from odradek_broker.replication.partition import Partition
from odradek_wire.uuid import Uuid

FastPath = Callable[[BrokerServices, ClientConnection, memoryview, int], bytes | None]
Cache = dict[bytes, tuple[Partition, bytes]]
"""The partition and the first bytes of the response, up to the error code, by `partition_bytes`."""

FIRST_VERSION = 7
FIRST_FLEXIBLE = 9
FIRST_WITH_IDS = 13
CACHE_MAX = 10_000
"""The number of partitions in the cache of one version."""

# Transactional id, acks, timeout, number of topics; in versions that are not flexible ("plain") also the length of the
# topic name. In flexible versions a number of elements or a length is one more than its value.
PLAIN_HEAD = Struct(">hhiih")
PLAIN_TOPIC_AT = 12
FLEXIBLE_HEAD = Struct(">bhib")
INT32 = Struct(">i")
ONE_TOPIC = b"\0\0\0\1"
ONE_TOPIC_FLEXIBLE = b"\2"
NO_ERROR = b"\0\0"
NO_RECORD_ERRORS = b"\0\0\0\0\xff\xff"
NO_THROTTLE = b"\0\0\0\0"
# No record errors, no error message, no tags of partition and topic, no throttle time, no tags.
FLEXIBLE_END = b"\1\0\0\0" + NO_THROTTLE + b"\0"
NO_TAGS = b"\0\0\0"


def fast_path(version: int) -> FastPath | None:
    """Return the fast path of a version; None below version 7."""
    if version < FIRST_VERSION:
        return None
    return _plain(version) if version < FIRST_FLEXIBLE else _flexible(version)


def _plain(version: int) -> FastPath:
    cache: Cache = {}
    end = (NO_RECORD_ERRORS if version >= 8 else b"") + NO_THROTTLE

    def serve(broker: BrokerServices, connection: ClientConnection, frame: memoryview, position: int) -> bytes | None:
        if position + 14 > len(frame):  # the size of PLAIN_HEAD
            return None
        transactional_id_size, acks, _, topics, name_size = PLAIN_HEAD.unpack_from(frame, position)
        if transactional_id_size != -1 or topics != 1 or name_size <= 0 or not (acks == -1 or acks == 1):
            return None
        topic_at = position + PLAIN_TOPIC_AT
        records_size_at = topic_at + name_size + 10  # the length of the name, the number of partitions, the index
        records_at = records_size_at + 4
        if records_at > len(frame):
            return None
        partition_bytes = bytes(frame[topic_at:records_size_at])
        cached = cache.get(partition_bytes)
        if cached is None:
            count, index = int.from_bytes(partition_bytes[-8:-4], "big"), int.from_bytes(partition_bytes[-4:], "big")
            partition = _partition_by_name(broker, partition_bytes[2:-8], index) if count == 1 else None
            if partition is None:
                return None
            cached = _cache(broker, cache, partition_bytes, partition, ONE_TOPIC)
        records_size = INT32.unpack_from(frame, records_size_at)[0]
        if records_at + records_size != len(frame):
            return None
        partition, response_start = cached
        if partition.error:
            del cache[partition_bytes]
            return None
        appended_offsets = append_usual_batch(broker, connection, partition, frame[records_at:])
        return None if appended_offsets is None else response_start + appended_offsets + end

    return serve


def _flexible(version: int) -> FastPath:
    cache: Cache = {}
    by_id = version >= FIRST_WITH_IDS

    def serve(broker: BrokerServices, connection: ClientConnection, frame: memoryview, position: int) -> bytes | None:
        if position + 32 > len(frame):  # shorter than any batch
            return None
        transactional_id, acks, _, topics = FLEXIBLE_HEAD.unpack_from(frame, position)
        if transactional_id != 0 or topics != 2 or not (acks == -1 or acks == 1):
            return None
        topic_at = position + 8
        if by_id:
            records_size_at = topic_at + 21  # the id, the number of partitions, the index
        else:
            name_size = frame[topic_at] - 1
            if not 0 < name_size < 127:
                return None
            records_size_at = topic_at + name_size + 6  # the length of the name, the number of partitions, the index
        if records_size_at + 4 > len(frame):
            return None
        partition_bytes = bytes(frame[topic_at:records_size_at])
        cached = cache.get(partition_bytes)
        if cached is None:
            index = int.from_bytes(partition_bytes[-4:], "big")
            partition = None
            if partition_bytes[-5] == 2:
                partition = (
                    broker.partitions.get_by_id(Uuid(partition_bytes[:16]), index)
                    if by_id
                    else _partition_by_name(broker, partition_bytes[1:-5], index)
                )
            if partition is None:
                return None
            cached = _cache(broker, cache, partition_bytes, partition, ONE_TOPIC_FLEXIBLE)
        records_size = shift = 0
        records_at = records_size_at
        while True:
            byte = frame[records_at]
            records_at += 1
            records_size |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 28 or records_at >= len(frame):
                return None
        records_end = records_at + records_size - 1
        if records_end + 3 != len(frame) or frame[records_end:] != NO_TAGS:
            return None
        partition, response_start = cached
        if partition.error:
            del cache[partition_bytes]
            return None
        appended_offsets = append_usual_batch(broker, connection, partition, frame[records_at:records_end])
        return None if appended_offsets is None else response_start + appended_offsets + FLEXIBLE_END

    return serve


def _partition_by_name(broker: BrokerServices, name: bytes, index: int) -> Partition | None:
    try:
        return broker.partitions.get(str(name, "utf-8"), index)
    except UnicodeDecodeError:
        return None


def _cache(
    broker: BrokerServices, cache: Cache, partition_bytes: bytes, partition: Partition, one_topic: bytes
) -> tuple[Partition, bytes]:
    if len(cache) >= CACHE_MAX:
        cache.clear()
    broker.partitions.clear_at_removal(cache)
    cached = cache[partition_bytes] = (partition, one_topic + partition_bytes + NO_ERROR)
    return cached
