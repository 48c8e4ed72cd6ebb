"""The exceptions of this package.

Everything that hostile or damaged bytes can cause is a CorruptRecordError or one of its subclasses, so that a reader
needs one `except`. UnsupportedRecordsError means that valid records do not fit into the requested format.
"""

from __future__ import annotations


class CorruptRecordError(ValueError):
    """Malformed bytes. Kafka returns CORRUPT_MESSAGE (2)."""


class InvalidRecordError(CorruptRecordError):
    """A valid batch or message whose content contradicts itself. Kafka returns INVALID_RECORD (87)."""


class BadCompressionError(CorruptRecordError):
    """Data that the codec cannot decompress. Kafka returns UNKNOWN_SERVER_ERROR (-1)."""


class ExpansionLimitError(CorruptRecordError):
    """Data that decompress to more than the reader's limit."""


class UnsupportedRecordsError(Exception):
    """Records that do not fit into the requested format."""
