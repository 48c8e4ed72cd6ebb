"""Replication quotas: the rate over Kafka's windows, and the throttled replicas."""

from __future__ import annotations

from odradek_broker.replication.core.replication_quota import UNLIMITED, Rate, ReplicationQuota


def test_the_rate_is_over_all_windows_and_at_least_one() -> None:
    rate = Rate(11, 1000)
    rate.record(1000, 0)
    assert rate.per_second(1) == 1000
    assert rate.per_second(4000) == 250
    rate.record(1000, 4000)
    assert rate.per_second(4000) == 500
    assert rate.per_second(11_000) == 1000 / 7
    assert rate.per_second(20_000) == 0


def test_a_quota_holds_for_the_throttled_replicas() -> None:
    throttle = ReplicationQuota(11, 1000)
    assert throttle.bytes_per_second == UNLIMITED
    throttle.configure("t", "0:1,1:2, 2:1", broker_id=1)
    assert [throttle.is_throttled("t", index) for index in range(3)] == [True, False, True]
    throttle.configure("t", "*", broker_id=1)
    assert throttle.is_throttled("t", 7)
    assert not throttle.is_throttled("u", 7)
    throttle.configure("t", "", broker_id=1)
    assert not throttle.is_throttled("t", 7)


def test_a_quota_is_exceeded_until_enough_time_has_passed() -> None:
    throttle = ReplicationQuota(11, 1000)
    throttle.bytes_per_second = 500
    throttle.record(1500, 0)
    assert throttle.is_exceeded(2_999)
    assert not throttle.is_exceeded(3_000)
