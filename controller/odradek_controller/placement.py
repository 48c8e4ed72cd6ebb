"""Replica placement: the brokers of the replicas of new partitions.

Pure functions. Leaders are placed round robin from a start index. After each round the followers move one broker away
from their leader, so that all other brokers share the load of a broker that fails. With racks, the order of the brokers
alternates between racks, and the replicas of a partition use every rack before they use one twice. Fenced brokers come
last and never lead. Sources: AdminUtils, StripedReplicaPlacer, and the responses of a running Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import NamedTuple


class UsableBroker(NamedTuple):
    """A broker that can get replicas."""

    id: int
    rack: str | None = None
    fenced: bool = False


class PlacementError(ValueError):
    """An assignment or replication factor that the brokers do not allow; the text is Kafka's."""


class Start(NamedTuple):
    """The random numbers of one placement: the index of the first leader, and the first shift of the followers."""

    first: int
    shift: int


def random_start(brokers: int, randbelow: Callable[[int], int]) -> Start:
    """Draw the start of a placement on this number of brokers."""
    return Start(randbelow(brokers), randbelow(brokers)) if brokers > 1 else Start(0, 0)


def place(
    brokers: Sequence[UsableBroker], partitions: range, replication_factor: int, randbelow: Callable[[int], int]
) -> list[list[int]]:
    """Return the replicas of each partition of the range, the preferred leader first. Raises PlacementError."""
    if replication_factor <= 0:
        raise PlacementError(
            f"Invalid replication factor {replication_factor}: the replication factor must be positive."
        )
    if replication_factor > len(brokers):
        raise PlacementError(
            f"The target replication factor of {replication_factor} cannot be reached because only {len(brokers)} "
            "broker(s) are registered or some brokers have all their log directories cordoned."
        )
    live = sorted(broker for broker in brokers if not broker.fenced)
    if not live:
        raise PlacementError("All brokers are currently fenced, or have all their log directories cordoned.")
    fenced = sorted(broker.id for broker in brokers if broker.fenced)
    start = random_start(len(live), randbelow)
    factor = min(replication_factor, len(live))
    placed = place_from(start, live, partitions, factor)
    if factor == replication_factor:
        return placed
    missing = replication_factor - factor
    first = random_start(len(fenced), randbelow).first
    return [
        replicas + [fenced[(first + partition + extra) % len(fenced)] for extra in range(missing)]
        for partition, replicas in zip(partitions, placed, strict=True)
    ]


def place_from(
    start: Start, brokers: Sequence[UsableBroker], partitions: range, replication_factor: int
) -> list[list[int]]:
    """Place replicas on live brokers, of which there are at least `replication_factor`."""
    racks = {broker.id: broker.rack for broker in brokers}
    if len(set(racks.values())) <= 1:
        ids = [broker.id for broker in brokers]
        return [_striped(start, ids, partition, replication_factor) for partition in partitions]
    alternated = rack_alternated(brokers)
    return [_rack_aware(start, alternated, racks, partition, replication_factor) for partition in partitions]


def rack_alternated(brokers: Sequence[UsableBroker]) -> list[int]:
    """Return the brokers with one of each rack in turn; brokers without a rack count as one rack."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(brokers):
        by_rack.setdefault(broker.rack or "", []).append(broker.id)
    columns = [by_rack[rack] for rack in sorted(by_rack)]
    longest = max(len(column) for column in columns)
    return [column[row] for row in range(longest) for column in columns if row < len(column)]


def _striped(start: Start, brokers: Sequence[int], partition: int, replication_factor: int) -> list[int]:
    count = len(brokers)
    shift = start.shift + partition // count
    first = (start.first + partition) % count
    return [brokers[first]] + [brokers[_follower_index(first, shift, n, count)] for n in range(replication_factor - 1)]


def _follower_index(first: int, shift: int, n: int, count: int) -> int:
    """Return the index of follower `n` of a leader at index `first`."""
    return (first + 1 + (shift + n) % (count - 1)) % count


def _rack_aware(
    start: Start,
    brokers: Sequence[int],
    racks: Mapping[int, str | None],
    partition: int,
    replication_factor: int,
) -> list[int]:
    count, rack_count = len(brokers), len(set(racks.values()))
    shift = (start.shift + partition // count) * rack_count
    first = (start.first + partition) % count
    replicas = [brokers[first]]
    used_racks = {racks[brokers[first]]}
    for n in range(2 * count * replication_factor):
        if len(replicas) == replication_factor:
            break
        broker = brokers[_follower_index(first, shift, n, count)]
        if broker not in replicas and (racks[broker] not in used_racks or len(used_racks) == rack_count):
            replicas.append(broker)
            used_racks.add(racks[broker])
    assert len(replicas) == replication_factor, "every broker is visited, so there are enough"
    return replicas


def check_assignment(replicas: Sequence[int], registered: Container[int], expected: int | None) -> None:
    """Raise PlacementError unless a manual assignment has `expected` replicas, all different and registered."""
    if not replicas:
        raise PlacementError("The manual partition assignment includes an empty replica list.")
    for broker in sorted(replicas):
        if broker not in registered:
            raise PlacementError(
                f"The manual partition assignment includes broker {broker}, but no such broker is registered."
            )
        if replicas.count(broker) > 1:
            raise PlacementError(f"The manual partition assignment includes the broker {broker} more than once.")
    if expected is not None and len(replicas) != expected:
        raise PlacementError(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not "
            f"consistent with previous partitions, which have {expected} replica(s)."
        )
