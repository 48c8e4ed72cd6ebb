"""Random histories of offsets that are committed in transactions and outside, and a model of their outcome."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from broker.tests.groups.shards import batch, marker, new_shard

from odradek_broker.groups.core.group_loader import GroupLoader
from odradek_broker.groups.core.group_records import OffsetRecord
from odradek_broker.groups.core.group_shard import GroupShard
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.offset_commit_value import OffsetCommitValue
from odradek_wire.messages.offset_fetch import OffsetFetchRequest
from odradek_wire.records.attributes import NO_PRODUCER_ID

PLACES = [(group, topic, partition) for group in ("g", "h") for topic in ("t", "u") for partition in (0, 1)]
Where = tuple[str, str, int]


PRODUCERS = (1, 2, 3)


@dataclass
class Entry:
    """One record of the history: a commit (value), a deletion (None), and the transaction it belongs to."""

    where: Where
    value: int | None
    transaction: tuple[int, int] | None
    """The producer, and the number of its transaction."""


@dataclass
class History:
    random: Random
    shard: GroupShard = field(default_factory=lambda: new_shard())
    log: list[bytes] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    ended: dict[tuple[int, int], bool] = field(default_factory=dict)
    """Transaction → True if it was committed."""
    number: dict[int, int] = field(default_factory=lambda: dict.fromkeys(PRODUCERS, 0))
    end: int = 0

    def act(self) -> None:
        producer = self.random.choice(PRODUCERS)
        places = self.random.sample(PLACES, self.random.randint(1, 3))
        match self.random.choice(("plain", "transactional", "transactional", "end", "delete", "failover")):
            case "plain":
                self.append([Entry(where, self.random.randint(0, 999), None) for where in places])
            case "transactional":
                transaction = (producer, self.number[producer])
                self.append([Entry(where, self.random.randint(0, 999), transaction) for where in places])
            case "end":
                self.finish(producer, commit=self.random.random() < 0.6)
            case "delete":
                self.append([Entry(where, None, None) for where in places])
            case "failover":
                self.shard = self.loaded()

    def append(self, entries: list[Entry]) -> None:
        producer = entries[0].transaction[0] if entries[0].transaction else NO_PRODUCER_ID
        records = [
            OffsetRecord(*e.where, None if e.value is None else OffsetCommitValue(e.value, -1, "", 1), producer)
            for e in entries
        ]
        self.log.append(batch(self.end, list(records), producer))
        self.end += len(records)
        self.entries += entries
        for record in records:
            self.shard.replay(record)

    def finish(self, producer: int, *, commit: bool) -> None:
        self.log.append(marker(self.end, producer, commit=commit))
        self.end += 1
        self.ended[producer, self.number[producer]] = commit
        self.number[producer] += 1
        self.shard.transaction_ended(producer, commit=commit)

    def loaded(self) -> GroupShard:
        shard = new_shard()
        loading = GroupLoader(shard)
        data = memoryview(b"".join(self.log))
        while data:
            # In pieces of any length, as it is read from the disk.
            size = self.random.randint(1, len(data))
            if loading.read_batches(data[:size]) == -1:
                size = len(data)
                loading.read_batches(data)
            data = data[self.whole(data[:size]) :]
        while loading.replay_next(self.random.randint(1, 5)):
            pass
        return shard

    @staticmethod
    def whole(data: memoryview) -> int:
        """Return the number of bytes in whole batches."""
        position = 0
        while position + 12 <= len(data):
            size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
            if position + size > len(data):
                break
            position += size
        return position

    # -- the model ------------------------------------------------------------------------------------------------

    def committed(self, where: Where) -> int:
        for entry in reversed(self.entries):
            if entry.where == where and (entry.transaction is None or self.ended.get(entry.transaction)):
                return -1 if entry.value is None else entry.value
        return -1

    def unstable(self, where: Where) -> bool:
        for entry in reversed(self.entries):
            if entry.where == where:
                if entry.value is None:
                    return False
                if entry.transaction is not None and entry.transaction not in self.ended:
                    return True
        return False

    def check(self, shard: GroupShard) -> None:
        for where in PLACES:
            assert seen(shard, where) == (self.committed(where), ErrorCode.NONE), where
            stable = (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT) if self.unstable(where) else seen(shard, where)
            assert seen(shard, where, stable=True) == stable, where


def seen(shard: GroupShard, where: Where, *, stable: bool = False) -> tuple[int, int]:
    group, topic, partition = where
    asked = OffsetFetchRequest.OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])
    fetched = shard.fetch(OffsetFetchRequest.OffsetFetchRequestGroup(group, topics=[asked]), require_stable=stable)
    [found] = next(fetched.topics).partitions
    return found.committed_offset, found.error_code
