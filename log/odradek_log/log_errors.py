"""The exceptions that a log raises. It returns a `Rejection` for a batch that a producer must not append."""

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
    """A log directory that cannot be used: locked, of another node, in a newer format, or with foreign files."""
