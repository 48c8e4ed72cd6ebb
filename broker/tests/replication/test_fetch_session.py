"""Fetch sessions (KIP-227): epochs, the partitions of incremental responses, and eviction."""

from __future__ import annotations

from itertools import count

from odradek_broker.replication.core.fetch_session import FetchedPartition, FetchSession, FetchSessions
from odradek_wire.errors import ErrorCode


def wanted(topic: str = "t", index: int = 0, offset: int = 0) -> FetchedPartition:
    return FetchedPartition(topic, index, offset, 1000, -1, -1, -1)


def sessions(slots: int = 2) -> FetchSessions:
    ids = count(1)
    return FetchSessions(slots, eviction_ms=1000, random_id=lambda: next(ids))


def create(cache: FetchSessions, size: int = 1, now_ms: int = 0, privileged: bool = False) -> FetchSession | None:
    return cache.create([wanted(index=index) for index in range(size)], size, False, privileged, now_ms)


def test_a_session_advances_its_epoch_with_each_request() -> None:
    cache = sessions()
    session = create(cache)
    assert session is not None
    assert session.epoch == 1
    assert cache.resume(session.id, 1, False, 0) is session
    assert cache.resume(session.id, 1, False, 0) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert cache.resume(session.id, 2, False, 0) is session


def test_the_epoch_wraps_to_one() -> None:
    cache = sessions()
    session = create(cache)
    assert session is not None
    session.epoch = 0x7FFF_FFFF
    cache.resume(session.id, 0x7FFF_FFFF, False, 0)
    assert session.epoch == 1


def test_an_unknown_session_and_a_change_between_names_and_ids_are_errors() -> None:
    cache = sessions()
    session = create(cache)
    assert session is not None
    assert cache.resume(99, 1, False, 0) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.resume(session.id, 1, True, 0) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_partitions_are_added_changed_and_forgotten() -> None:
    session = FetchSession(1, False, False, 0)
    session.update([wanted(index=0), wanted(index=1)], [])
    session.update([wanted(index=1, offset=5), wanted(index=2)], [("t", 0)])
    assert {key: data.fetch_offset for key, data in session.partitions.items()} == {("t", 1): 5, ("t", 2): 0}


def test_a_response_has_partitions_with_new_offsets_errors_or_records() -> None:
    partition = wanted()
    assert partition.record_response(10, 0, 0, False)
    assert not partition.record_response(10, 0, 0, False)
    assert partition.record_response(11, 0, 0, False)
    assert partition.record_response(11, 1, 0, False)
    assert partition.record_response(11, 1, 0, True)
    assert not partition.record_response(11, 1, 0, False)


def test_the_response_after_an_error_has_the_partition_again() -> None:
    partition = wanted()
    partition.record_response(10, 0, 0, False)
    assert partition.record_response(-1, -1, ErrorCode.KAFKA_STORAGE_ERROR, False)
    assert partition.record_response(10, 0, 0, False)


def test_a_partition_whose_records_were_sent_is_read_last() -> None:
    session = FetchSession(1, False, False, 0)
    session.update([wanted(index=0), wanted(index=1)], [])
    session.move_to_end(session.partitions["t", 0])
    assert [index for _, index in session.partitions] == [1, 0]


def test_a_full_cache_of_used_sessions_takes_no_new_session() -> None:
    cache = sessions(slots=2)
    create(cache), create(cache)
    assert create(cache, now_ms=1000) is None
    assert len(cache) == 2


def test_an_unused_session_is_evicted() -> None:
    cache = sessions(slots=1)
    create(cache)
    assert create(cache, now_ms=1001) is not None
    assert len(cache) == 1


def test_a_larger_session_evicts_the_smallest_old_one() -> None:
    cache = sessions(slots=2)
    small, large = create(cache, size=1), create(cache, size=5)
    assert small is not None
    assert large is not None
    for session in (small, large):
        cache.resume(session.id, 1, False, now_ms=900)
    assert create(cache, size=3, now_ms=1100) is not None
    assert cache.resume(small.id, 2, False, 1100) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.resume(large.id, 2, False, 1100) is large


def test_a_smaller_session_does_not_evict_a_larger_one() -> None:
    cache = sessions(slots=1)
    large = create(cache, size=5)
    assert large is not None
    cache.resume(large.id, 1, False, now_ms=900)
    assert create(cache, size=3, now_ms=1100) is None


def test_a_follower_evicts_a_young_session_of_a_consumer() -> None:
    cache = sessions(slots=1)
    create(cache, size=5)
    assert create(cache, size=1, now_ms=1, privileged=True) is not None
