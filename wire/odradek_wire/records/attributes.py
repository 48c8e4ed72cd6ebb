"""The attribute bits of a batch (int16) or of an old message (int8), and their names."""

from __future__ import annotations

from enum import IntEnum

COMPRESSION_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
KNOWN_BITS = 0x7F

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1


class Compression(IntEnum):
    """A codec by its number in the attributes; `label` is its name in configurations."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        return self.name.lower()


class TimestampType(IntEnum):
    """Whether the producer or the broker set the timestamps. Messages of magic 0 have no timestamps."""

    NO_TIMESTAMP_TYPE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


COMPRESSIONS: tuple[Compression, ...] = tuple(Compression)
"""The codecs by number: an index costs less than a call of the enum."""
