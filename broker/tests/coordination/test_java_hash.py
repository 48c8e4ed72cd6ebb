"""Hashes of the JVM that clients can observe."""

from __future__ import annotations

import pytest

from odradek_broker.coordination.core.java_hash import hash_map_order, partition_for, string_hash


# java: "...".hashCode(), and Math.abs of it modulo 50 as kafka-consumer-groups would find the partition.
@pytest.mark.parametrize(
    ("text", "value", "partition"),
    [
        ("", 0, 0),
        ("g1", 3242, 42),
        ("my-group", -1906497762, 12),
        ("polygenelubricants", -(1 << 31), 0),
        ("grüße", 98768023, 23),
    ],
)
def test_a_group_has_the_partition_that_kafka_computes(text: str, value: int, partition: int) -> None:
    assert (string_hash(text), partition_for(text, 50)) == (value, partition)


def test_protocols_are_ordered_as_in_a_java_hash_map() -> None:
    names = ["roundrobin", "sticky", "cooperative-sticky", "range"]
    assert hash_map_order(names) == ["sticky", "range", "roundrobin", "cooperative-sticky"]
