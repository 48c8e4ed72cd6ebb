"""The fast path of Produce: the usual request from its bytes to the bytes of the response, without message objects.

The usual request has one topic, one partition, one batch and no transaction. Producers without batching send nothing
else, and a profile showed more time in the objects of request and response than in the log. For any other request, and
after any error, the fast path returns None, and the request takes the general path through `produce_append.append`: a
refused batch is unchanged, so that the general path refuses it again. A test compares these bytes with the codec's.

For each topic and partition of a version, the bytes from the topic's name to the partition's index are cached with the
partition, until a partition of the broker is removed: the response begins with these bytes of the request.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from odradek_broker.apis.context import BrokerServices, ClientConnection
from odradek_broker.apis.produce_append import append_usual_batch
from odradek_broker.replication.partition import Partition
from odradek_wire.uuid import Uuid

FastPath = Callable[[BrokerServices, ClientConnection, memoryview, int], bytes | None]

FIRST_VERSION = 7
FIRST_FLEXIBLE = 9
FIRST_WITH_IDS = 13
CACHED_MAX = 10_000

# Transactional id, acks, timeout, count of topics; in versions that are not flexible ("plain") the length of the name
# as well.
PLAIN_HEAD = Struct(">hhiih")
PLAIN_KEY_AT = 12
FLEXIBLE_HEAD = Struct(">bhib")
INT32 = Struct(">i")
ONE_TOPIC = b"\0\0\0\1"
ONE_TOPIC_FLEXIBLE = b"\2"
NO_ERROR = b"\0\0"
NO_RECORD_ERRORS = b"\0\0\0\0\xff\xff"
NO_THROTTLE = b"\0\0\0\0"
# No record errors, no message, no tags of partition and topic, no throttle, no tags.
FLEXIBLE_END = b"\1\0\0\0" + NO_THROTTLE + b"\0"
NO_TAGS = b"\0\0\0"


def fast_path(version: int) -> FastPath | None:
    """Return the fast path of a version; None for old versions, which have none."""
    if version < FIRST_VERSION:
        return None
    return _plain(version) if version < FIRST_FLEXIBLE else _flexible(version)


def _plain(version: int) -> FastPath:
    known: dict[bytes, tuple[Partition, bytes]] = {}
    end = (NO_RECORD_ERRORS if version >= 8 else b"") + NO_THROTTLE

    def serve(broker: BrokerServices, connection: ClientConnection, frame: memoryview, position: int) -> bytes | None:
        if position + 14 > len(frame):
            return None
        transactional_id_size, acks, _, topics, name_size = PLAIN_HEAD.unpack_from(frame, position)
        if transactional_id_size != -1 or topics != 1 or name_size <= 0 or not (acks == -1 or acks == 1):
            return None
        start = position + PLAIN_KEY_AT
        size_at = start + name_size + 10
        begin = size_at + 4
        if begin > len(frame):
            return None
        key = bytes(frame[start:size_at])
        found = known.get(key)
        if found is None:
            count, index = int.from_bytes(key[-8:-4], "big"), int.from_bytes(key[-4:], "big")
            partition = _partition_by_name(broker, key[2:-8], index) if count == 1 else None
            if partition is None:
                return None
            found = _cache(broker, known, key, partition, ONE_TOPIC)
        size = INT32.unpack_from(frame, size_at)[0]
        if begin + size != len(frame):
            return None
        partition, beginning = found
        if partition.error:
            del known[key]
            return None
        placed = append_usual_batch(broker, connection, partition, frame[begin:])
        return None if placed is None else beginning + placed + end

    return serve


def _flexible(version: int) -> FastPath:
    known: dict[bytes, tuple[Partition, bytes]] = {}
    by_id = version >= FIRST_WITH_IDS

    def serve(broker: BrokerServices, connection: ClientConnection, frame: memoryview, position: int) -> bytes | None:
        if position + 32 > len(frame):
            return None
        transactional_id, acks, _, topics = FLEXIBLE_HEAD.unpack_from(frame, position)
        if transactional_id != 0 or topics != 2 or not (acks == -1 or acks == 1):
            return None
        start = position + 8
        if by_id:
            size_at = start + 21
        else:
            name_size = frame[start] - 1
            if not 0 < name_size < 127:
                return None
            size_at = start + name_size + 6
        if size_at + 4 > len(frame):
            return None
        key = bytes(frame[start:size_at])
        found = known.get(key)
        if found is None:
            index = int.from_bytes(key[-4:], "big")
            partition = None
            if key[-5] == 2:
                partition = (
                    broker.partitions.get_by_id(Uuid(key[:16]), index)
                    if by_id
                    else _partition_by_name(broker, key[1:-5], index)
                )
            if partition is None:
                return None
            found = _cache(broker, known, key, partition, ONE_TOPIC_FLEXIBLE)
        size = shift = 0
        at = size_at
        while True:
            byte = frame[at]
            at += 1
            size |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 28 or at >= len(frame):
                return None
        stop = at + size - 1
        if stop + 3 != len(frame) or frame[stop:] != NO_TAGS:
            return None
        partition, beginning = found
        if partition.error:
            del known[key]
            return None
        placed = append_usual_batch(broker, connection, partition, frame[at:stop])
        return None if placed is None else beginning + placed + FLEXIBLE_END

    return serve


def _partition_by_name(broker: BrokerServices, name: bytes, index: int) -> Partition | None:
    try:
        return broker.partitions.get(str(name, "utf-8"), index)
    except UnicodeDecodeError:
        return None


def _cache(
    broker: BrokerServices, known: dict[bytes, tuple[Partition, bytes]], key: bytes, partition: Partition, begin: bytes
) -> tuple[Partition, bytes]:
    if len(known) >= CACHED_MAX:
        known.clear()
    broker.partitions.clear_at_removal(known)
    found = known[key] = (partition, begin + key + NO_ERROR)
    return found
