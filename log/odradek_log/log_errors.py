"""The exceptions of a log, all about its files. For the fault of a producer a log returns a `Rejection`."""

from __future__ import annotations


class CorruptLogError(Exception):
    """A damaged file; the partition must go offline (KAFKA_STORAGE_ERROR)."""


class LogOfflineError(Exception):
    """The log is offline after a disk error, until it is opened again (KAFKA_STORAGE_ERROR)."""


class LogClosedError(LogOfflineError):
    """The log was closed cleanly."""


class OffsetOutOfRangeError(Exception):
    """A read below the start or above the end of the log (OFFSET_OUT_OF_RANGE)."""


class LogDirectoryError(Exception):
    """A log directory that cannot be used: it is locked, of another node or a newer format, or has foreign files."""
