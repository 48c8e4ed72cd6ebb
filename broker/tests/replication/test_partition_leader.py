"""The leader core: the high watermark is the smallest log end of the in-sync replicas and never retreats."""

from __future__ import annotations

from odradek_broker.replication.core.partition_leader import HighWatermarkAdvanced, PartitionLeader, ProposeIsr


def leader(replicas: tuple[int, ...] = (1, 2, 3), isr: tuple[int, ...] = (1, 2, 3), end: int = 10) -> PartitionLeader:
    return PartitionLeader(
        1,
        leader_epoch=5,
        partition_epoch=0,
        replicas=replicas,
        isr=frozenset(isr),
        log_end_offset=end,
        high_watermark=0,
        now_ms=0,
    )


def test_the_high_watermark_of_a_sole_replica_is_its_log_end() -> None:
    alone = leader((1,), (1,), end=10)
    assert (alone.is_sole_replica, alone.high_watermark) == (True, 10)
    assert alone.record_log_end_offset(12) == [HighWatermarkAdvanced(12)]


def test_the_high_watermark_waits_for_the_slowest_in_sync_replica() -> None:
    core = leader()
    assert core.follower_fetched(2, 10, 0, now_ms=1) == []
    assert core.follower_fetched(3, 7, 0, now_ms=1) == [HighWatermarkAdvanced(7)]
    assert core.follower_fetched(3, 10, 0, now_ms=2) == [HighWatermarkAdvanced(10)]


def test_the_high_watermark_does_not_retreat_when_a_follower_goes_back() -> None:
    core = leader((1, 2), (1, 2))
    core.follower_fetched(2, 10, 0, now_ms=1)
    assert core.follower_fetched(2, 4, 0, now_ms=2) == []
    assert core.high_watermark == 10


def test_a_follower_that_caught_up_is_proposed_for_the_isr_once() -> None:
    core = leader((1, 2), (1,))
    assert core.follower_fetched(2, 9, 0, now_ms=1) == []
    assert core.follower_fetched(2, 10, 0, now_ms=2) == [ProposeIsr(frozenset({1, 2}))]
    assert core.follower_fetched(2, 10, 0, now_ms=3) == []


def test_the_high_watermark_waits_for_proposed_isr_members() -> None:
    core = leader((1, 2), (1,))
    core.follower_fetched(2, 10, 0, now_ms=1)
    assert core.record_log_end_offset(12) == []
    assert core.apply_isr(frozenset({1}), partition_epoch=1) == [HighWatermarkAdvanced(12)]


def test_the_high_watermark_stops_below_min_insync_replicas() -> None:
    core = leader((1, 2, 3), (1,))
    core.set_min_isr(2)
    assert (core.under_min_isr, core.record_log_end_offset(12)) == (True, [])
    assert core.set_min_isr(1) == [HighWatermarkAdvanced(12)]
    alone = leader((1,), (1,))
    alone.set_min_isr(3)
    assert not alone.under_min_isr, "no more can be asked for than there are"


def test_the_high_watermark_advances_without_a_slow_follower() -> None:
    core = leader((1, 2), (1, 2))
    core.follower_fetched(2, 10, 0, now_ms=0)
    core.record_log_end_offset(20)
    assert core.maybe_shrink_isr(now_ms=30_000, lag_time_max_ms=30_000) == []
    assert core.maybe_shrink_isr(now_ms=30_001, lag_time_max_ms=30_000) == [ProposeIsr(frozenset({1}))]
    assert core.apply_isr(frozenset({1}), partition_epoch=1) == [HighWatermarkAdvanced(20)]


def test_a_follower_at_the_end_stays_in_sync_without_produces() -> None:
    core = leader((1, 2), (1, 2))
    core.follower_fetched(2, 10, 0, now_ms=0)
    assert core.maybe_shrink_isr(now_ms=1_000_000, lag_time_max_ms=30_000) == []


def test_a_follower_at_the_end_of_its_last_fetch_is_caught_up() -> None:
    core = leader((1, 2), (1, 2))
    core.follower_fetched(2, 10, 0, now_ms=0)
    for second in range(1, 100):
        core.record_log_end_offset(10 + second)
        core.follower_fetched(2, 9 + second, 0, now_ms=second * 1000)
    assert core.maybe_shrink_isr(now_ms=99_000, lag_time_max_ms=30_000) == []


def test_an_old_decision_about_the_isr_is_ignored() -> None:
    core = leader((1, 2), (1, 2))
    core.apply_isr(frozenset({1}), partition_epoch=4)
    assert core.apply_isr(frozenset({1, 2}), partition_epoch=3) == []
    assert core.isr == frozenset({1})


def test_a_refused_isr_may_be_proposed_again() -> None:
    core = leader((1, 2), (1,))
    core.follower_fetched(2, 10, 0, now_ms=1)
    core.drop_proposed_isr()
    assert core.follower_fetched(2, 10, 0, now_ms=2) == [ProposeIsr(frozenset({1, 2}))]


def test_a_fetch_of_a_broker_without_a_replica_changes_nothing() -> None:
    assert leader().follower_fetched(9, 10, 0, now_ms=1) == []


def test_the_low_watermark_is_the_smallest_start_of_all_live_replicas() -> None:
    core = leader((1, 2), (1, 2))
    core.follower_fetched(2, 10, 3, now_ms=1)
    assert core.low_watermark(5, lambda broker: True) == 3
    assert core.low_watermark(5, lambda broker: broker != 2) == 5


def test_the_high_watermark_waits_for_a_joining_follower() -> None:
    """Otherwise a follower could never join under constant Produces."""
    core = leader((1, 2), (1,), end=10)
    assert core.follower_fetched(2, 4, 0, now_ms=1) == []
    assert core.record_log_end_offset(12) == [HighWatermarkAdvanced(12)], "it is far behind"
    core.follower_fetched(2, 10, 0, now_ms=2)
    assert core.record_log_end_offset(14) == []
    assert core.follower_fetched(2, 12, 0, now_ms=3) == [ProposeIsr(frozenset({1, 2}))]


def test_the_high_watermark_waits_no_longer_than_the_lag_time() -> None:
    core = leader((1, 2), (1,), end=10)
    core.follower_fetched(2, 4, 0, now_ms=0)
    core.record_log_end_offset(12)
    core.follower_fetched(2, 10, 0, now_ms=1)
    core.record_log_end_offset(14)
    assert core.maybe_shrink_isr(now_ms=30_000, lag_time_max_ms=30_000) == []
    assert core.maybe_shrink_isr(now_ms=30_001, lag_time_max_ms=30_000) == [HighWatermarkAdvanced(14)]


def test_the_high_watermark_waits_for_no_fenced_broker() -> None:
    core = leader((1, 2), (1,), end=10)
    core.follower_fetched(2, 4, 0, now_ms=0)
    core.record_log_end_offset(12)
    core.follower_fetched(2, 10, 0, now_ms=1)
    core.record_log_end_offset(14)
    assert core.stop_waiting_for(2) == [HighWatermarkAdvanced(14)]


class LastFetch:
    used_ms = 0


def test_idle_fetches_of_a_follower_keep_it_caught_up() -> None:
    core = leader((1, 2), (1, 2), end=10)
    core.follower_fetched(2, 10, 0, now_ms=0)
    session = LastFetch()
    core.followers[2].become_idle(session)
    session.used_ms = 60_000
    core.record_log_end_offset(12)
    assert core.maybe_shrink_isr(now_ms=90_000, lag_time_max_ms=30_000) == []
    core.followers[2].become_active()
    session.used_ms = 1_000_000
    assert core.maybe_shrink_isr(now_ms=90_001, lag_time_max_ms=30_000) == [ProposeIsr(frozenset({1}))]


def test_a_partition_stays_idle_when_an_older_session_ends() -> None:
    core = leader((1, 2), (1, 2), end=10)
    core.follower_fetched(2, 10, 0, now_ms=0)
    older, session = LastFetch(), LastFetch()
    core.followers[2].become_idle(older)
    core.followers[2].become_idle(session)
    core.followers[2].end_idle(older)
    session.used_ms = 40_000
    core.record_log_end_offset(11)
    assert core.maybe_shrink_isr(now_ms=40_001, lag_time_max_ms=30_000) == []


def test_the_high_watermark_waits_for_no_refused_isr_member() -> None:
    core = leader((1, 2, 3), (1, 2), end=10)
    core.follower_fetched(3, 10, 0, now_ms=1)
    core.follower_fetched(2, 10, 0, now_ms=1)
    core.record_log_end_offset(12)
    assert core.follower_fetched(2, 12, 0, now_ms=2) == []
    core.stop_waiting_for(3)
    assert core.drop_proposed_isr() == [HighWatermarkAdvanced(12)]
