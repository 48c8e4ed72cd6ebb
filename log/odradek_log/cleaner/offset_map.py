"""The last offset of each key in the part of a log that is about to be cleaned, in bounded memory (SkimpyOffsetMap).

Kafka's map keeps a hash of each key in 24 bytes. Here short keys are kept as they are, and an entry takes what a dict
takes for it: fewer keys fit into `log.cleaner.dedupe.buffer.size`, and a log with more of them takes more passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

BYTES_PER_ENTRY = 192
"""A dict's slot, the key and the offset as objects, and room for a dict that has just grown (measured: 120 to 190)."""
_KEYS_OF_A_SHARD = 8192
"""A dict that grows copies itself in one go: with twice as many keys that takes half a millisecond."""
_LONGEST_KEPT = 24
_DIGEST_SIZE = 25
"""Longer than any key that is kept, so that no digest is taken for a key."""


class OffsetMap:
    """Of one pass."""

    __slots__ = ("_at_most", "_capacity", "_mask", "_shards", "latest_offset")

    def __init__(self, memory_bytes: int, load_factor: float) -> None:
        """At most as many keys as fit into the share `load_factor` of `memory_bytes`, but one at least."""
        self._capacity = max(int(memory_bytes // BYTES_PER_ENTRY * load_factor), 1)
        shards = 1 << (self._capacity // _KEYS_OF_A_SHARD).bit_length()
        self._shards: list[dict[bytes, int]] = [{} for _ in range(shards)]
        self._mask = shards - 1
        self._at_most = 0
        """There are no more keys than so many."""
        self.latest_offset = -1
        """Up to this offset everything is in the map."""

    def __len__(self) -> int:
        return sum(map(len, self._shards))

    @property
    def utilization(self) -> float:
        return len(self) / self._capacity

    def put(self, keys: Sequence[bytes], offsets: Sequence[int]) -> bool:
        """Note the offsets, ascending, of as many records as there is room for; False if that were not all."""
        shards, mask = self._shards, self._mask
        if self._at_most + len(keys) > self._capacity:
            self._at_most = len(self)
        if self._at_most + len(keys) <= self._capacity:
            self._at_most += len(keys)
            for key, offset in zip(keys, offsets, strict=True):
                kept = key if len(key) <= _LONGEST_KEPT else _digest(key)
                shards[hash(kept) & mask][kept] = offset
            return True
        for key, offset in zip(keys, offsets, strict=True):
            # As Kafka: who meets a full map goes no further, though the key may be in it.
            if self._at_most >= self._capacity:
                return False
            kept = key if len(key) <= _LONGEST_KEPT else _digest(key)
            shard = shards[hash(kept) & mask]
            self._at_most += kept not in shard
            shard[kept] = offset
            self.latest_offset = offset
        return True

    def forget(self, count: int) -> bool:
        """Give back the memory of so many keys; False when none is left. A large map that goes at once holds the
        interpreter for as long as it takes."""
        shards = self._shards
        while shards and count > 0:
            shard = shards[-1]
            for _ in range(min(count, len(shard))):
                shard.popitem()
                count -= 1
            if not shard:
                shards.pop()
        return bool(shards)

    def superseded(self, keys: Sequence[bytes | None], offsets: Sequence[int]) -> list[int]:
        """Which of these records, by index, have a later one with their key."""
        shards, mask = self._shards, self._mask
        found = []
        for at, key in enumerate(keys):
            if key is not None:
                kept = key if len(key) <= _LONGEST_KEPT else _digest(key)
                if offsets[at] < shards[hash(kept) & mask].get(kept, -1):
                    found.append(at)
        return found


def _digest(key: bytes) -> bytes:
    """Of a long key: the map's memory does not depend on their length."""
    return blake2b(key, digest_size=_DIGEST_SIZE).digest()
