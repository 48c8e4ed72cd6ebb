"""Leader election: the leader of a partition, and the record of each change to a partition.

Pure functions over a partition and the active brokers. The leader is the first assigned replica that is active and in
the ISR. With eligible leader replicas (KIP-966), an empty ISR falls back to those, and then to the last known leader.
Unclean election takes the first active replica and marks the partition as recovering. Sources: PartitionChangeBuilder,
KIP-966, KIP-704.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from odradek_wire.messages.partition_change_record import PartitionChangeRecord
from odradek_wire.uuid import Uuid

from .image import LOST_DIRECTORY, NO_LEADER, RECOVERING, REPLICA_LISTS, PartitionRegistration
from .reassignment import complete_if_in_sync

IsActive = Callable[[int], bool]


class Election(Enum):
    """The kind of an election."""

    PREFERRED = "preferred"
    """Elect the first assigned replica if it can lead; otherwise keep the leader."""
    ONLINE = "online"
    """Keep the leader if it can lead; otherwise elect the first replica that can."""
    UNCLEAN = "unclean"
    """As ONLINE, but elect the first active replica, which may lose records, if no other can lead."""


def elect(partition: PartitionRegistration, active: IsActive, election: Election) -> tuple[int, bool]:
    """Return the leader (NO_LEADER if no replica can lead) and whether the choice may lose records."""
    without_loss = partition.isr or partition.eligible_leader_replicas

    def has_log(broker: int) -> bool:
        return active(broker) and partition.directory(broker) != LOST_DIRECTORY

    def can_lead(broker: int) -> bool:
        return broker in without_loss and has_log(broker)

    preferred = partition.replicas[0] if partition.replicas else NO_LEADER
    if election is Election.PREFERRED and preferred != NO_LEADER and can_lead(preferred):
        return preferred, False
    if partition.leader != NO_LEADER and can_lead(partition.leader):
        return partition.leader, False
    for broker in partition.replicas:
        if can_lead(broker):
            return broker, False
    if not without_loss and len(partition.last_known_elr) == 1 and has_log(partition.last_known_elr[0]):
        # No replica is known to have all records: the last known leader most probably has (KIP-966, balanced recovery).
        return partition.last_known_elr[0], True
    if election is Election.UNCLEAN:
        for broker in partition.replicas:
            if has_log(broker):
                return broker, True
    return NO_LEADER, False


def partition_change_record(
    topic_id: Uuid,
    index: int,
    partition: PartitionRegistration,
    wanted: PartitionRegistration | None = None,
    *,
    active: IsActive,
    election: Election = Election.ONLINE,
    elr_enabled: bool = False,
    min_isr: int = 1,
    bump_leader_epoch: bool = False,
    uncleanly_stopped_broker: int | None = None,
) -> PartitionChangeRecord | None:
    """Return the record that changes the partition to `wanted` and elects its leader; None if nothing changes.

    `wanted` may differ from the partition in replicas, directories, ISR, reassignment and recovery state. The record
    also completes a reassignment whose replicas are in sync. With `elr_enabled`, a replica that leaves the ISR
    becomes an eligible leader while the ISR is smaller than `min_isr`, unless it is `uncleanly_stopped_broker`. With
    `bump_leader_epoch`, the leader epoch also increases without a new leader, when a replica leaves the ISR or the
    assigned, adding or removing replicas change.
    """
    target = complete_if_in_sync(wanted or partition)
    if elr_enabled:
        target = _with_eligible_leaders(partition, target, min_isr, uncleanly_stopped_broker)
    leader, unclean = elect(target, active, election)
    if unclean:
        target = target._replace(isr=(leader,), eligible_leader_replicas=(), leader_recovery_state=RECOVERING)
    elif leader != NO_LEADER and leader not in target.isr:
        # An eligible leader has all committed records: it becomes the only ISR member and needs no recovery.
        rest = tuple(replica for replica in target.eligible_leader_replicas if replica != leader)
        target = target._replace(isr=(leader,), eligible_leader_replicas=rest)
    if elr_enabled or target.last_known_elr:
        target = target._replace(last_known_elr=_last_known_elr(partition, target, leader))
    record = PartitionChangeRecord(partition_id=index, topic_id=topic_id)
    dropped = not set(partition.replicas) <= set(target.replicas)
    if leader != partition.leader or dropped or (bump_leader_epoch and _needs_new_epoch(partition, target)):
        # A record with a leader, even the same one, increments the leader epoch. That fences a leader that still counts
        # a removed replica.
        record.leader = leader
    for name in REPLICA_LISTS:
        before, after = getattr(partition, name), getattr(target, name)
        if after != before:
            setattr(record, name, list(after))
    if target.leader_recovery_state != partition.leader_recovery_state:
        record.leader_recovery_state = target.leader_recovery_state
    return None if record == PartitionChangeRecord(partition_id=index, topic_id=topic_id) else record


def _needs_new_epoch(before: PartitionRegistration, target: PartitionRegistration) -> bool:
    same_assignment = all(
        getattr(before, name) == getattr(target, name) for name in ("replicas", "adding_replicas", "removing_replicas")
    )
    return not same_assignment or not set(before.isr) <= set(target.isr)


def _last_known_elr(before: PartitionRegistration, target: PartitionRegistration, leader: int) -> tuple[int, ...]:
    """Return the last known leader while the partition has no leader."""
    if leader != NO_LEADER:
        return ()
    if before.leader != NO_LEADER and not target.isr:
        return (before.leader,)
    return before.last_known_elr


def _with_eligible_leaders(
    before: PartitionRegistration, target: PartitionRegistration, min_isr: int, uncleanly_stopped_broker: int | None
) -> PartitionRegistration:
    """Return the target with its eligible leaders: the replicas that left the ISR with all committed records."""
    if len(target.isr) >= min(min_isr, len(target.replicas)):
        return target._replace(eligible_leader_replicas=())
    candidates = (*before.eligible_leader_replicas, *before.isr)
    excluded = (*target.isr, uncleanly_stopped_broker)
    eligible = tuple(replica for replica in target.replicas if replica in candidates and replica not in excluded)
    return target._replace(eligible_leader_replicas=eligible)


def without_broker(
    topic_id: Uuid,
    index: int,
    partition: PartitionRegistration,
    broker: int,
    *,
    active: IsActive,
    unclean: bool,
    elr_enabled: bool,
    min_isr: int,
    bump_leader_epoch: bool = False,
    after_unclean_shutdown: bool = False,
) -> PartitionChangeRecord | None:
    """Return the record that removes a broker which is no longer active from the leadership and the ISR.

    Without `elr_enabled`, the last member stays in the ISR. After an unclean shutdown the broker may have lost
    records, so it does not become an eligible leader.
    """
    shrunk = tuple(replica for replica in partition.isr if replica != broker)
    if not shrunk and not elr_enabled:
        shrunk = partition.isr
    return partition_change_record(
        topic_id,
        index,
        partition,
        partition._replace(isr=shrunk),
        active=lambda replica: replica != broker and active(replica),
        election=Election.UNCLEAN if unclean else Election.ONLINE,
        elr_enabled=elr_enabled,
        min_isr=min_isr,
        bump_leader_epoch=bump_leader_epoch,
        uncleanly_stopped_broker=broker if after_unclean_shutdown else None,
    )
