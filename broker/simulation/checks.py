"""The rules that every run must keep: no record or committed offset is lost, repeated, reordered or taken back.

Clients report each request and response, and the run reports the state of the brokers every few milliseconds. A
`Violation` names the rule and the facts. Each rule is checked as early as possible, so that the trace ends close to the
cause; `final` checks the rules that need the whole log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

TopicPartition = tuple[str, int]
KEYS = 4
"""The number of keys that each producer writes to a compacted topic."""


class Violation(AssertionError):
    """A rule is broken."""


def key_and_number(value: bytes) -> tuple[bytes, int]:
    """Return the key of a value in a compacted topic, and the number that orders the values of a key."""
    name, _, number = value.rpartition(b":")
    return b"%s:%d" % (name, int(number) % KEYS), int(number)


@dataclass
class Acknowledged:
    """The records of one partition that were acknowledged."""

    at: dict[int, bytes] = field(default_factory=dict)
    """Values that were produced with acks=all, by offset."""
    somewhere: set[bytes] = field(default_factory=set)
    """Values that were produced with acks=all, in requests whose responses had no offset."""


class Checks:
    """Calls `on_violation` with each violation, and raises it."""

    def __init__(
        self,
        on_violation: Callable[[Violation], None],
        newest_epoch: Callable[[TopicPartition], int] = lambda partition: 0,
        compacted: str = "",
    ) -> None:
        """`newest_epoch` returns the latest leader epoch that any broker knows; `compacted` is the compacted topic."""
        self._on_violation = on_violation
        self._compacted = compacted
        self._sent: dict[bytes, int] = {}
        """The number of the last value that was sent to the compacted topic, by key."""
        self._newest_epoch = newest_epoch
        self.acknowledged: dict[TopicPartition, Acknowledged] = defaultdict(Acknowledged)
        self.idempotent: dict[bytes, int] = {}
        """Idempotent producers, by the prefix of their values: their records must not be reordered or repeated."""
        self._read: dict[TopicPartition, dict[int, bytes]] = defaultdict(dict)
        self._latest: dict[TopicPartition, dict[int, int]] = defaultdict(dict)
        """The largest log end offset that a client has seen, by leader epoch."""
        self._deleted: dict[TopicPartition, int] = defaultdict(int)
        self._high_watermarks: dict[tuple[TopicPartition, int], int] = {}
        self._leaders: dict[tuple[TopicPartition, int], int] = {}
        self._owners: dict[tuple[str, int], dict[TopicPartition, str]] = defaultdict(dict)
        self._generations: dict[str, int] = defaultdict(int)
        self._committed: dict[tuple[str, TopicPartition], int] = defaultdict(int)
        self._perhaps_committed: dict[tuple[str, TopicPartition], set[int]] = defaultdict(set)

    def fail(self, rule: str) -> None:
        violation = Violation(rule)
        self._on_violation(violation)
        raise violation

    # -- producers and readers ----------------------------------------------------------------------------------------

    def acknowledged_at(self, partition: TopicPartition, offset: int, values: list[bytes]) -> None:
        """Record a successful Produce response with acks=all; `offset` is -1 if the response had none."""
        known = self.acknowledged[partition]
        if offset < 0:
            known.somewhere.update(values)
            return
        for at, value in enumerate(values, offset):
            other = known.at.setdefault(at, value)
            if other != value:
                self.fail(f"two records were acknowledged at offset {at} of {partition}: {other!r} and {value!r}")
            self._same_as_read(partition, at, value, "was acknowledged")
        # The response does not name the leader epoch.
        self._saw_latest(partition, self._newest_epoch(partition), offset + len(values))

    def has_newer_epoch(self, topic_partition: TopicPartition, epoch: int) -> bool:
        """Return whether a leader of a later epoch has been elected."""
        return self._newest_epoch(topic_partition) > epoch

    def sending(self, partition: TopicPartition, values: Iterable[bytes]) -> None:
        """Record values that a producer is about to send."""
        if partition[0] == self._compacted:
            self._sent.update(map(key_and_number, values))

    def read(
        self,
        partition: TopicPartition,
        position: int,
        records: Iterable[tuple[int, bytes]],
        end: int,
        high_watermark: int,
    ) -> int:
        """Record a Fetch response to a consumer at `position`, with batches that end before `end`. Return its next
        position."""
        last = -1
        for offset, value in records:
            if offset <= last:
                self.fail(f"a Fetch of {partition} returned offset {offset} after offset {last}")
            last = offset
            if offset < position:
                continue
            self._check_gap(partition, range(position, offset))
            if offset >= high_watermark:
                self.fail(
                    f"a Fetch of {partition} returned offset {offset}, and the high watermark is {high_watermark}"
                )
            self._same_as_read(partition, offset, value, "was read")
            self._read[partition][offset] = value
            position = offset + 1
        self._check_gap(partition, range(position, end))
        return max(position, end)

    def _check_gap(self, partition: TopicPartition, offsets: range) -> None:
        """Check offsets that a Fetch response left out: only compaction may remove records."""
        if offsets and partition[0] != self._compacted:
            self.fail(
                f"a Fetch of {partition} at {offsets[0]} returned offset {offsets.stop} first: records are missing"
            )
        for offset in offsets:
            value = self.acknowledged[partition].at.get(offset) or self._read[partition].get(offset)
            if value is not None:
                key, number = key_and_number(value)
                if self._sent[key] == number:
                    self.fail(f"a Fetch of {partition} left out {value!r} at {offset}, and its key has no later value")

    def deleting(self, partition: TopicPartition, before: int) -> None:
        """Record a DeleteRecords request, which may take effect from now on."""
        self._deleted[partition] = max(self._deleted[partition], before)

    def out_of_range(self, partition: TopicPartition, position: int) -> int:
        """Record OFFSET_OUT_OF_RANGE for a consumer. Return the position at which it continues."""
        if position >= self._deleted[partition]:
            self.fail(
                f"a Fetch of {partition} at {position} returned OFFSET_OUT_OF_RANGE, and records are deleted only "
                f"before {self._deleted[partition]}"
            )
        return self._deleted[partition]

    def _same_as_read(self, partition: TopicPartition, offset: int, value: bytes, how: str) -> None:
        before = self._read[partition].get(offset)
        if before is not None and before != value:
            self.fail(f"{partition} offset {offset}: {before!r} was read, and later {value!r} {how}")

    def latest_seen(self, partition: TopicPartition, leader_epoch: int) -> int:
        """Return the largest log end offset that a client has seen in this leader epoch or an earlier one."""
        return max((end for epoch, end in self._latest[partition].items() if epoch <= leader_epoch), default=0)

    def list_offsets_returned(self, partition: TopicPartition, floor: int, leader_epoch: int, offset: int) -> None:
        """Record a ListOffsets response; `floor` is what `latest_seen` returned before the request."""
        if offset < floor:
            self.fail(f"the latest offset of {partition} goes back from {floor} to {offset}")
        self._saw_latest(partition, leader_epoch, offset)

    def _saw_latest(self, partition: TopicPartition, leader_epoch: int, end: int) -> None:
        self._latest[partition][leader_epoch] = max(self._latest[partition].get(leader_epoch, 0), end)

    # -- brokers ------------------------------------------------------------------------------------------------------

    def leads(self, partition: TopicPartition, epoch: int, broker: int, high_watermark: int) -> None:
        """Record that a broker considers itself the leader in this epoch."""
        other = self._leaders.setdefault((partition, epoch), broker)
        if other != broker:
            self.fail(f"brokers {other} and {broker} both lead {partition} in leader epoch {epoch}")
        before = self._high_watermarks.get((partition, epoch), 0)
        if high_watermark < before:
            self.fail(f"the high watermark of {partition} in epoch {epoch} retreats from {before} to {high_watermark}")
        self._high_watermarks[partition, epoch] = high_watermark

    def isr_ends(self, partition: TopicPartition, high_watermark: int, ends: Mapping[int, int]) -> None:
        """Record the log end offsets of the brokers in the ISR that the controller stores."""
        for broker, end in ends.items():
            if end < high_watermark:
                self.fail(
                    f"the high watermark of {partition} is {high_watermark}, and the log of broker {broker} in the ISR "
                    f"ends at {end}"
                )

    # -- groups -------------------------------------------------------------------------------------------------------

    def generation_of(self, group: str) -> int:
        """Return the newest generation in which a member received its assignment. A coordinator that fails over may
        reuse the number of a generation that members have joined but not synced."""
        return self._generations[group]

    def owns(self, group: str, generation: int, member: str, partitions: Iterable[TopicPartition]) -> None:
        self._generations[group] = max(self._generations[group], generation)
        owners = self._owners[group, generation]
        for partition in partitions:
            other = owners.setdefault(partition, member)
            if other != member:
                self.fail(f"group {group}, generation {generation}: {other} and {member} both own {partition}")

    def committing(self, group: str, partition: TopicPartition, offset: int) -> None:
        self._perhaps_committed[group, partition].add(offset)

    def committed(self, group: str, partition: TopicPartition, offset: int, generation: int, newest: int) -> None:
        """Record a successful OffsetCommit; `newest` is the newest generation at the time of the request."""
        if generation < newest:
            self.fail(f"group {group}: OffsetCommit of generation {generation} succeeded after {newest} had begun")
        self._perhaps_committed[group, partition].discard(offset)
        self._committed[group, partition] = max(self._committed[group, partition], offset)

    def refused(self, group: str, partition: TopicPartition, offset: int) -> None:
        """Record an OffsetCommit response with an error that proves that nothing was written."""
        self._perhaps_committed[group, partition].discard(offset)

    def last_committed(self, group: str, partition: TopicPartition) -> int:
        return self._committed[group, partition]

    def offset_fetch_returned(self, group: str, partition: TopicPartition, floor: int, offset: int) -> None:
        """Record an OffsetFetch response (-1: no offset); `floor` is what `last_committed` returned before it."""
        if max(offset, 0) < floor and offset not in self._perhaps_committed[group, partition]:
            self.fail(f"group {group}: the committed offset of {partition} goes back from {floor} to {offset}")
        self._committed[group, partition] = max(self._committed[group, partition], offset)

    # -- the end ------------------------------------------------------------------------------------------------------

    def final(self, partition: TopicPartition, log: Mapping[int, bytes], replicas: Mapping[int, bytes]) -> None:
        """Compare all replicas, and the log with everything that clients have seen. `log` has the values by offset,
        `replicas` the bytes below the high watermark by broker."""
        (first, whole), *others = replicas.items()
        for broker, data in others:
            if data != whole:
                at = next((i for i, (a, b) in enumerate(zip(whole, data, strict=False)) if a != b), -1)
                self.fail(
                    f"{partition}: the logs of brokers {first} and {broker} differ at byte {at} "
                    f"of {len(whole)} and {len(data)}"
                )
        known, start = self.acknowledged[partition], self._deleted[partition]
        for offset, value in known.at.items():
            if offset >= start and log.get(offset) != value:
                self.fail(f"{partition} offset {offset}: {value!r} was acknowledged, {log.get(offset)!r} is stored")
        missing = {value for value in known.somewhere - set(log.values()) if not start or self._stays(log, value)}
        if missing:
            self.fail(f"{partition}: records were acknowledged and are lost: {sorted(missing)[:3]}")
        for offset, value in self._read[partition].items():
            if offset >= start and log.get(offset) != value:
                self.fail(f"{partition} offset {offset}: {value!r} was read, {log.get(offset)!r} is stored")
        self._in_order(partition, log)

    def final_keys(self, partition: TopicPartition, logs: Mapping[str, Mapping[int, bytes]]) -> None:
        """Compare the logs of a compacted partition, by replica or reader, with what clients have seen. The logs may
        differ, but the last value of each key is the last acknowledged one or a later one."""
        known = self.acknowledged[partition]
        for source, log in logs.items():
            last = dict(key_and_number(log[offset]) for offset in sorted(log))
            for value in (*known.at.values(), *known.somewhere):
                key, number = key_and_number(value)
                if last.get(key, -1) < number:
                    self.fail(
                        f"{partition} on {source}: {value!r} was acknowledged, the last of its key is {last.get(key)}"
                    )
            for offset, value in log.items():
                other = known.at.get(offset, value)
                if other != value:
                    self.fail(
                        f"{partition} on {source}, offset {offset}: {other!r} was acknowledged, {value!r} is stored"
                    )
                self._same_as_read(partition, offset, value, f"is stored on {source}")
            self._in_order(partition, log)

    def _stays(self, log: Mapping[int, bytes], value: bytes) -> bool:
        """Return whether DeleteRecords cannot have removed the value: the log still has an earlier value of the same
        idempotent producer."""
        name, _, number = value.rpartition(b":")
        return name in self.idempotent and any(
            before == name and int(other) < int(number)
            for before, _, other in (each.rpartition(b":") for each in log.values())
        )

    def _in_order(self, partition: TopicPartition, log: Mapping[int, bytes]) -> None:
        last: dict[bytes, tuple[int, int]] = {}
        for offset in sorted(log):
            name, _, number = log[offset].rpartition(b":")
            if name in self.idempotent:
                before, at = last.get(name, (-1, -1))
                if int(number) <= before:
                    what = "repeated" if int(number) == before else "reordered"
                    self.fail(f"{partition}: {log[offset]!r} at {offset} is {what} after {before} at {at}")
                last[name] = (int(number), offset)
