"""Placement: balance, racks, the shift of followers, and errors."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_controller.placement import (
    PlacementError,
    Start,
    UsableBroker,
    check_assignment,
    place,
    place_from,
    rack_alternated,
)

seeds = st.integers(0, 1000)


def brokers_of(racks: list[str | None]) -> list[UsableBroker]:
    return [UsableBroker(index + 1, rack) for index, rack in enumerate(racks)]


@given(st.integers(1, 12), st.integers(1, 60), st.integers(1, 5), seeds)
def test_without_racks_leaders_and_replicas_are_spread_evenly(
    count: int, partitions: int, factor: int, seed: int
) -> None:
    factor = min(factor, count)
    placed = place(brokers_of([None] * count), range(partitions), factor, random.Random(seed).randrange)
    assert all(len(set(replicas)) == factor for replicas in placed)
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders[broker] for broker in range(1, count + 1)) <= 1
    whole = placed[: partitions // count * count]
    load = Counter(broker for replicas in whole for broker in replicas)
    assert set(load.values()) <= {len(whole) * factor // count}


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=12), st.integers(1, 40), st.integers(1, 5), seeds)
def test_a_partition_uses_every_rack_before_any_rack_twice(
    racks: list[str], partitions: int, factor: int, seed: int
) -> None:
    factor = min(factor, len(racks))
    placed = place(brokers_of(list(racks)), range(partitions), factor, random.Random(seed).randrange)
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert len({racks[broker - 1] for broker in replicas}) == min(factor, len(set(racks)))
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders[broker] for broker in range(1, len(racks) + 1)) <= 1


@given(st.integers(2, 6), st.integers(1, 30), st.integers(1, 30), seeds)
def test_new_partitions_are_placed_as_if_created_with_the_topic(count: int, first: int, more: int, seed: int) -> None:
    start = Start(seed % count, seed % 7)
    brokers = brokers_of([None] * count)
    grown = place_from(start, brokers, range(first), 2) + place_from(start, brokers, range(first, first + more), 2)
    assert grown == place_from(start, brokers, range(first + more), 2)


def test_followers_shift_after_each_round_of_leaders() -> None:
    assert place_from(Start(0, 0), brokers_of([None] * 3), range(7), 2) == [
        [1, 2],
        [2, 3],
        [3, 1],
        [1, 3],
        [2, 1],
        [3, 2],
        [1, 2],
    ]


def test_brokers_are_taken_from_the_racks_in_turn() -> None:
    assert rack_alternated(brokers_of(["b", "a", "b", "a", "c", "a"])) == [2, 1, 5, 4, 3, 6]


def test_fenced_brokers_come_last_and_never_lead() -> None:
    brokers = [UsableBroker(1), UsableBroker(2, fenced=True), UsableBroker(3)]
    placed = place(brokers, range(20), 3, random.Random(1).randrange)
    assert {replicas[2] for replicas in placed} == {2}
    assert {tuple(sorted(replicas[:2])) for replicas in placed} == {(1, 3)}


def test_an_impossible_placement_is_refused_with_kafkas_message() -> None:
    def refusal(brokers: list[UsableBroker], factor: int) -> str:
        with pytest.raises(PlacementError) as caught:
            place(brokers, range(1), factor, random.Random(1).randrange)
        return str(caught.value)

    one = [UsableBroker(1)]
    assert refusal(one, 2) == (
        "The target replication factor of 2 cannot be reached because only 1 broker(s) are registered or some brokers "
        "have all their log directories cordoned."
    )
    assert refusal(one, 0) == "Invalid replication factor 0: the replication factor must be positive."
    assert refusal([UsableBroker(1, fenced=True)], 1).startswith("All brokers are currently fenced")


def test_a_manual_assignment_must_have_as_many_replicas_as_the_others() -> None:
    check_assignment([2, 1], {1: None, 2: None}, 2)
    with pytest.raises(PlacementError, match=r"includes a partition with 1 replica\(s\), but this is not consistent"):
        check_assignment([1], {1: None, 2: None}, 2)
