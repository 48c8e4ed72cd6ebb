"""The last offset of each key in the part of a log that is about to be cleaned, in bounded memory (SkimpyOffsetMap).

Kafka's map keeps a hash of each key in 24 bytes. Here short keys are kept as they are, and an entry takes what a dict
takes for it: fewer keys fit into `log.cleaner.dedupe.buffer.size`, and a log with more of them takes more passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

BYTES_PER_ENTRY = 192
"""A dict's slot, the key and the offset as objects, and room for a dict that has just grown (measured: 120 to 190)."""
_LONGEST_KEPT = 24
_DIGEST_SIZE = 25
"""Longer than any key that is kept, so that no digest is taken for a key."""


class OffsetMap:
    """Of one pass."""

    __slots__ = ("_capacity", "_offsets", "latest_offset")

    def __init__(self, memory_bytes: int, load_factor: float) -> None:
        """At most as many keys as fit into the share `load_factor` of `memory_bytes`, but one at least."""
        self._capacity = max(int(memory_bytes // BYTES_PER_ENTRY * load_factor), 1)
        self._offsets: dict[bytes, int] = {}
        self.latest_offset = -1
        """Up to this offset everything is in the map."""

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def utilization(self) -> float:
        return len(self._offsets) / self._capacity

    def put(self, keys: Sequence[bytes], offsets: Sequence[int]) -> bool:
        """Note the offsets, ascending, of as many records as there is room for; False if that were not all."""
        keys = [key if len(key) <= _LONGEST_KEPT else _digest(key) for key in keys]
        known = self._offsets
        if len(known) + len(keys) <= self._capacity:
            known.update(zip(keys, offsets, strict=True))
            return True
        for at, key in enumerate(keys):
            # As Kafka: who meets a full map goes no further, though the key may be in it.
            if len(known) >= self._capacity:
                return False
            known[key] = offsets[at]
            self.latest_offset = offsets[at]
        return True

    def forget(self, count: int) -> bool:
        """Give back the memory of so many keys; False when none is left. A large dict that goes at once holds the
        interpreter for as long as it takes."""
        known = self._offsets
        for _ in range(min(count, len(known))):
            known.popitem()
        return bool(known)

    def superseded(self, keys: Sequence[bytes | None], offsets: Sequence[int]) -> list[int]:
        """Which of these records, by index, have a later one with their key."""
        get = self._offsets.get
        last = [-1 if key is None else get(key if len(key) <= _LONGEST_KEPT else _digest(key), -1) for key in keys]
        return [at for at, (offset, known) in enumerate(zip(offsets, last, strict=True)) if offset < known]


def _digest(key: bytes) -> bytes:
    """Of a long key: the map's memory does not depend on their length."""
    return blake2b(key, digest_size=_DIGEST_SIZE).digest()
