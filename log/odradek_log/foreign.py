"""Detect directories that are not log directories, before anything is written into them.

A directory with `meta.properties` is a log directory; `LogDirectory.load` checks its subdirectories.
"""

from __future__ import annotations

from odradek_log import file_names
from odradek_log.disk import Disk
from odradek_log.log_errors import LogDirectoryError

_NAMES_MAX = 3
_CHECKPOINT = "checkpoint"


def refuse_foreign(disk: Disk, directory: str) -> None:
    """Raise LogDirectoryError for a file, and for a directory without `meta.properties` but with files that no broker
    writes. Ignores hidden files."""
    if not disk.exists(directory):
        return
    if not disk.is_directory(directory):
        raise LogDirectoryError(f"{directory} is a file, not a directory")
    names = disk.names(directory)
    if file_names.META_PROPERTIES in names:
        return
    foreign = sorted(name for name in names if not _is_of_broker(disk, directory, name))
    if foreign:
        raise LogDirectoryError(
            f"{directory} is not the data directory of a broker: it has no {file_names.META_PROPERTIES}, and holds "
            f"{joined_names(foreign)}; use an empty directory, or one that does not exist yet"
        )


def joined_names(names: list[str]) -> str:
    """Return the first names of a list, for an error."""
    more = len(names) - _NAMES_MAX
    return ", ".join(names[:_NAMES_MAX]) + (f" and {more} more" if more > 0 else "")


def partitions_in(disk: Disk, directory: str) -> list[str]:
    """Return the names of the directories of partitions, sorted."""
    return sorted(name for name in disk.names(directory) if _is_of_partition(disk, directory, name))


def _is_of_broker(disk: Disk, directory: str, name: str) -> bool:
    if disk.is_directory(f"{directory}/{name}"):
        known = name in (file_names.LOST_AND_FOUND_DIR, file_names.REMOTE_INDEX_CACHE_DIR)
        return known or file_names.parse_dir(name) is not None
    # `.lock` and `.kafka_cleanshutdown` are hidden, too.
    return name.startswith(".") or name.removesuffix(".tmp").endswith((_CHECKPOINT, file_names.META_PROPERTIES))


def _is_of_partition(disk: Disk, directory: str, name: str) -> bool:
    return file_names.parse_dir(name) is not None and disk.is_directory(f"{directory}/{name}")
