"""The last offset of each key in the dirty part of a log, in bounded memory (Kafka's OffsetMap).

Kafka's SkimpyOffsetMap keeps a hash of each key and its offset in 24 bytes. This map keeps short keys themselves, in
dicts, whose entries take more memory: fewer keys fit into `log.cleaner.dedupe.buffer.size`, and a log with many keys
takes more passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

BYTES_PER_ENTRY = 192
"""The memory of a dict slot, the key, the offset, and the spare room of a dict that has just grown (measured: 120 to
190)."""
_KEYS_OF_A_SHARD = 8192
"""A dict that grows copies itself in one step, which takes half a millisecond with twice as many keys."""
_LONGEST_KEPT = 24
_DIGEST_SIZE = 25
"""Longer than any key in the map, so that no digest equals a key."""


class OffsetMap:
    """The offset map of one pass."""

    __slots__ = ("_capacity", "_keys_upper_bound", "_mask", "_shards", "latest_offset")

    def __init__(self, memory_bytes: int, load_factor: float) -> None:
        """The map has room for the keys that fit into the share `load_factor` of `memory_bytes`, at least one."""
        self._capacity = max(int(memory_bytes // BYTES_PER_ENTRY * load_factor), 1)
        shards = 1 << (self._capacity // _KEYS_OF_A_SHARD).bit_length()
        self._shards: list[dict[bytes, int]] = [{} for _ in range(shards)]
        self._mask = shards - 1
        self._keys_upper_bound = 0
        """An upper bound of the number of keys."""
        self.latest_offset = -1
        """The map has all keys up to this offset."""

    def __len__(self) -> int:
        return sum(map(len, self._shards))

    @property
    def utilization(self) -> float:
        return len(self) / self._capacity

    def put(self, keys: Sequence[bytes], offsets: Sequence[int]) -> bool:
        """Add records by ascending offset while there is room; return whether all were added."""
        shards, mask = self._shards, self._mask
        if self._keys_upper_bound + len(keys) > self._capacity:
            self._keys_upper_bound = len(self)
        if self._keys_upper_bound + len(keys) <= self._capacity:
            self._keys_upper_bound += len(keys)
            for key, offset in zip(keys, offsets, strict=True):
                kept = key if len(key) <= _LONGEST_KEPT else _digest(key)
                shards[hash(kept) & mask][kept] = offset
            return True
        for key, offset in zip(keys, offsets, strict=True):
            # Like Kafka, stop at a full map even if the key is in it.
            if self._keys_upper_bound >= self._capacity:
                return False
            kept = key if len(key) <= _LONGEST_KEPT else _digest(key)
            shard = shards[hash(kept) & mask]
            self._keys_upper_bound += kept not in shard
            shard[kept] = offset
            self.latest_offset = offset
        return True

    def free(self, count: int) -> bool:
        """Free the memory of `count` keys; return False if none is left. Freeing a large map in one step would hold the
        interpreter for too long."""
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
        """Return the indices of the records whose key has a later record."""
        shards, mask = self._shards, self._mask
        found = []
        for at, key in enumerate(keys):
            if key is not None:
                kept = key if len(key) <= _LONGEST_KEPT else _digest(key)
                if offsets[at] < shards[hash(kept) & mask].get(kept, -1):
                    found.append(at)
        return found


def _digest(key: bytes) -> bytes:
    """Return the digest of a long key, so that the memory does not depend on the length of keys."""
    return blake2b(key, digest_size=_DIGEST_SIZE).digest()
