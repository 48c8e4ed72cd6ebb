"""What can be wrong with record data.

Everything that hostile or damaged bytes can cause is a `CorruptRecordError` (or one of its subclasses), so that whoever
reads records needs one `except`. What a *caller* may ask for and cannot have (zstd in a message set of magic 1) is an
`UnsupportedRecordsError`: the bytes are sound, the wish is not.
"""

from __future__ import annotations


class CorruptRecordError(ValueError):
    """The bytes are not what they claim to be. Kafka's answer to it is CORRUPT_MESSAGE (2)."""


class InvalidRecordError(CorruptRecordError):
    """The frame is sound, its content contradicts itself. Kafka's answer to it is INVALID_RECORD (87)."""


class BadCompressionError(CorruptRecordError):
    """Compressed data that its codec cannot read. Kafka does not foresee it and answers UNKNOWN_SERVER_ERROR (-1)."""


class ExpansionLimitError(CorruptRecordError):
    """Decompressed, the data would be larger than the reader allows."""


class UnsupportedRecordsError(Exception):
    """These records cannot be expressed in the wanted format."""
