"""What a log raises: trouble with its files. What a producer did wrong is returned (`append.Rejection`)."""

from __future__ import annotations


class CorruptLogError(Exception):
    """A file holds what no undisturbed writer leaves; the partition must go offline (KAFKA_STORAGE_ERROR)."""


class LogOfflineError(Exception):
    """The log met trouble with its disk before and answers nothing until it is opened again (KAFKA_STORAGE_ERROR)."""


class LogClosedError(LogOfflineError):
    """The log was closed in good order."""


class OffsetOutOfRangeError(Exception):
    """A read below the log's start or beyond its end (OFFSET_OUT_OF_RANGE)."""


class LogDirectoryError(Exception):
    """The directory as a whole cannot be used: locked, of another node, of a newer format, with foreign content."""
