"""A disk that loses power: bytes that were never synced may be lost."""

from __future__ import annotations

import os
import random
from pathlib import Path

from odradek_log.disk import RealDisk


class PowerLossDisk(RealDisk):
    """Records how many bytes of each file were synced; `lose_power` truncates the files. Directory entries survive."""

    def __init__(self) -> None:
        super().__init__()
        self._paths: dict[int, str] = {}
        self._synced: dict[str, int] = {}
        self.rename = self._rename  # type: ignore[method-assign,assignment]  # static in the real one

    def open(self, path: str, flags: int, /) -> int:
        fd = super().open(path, flags)
        self._paths[fd] = path
        return fd

    def sync(self, fd: int, /) -> None:
        self._synced[self._paths[fd]] = os.fstat(fd).st_size

    def sync_file(self, path: str, /) -> None:
        self._synced[path] = os.stat(path).st_size

    def replace_file(self, path: str, data: bytes, /, *, sync: bool = True) -> None:
        super().write_file(path, data)
        self._synced[path] = len(data) if sync else 0

    def _rename(self, path: str, new_path: str, /) -> None:
        os.rename(path, new_path)
        self._synced[new_path] = self._synced.pop(path, 0)

    def lose_power(self, root: Path, chance: random.Random) -> None:
        """Truncate each file to a length between its synced bytes and its size, because a disk writes unsynced bytes at
        any time. Log files reach the disk one after the other."""
        torn = False
        for path in sorted(path for path in root.rglob("*") if path.is_file() and path.name != ".lock"):
            size = path.stat().st_size
            kept = synced = min(self._synced.get(str(path), 0), size)
            if path.suffix != ".log" or not torn:
                kept = chance.choice((synced, size, chance.randint(synced, size)))
            torn = torn or (path.suffix == ".log" and kept < size)
            os.truncate(path, kept)
