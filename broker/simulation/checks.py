"""What must hold, whatever happens; told of every step of every client, and shown the brokers now and then.

A `Violation` names the rule and the facts. Rules are checked as soon as they can be, so that the trace ends where it
went wrong; what can be told at the end only is in `final`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

Place = tuple[str, int]
KEYS = 4
"""Of what each producer writes to a compacted topic."""


class Violation(AssertionError):
    """A rule does not hold."""


def key_and_number(value: bytes) -> tuple[bytes, int]:
    """The key of a value in a compacted topic, and what tells which of a key's values is the later one."""
    name, _, number = value.rpartition(b":")
    return b"%s:%d" % (name, int(number) % KEYS), int(number)


@dataclass
class Acknowledged:
    """What producers were told about one partition."""

    at: dict[int, bytes] = field(default_factory=dict)
    """acks=all: value by offset."""
    somewhere: set[bytes] = field(default_factory=set)
    """acks=all, the offset unknown."""


class Checks:
    """`failed` is called once, with the first violation."""

    def __init__(
        self,
        failed: Callable[[Violation], None],
        newest_epoch: Callable[[Place], int] = lambda place: 0,
        compacted: str = "",
    ) -> None:
        """`newest_epoch` is the latest leader epoch that any broker knows of; `compacted` the topic that is."""
        self._failed = failed
        self._compacted = compacted
        self._sent: dict[bytes, int] = {}
        """By key: the number of the last value that was sent to the compacted topic."""
        self._newest_epoch = newest_epoch
        self.acknowledged: dict[Place, Acknowledged] = defaultdict(Acknowledged)
        self.idempotent: dict[bytes, int] = {}
        """Producers (the beginning of their values) that must neither reorder nor repeat."""
        self._read: dict[Place, dict[int, bytes]] = defaultdict(dict)
        self._latest: dict[Place, dict[int, int]] = defaultdict(dict)
        """The largest end that anybody was told of, by leader epoch."""
        self._deleted: dict[Place, int] = defaultdict(int)
        self._high_watermarks: dict[tuple[Place, int], int] = {}
        self._leaders: dict[tuple[Place, int], int] = {}
        self._owners: dict[tuple[str, int], dict[Place, str]] = defaultdict(dict)
        self._generations: dict[str, int] = defaultdict(int)
        self._committed: dict[tuple[str, Place], int] = defaultdict(int)
        self._perhaps_committed: dict[tuple[str, Place], set[int]] = defaultdict(set)

    def fail(self, rule: str) -> None:
        violation = Violation(rule)
        self._failed(violation)
        raise violation

    # -- producers and readers ----------------------------------------------------------------------------------------

    def acknowledged_at(self, place: Place, offset: int, values: list[bytes]) -> None:
        """acks=all was answered without an error; offset -1 if the answer did not say."""
        known = self.acknowledged[place]
        if offset < 0:
            known.somewhere.update(values)
            return
        for at, value in enumerate(values, offset):
            other = known.at.setdefault(at, value)
            if other != value:
                self.fail(f"two records were acknowledged at offset {at} of {place}: {other!r} and {value!r}")
            self._same_as_read(place, at, value, "acknowledged")
        # The answer does not say in which leader epoch that was.
        self._saw_latest(place, self._newest_epoch(place), offset + len(values))

    def sending(self, place: Place, values: Iterable[bytes]) -> None:
        """A producer is about to write these, as the last of their keys."""
        if place[0] == self._compacted:
            self._sent.update(map(key_and_number, values))

    def read(
        self, place: Place, position: int, records: Iterable[tuple[int, bytes]], end: int, high_watermark: int
    ) -> int:
        """A consumer at `position` got these, in batches that end before `end`; returns its next position."""
        last = -1
        for offset, value in records:
            if offset <= last:
                self.fail(f"a consumer of {place} got {offset} after {last}")
            last = offset
            if offset < position:
                continue
            self._not_there(place, range(position, offset))
            if offset >= high_watermark:
                self.fail(f"a consumer of {place} got {offset}, the high watermark is {high_watermark}")
            self._same_as_read(place, offset, value, "read")
            self._read[place][offset] = value
            position = offset + 1
        self._not_there(place, range(position, end))
        return max(position, end)

    def _not_there(self, place: Place, offsets: range) -> None:
        """A consumer got what comes next, and nothing at these offsets."""
        if offsets and place[0] != self._compacted:
            self.fail(f"a consumer of {place} was at {offsets[0]} and got {offsets.stop}: records are missing")
        for offset in offsets:
            value = self.acknowledged[place].at.get(offset) or self._read[place].get(offset)
            if value is not None:
                key, number = key_and_number(value)
                if self._sent[key] == number:
                    self.fail(f"a consumer of {place} got no {value!r} at {offset}, and no later value was written")

    def deleting(self, place: Place, before: int) -> None:
        """DeleteRecords is asked for, and may take effect."""
        self._deleted[place] = max(self._deleted[place], before)

    def out_of_range(self, place: Place, position: int) -> int:
        """A consumer is told so; returns where it goes on."""
        if position >= self._deleted[place]:
            self.fail(f"a consumer of {place} at {position} is out of range; deleted is up to {self._deleted[place]}")
        return self._deleted[place]

    def _same_as_read(self, place: Place, offset: int, value: bytes, how: str) -> None:
        before = self._read[place].get(offset)
        if before is not None and before != value:
            self.fail(f"{place} offset {offset}: {before!r} was read, and later {value!r} {how}")

    def latest_seen(self, place: Place, leader_epoch: int) -> int:
        """The largest end that anybody was told of until now, in this leader epoch or before."""
        return max((end for epoch, end in self._latest[place].items() if epoch <= leader_epoch), default=0)

    def latest_told(self, place: Place, floor: int, leader_epoch: int, offset: int) -> None:
        """ListOffsets, asked when `floor` had been seen, was answered `offset` in this leader epoch."""
        if offset < floor:
            self.fail(f"the latest offset of {place} goes back: {floor} was seen, and then {offset}")
        self._saw_latest(place, leader_epoch, offset)

    def _saw_latest(self, place: Place, leader_epoch: int, end: int) -> None:
        self._latest[place][leader_epoch] = max(self._latest[place].get(leader_epoch, 0), end)

    # -- brokers ------------------------------------------------------------------------------------------------------

    def leads(self, place: Place, epoch: int, broker: int, high_watermark: int) -> None:
        """A broker leads in this epoch, by its own account."""
        other = self._leaders.setdefault((place, epoch), broker)
        if other != broker:
            self.fail(f"brokers {other} and {broker} both lead {place} in epoch {epoch}")
        before = self._high_watermarks.get((place, epoch), 0)
        if high_watermark < before:
            self.fail(f"the high watermark of {place} in epoch {epoch} retreats from {before} to {high_watermark}")
        self._high_watermarks[place, epoch] = high_watermark

    def held(self, place: Place, high_watermark: int, ends: Mapping[int, int]) -> None:
        """Where the logs of the brokers end that the controller takes to be in sync."""
        for broker, end in ends.items():
            if end < high_watermark:
                self.fail(f"{place} is committed up to {high_watermark}, broker {broker} in sync, ends at {end}")

    # -- groups -------------------------------------------------------------------------------------------------------

    def generation_of(self, group: str) -> int:
        """The newest in which any member was told what it owns. (One that members have only joined may be forgotten,
        and its number given again.)"""
        return self._generations[group]

    def owns(self, group: str, generation: int, member: str, places: Iterable[Place]) -> None:
        self._generations[group] = max(self._generations[group], generation)
        owners = self._owners[group, generation]
        for place in places:
            other = owners.setdefault(place, member)
            if other != member:
                self.fail(f"{group}, generation {generation}: {other} and {member} both own {place}")

    def committing(self, group: str, place: Place, offset: int) -> None:
        self._perhaps_committed[group, place].add(offset)

    def committed(self, group: str, place: Place, offset: int, generation: int, newest: int) -> None:
        """A commit of this generation was answered; `newest` was the newest generation when it was sent."""
        if generation < newest:
            self.fail(f"{group}: a commit of generation {generation} was taken after {newest} had begun")
        self._perhaps_committed[group, place].discard(offset)
        self._committed[group, place] = max(self._committed[group, place], offset)

    def refused(self, group: str, place: Place, offset: int) -> None:
        """A commit was answered with an error that says that it was not written."""
        self._perhaps_committed[group, place].discard(offset)

    def last_committed(self, group: str, place: Place) -> int:
        return self._committed[group, place]

    def committed_told(self, group: str, place: Place, floor: int, offset: int) -> None:
        """OffsetFetch, asked when `floor` was known to be committed, answered `offset` (-1: none)."""
        if max(offset, 0) < floor and offset not in self._perhaps_committed[group, place]:
            self.fail(f"{group}: the committed offset of {place} goes back: {floor} was known, {offset} is told")
        self._committed[group, place] = max(self._committed[group, place], offset)

    # -- the end ------------------------------------------------------------------------------------------------------

    def final(self, place: Place, log: Mapping[int, bytes], replicas: Mapping[int, bytes]) -> None:
        """The values of the partition by offset, and the bytes below the high watermark by broker."""
        (first, whole), *others = replicas.items()
        for broker, data in others:
            if data != whole:
                at = next((i for i, (a, b) in enumerate(zip(whole, data, strict=False)) if a != b), -1)
                self.fail(
                    f"{place}: brokers {first} and {broker} differ at byte {at} ({len(whole)} and {len(data)} bytes)"
                )
        known, start = self.acknowledged[place], self._deleted[place]
        for offset, value in known.at.items():
            if offset >= start and log.get(offset) != value:
                self.fail(f"{place} offset {offset}: {value!r} was acknowledged, {log.get(offset)!r} is there")
        missing = {value for value in known.somewhere - set(log.values()) if not start or self._stays(log, value)}
        if missing:
            self.fail(f"{place}: acknowledged and lost: {sorted(missing)[:3]}")
        for offset, value in self._read[place].items():
            if offset >= start and log.get(offset) != value:
                self.fail(f"{place} offset {offset}: {value!r} was read, {log.get(offset)!r} is there")
        self._in_order(place, log)

    def final_keys(self, place: Place, logs: Mapping[str, Mapping[int, bytes]]) -> None:
        """Of a compacted partition the values by offset, by whoever has them. They differ; the last of each key is the
        last that was acknowledged, or one that was written later."""
        known = self.acknowledged[place]
        for whose, log in logs.items():
            last = dict(key_and_number(log[offset]) for offset in sorted(log))
            for value in (*known.at.values(), *known.somewhere):
                key, number = key_and_number(value)
                if last.get(key, -1) < number:
                    self.fail(f"{place} of {whose}: {value!r} was acknowledged, the last of its key is {last.get(key)}")
            for offset, value in log.items():
                other = known.at.get(offset, value)
                if other != value:
                    self.fail(f"{place} of {whose}, offset {offset}: {other!r} was acknowledged, {value!r} is there")
                self._same_as_read(place, offset, value, f"is there, says {whose}")
            self._in_order(place, log)

    def _stays(self, log: Mapping[int, bytes], value: bytes) -> bool:
        """Whether it stands in the log behind one that is there, so that it was not deleted: its producer is
        idempotent, and what that wrote before is there."""
        name, _, number = value.rpartition(b":")
        return name in self.idempotent and any(
            before == name and int(other) < int(number)
            for before, _, other in (each.rpartition(b":") for each in log.values())
        )

    def _in_order(self, place: Place, log: Mapping[int, bytes]) -> None:
        last: dict[bytes, tuple[int, int]] = {}
        for offset in sorted(log):
            name, _, number = log[offset].rpartition(b":")
            if name in self.idempotent:
                before, at = last.get(name, (-1, -1))
                if int(number) <= before:
                    what = "repeated" if int(number) == before else "reordered"
                    self.fail(f"{place}: {log[offset]!r} at {offset} is {what} after {before} at {at}")
                last[name] = (int(number), offset)
