"""The real disk, with calls that fail as a test plans them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from odradek_log.disk import RealDisk

_CALLS = (
    "write",
    "truncate",
    "pread",
    "rename",
    "remove",
    "names",
    "make_directory",
    "open",
    "sync",
    "sync_file",
    "size",
    "read_file",
    "write_file",
    "replace_file",
    "sync_directory",
)


class FailingDisk(RealDisk):
    """Records its calls, and raises at those that `fail` names."""

    def __init__(self, root: Path) -> None:
        """`root` is the test's own directory: only calls on it and below it fail. `fail` gets paths without it."""
        super().__init__(sync=False)
        self._root = os.fspath(root)
        self.calls: list[str] = []
        self._failures: list[tuple[Callable[[str, str, int], bool], int]] = []
        self._paths: dict[int, str] = {}
        for name in _CALLS:
            setattr(self, name, self._guarded(name, getattr(self, name)))

    def fail(self, error: int, when: Callable[[str, str, int], bool]) -> None:
        """Raise OSError(error) at every call for which `when(name, path, number of the call)` is true.

        The path begins with a slash and is relative to the root, which pytest names after the test and the user
        (`/tmp/pytest-of-root/pytest-0/…`). The path of a call on a descriptor is that of its file."""
        self._failures.append((when, error))

    def heal(self) -> None:
        self._failures.clear()

    def _guarded(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*args: Any, **options: Any) -> Any:
            path = self._paths.get(args[0], "") if isinstance(args[0], int) else args[0]
            self.calls.append(name)
            below = self._below_root(os.fspath(path))
            for when, error in self._failures:
                if below is not None and when(name, below, len(self.calls)):
                    raise OSError(error, os.strerror(error), path)
            result = call(*args, **options)
            if name == "open":
                self._paths[result] = path
            return result

        return guarded

    def _below_root(self, path: str) -> str | None:
        """Return the path relative to the root: None outside it, empty if the file of a descriptor is unknown."""
        below = path.removeprefix(self._root)
        return below if not path or (below != path and below[:1] in ("", "/")) else None
