"""The settings of a topic that its logs use, with Kafka's names, types and defaults (LogConfig).

Parses values that the controller has validated. Leaves to the caller whether a value is the topic's or the broker's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from odradek_wire.records.attributes import Compression, TimestampType
from odradek_wire.records.log_validator import ValidationRules

_MAX_LONG = (1 << 63) - 1
_WEEK_MS = 7 * 24 * 60 * 60 * 1000
_TIMESTAMP_TYPES = {"CreateTime": TimestampType.CREATE_TIME, "LogAppendTime": TimestampType.LOG_APPEND_TIME}
_COMPRESSIONS: dict[str, Compression | None] = {
    "producer": None,
    "uncompressed": Compression.NONE,
    "none": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The settings of a topic; immutable: a change at run time creates a new `LogConfig`."""

    cleanup_policy: tuple[str, ...] = ("delete",)
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    delete_retention_ms: int = 24 * 60 * 60 * 1000
    file_delete_delay_ms: int = 60_000
    flush_messages: int = _MAX_LONG
    flush_ms: int = _MAX_LONG
    index_interval_bytes: int = 4096
    max_compaction_lag_ms: int = _MAX_LONG
    max_message_bytes: int = 1_048_588
    message_downconversion_enable: bool = True
    """A setting of Kafka 3.9."""
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = _MAX_LONG
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    retention_bytes: int = -1
    retention_ms: int = _WEEK_MS
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    segment_jitter_ms: int = 0
    segment_ms: int = _WEEK_MS
    unclean_leader_election_enable: bool = False

    roll_ms: int = field(init=False, repr=False, compare=False)
    """The time after which a segment rolls: `segment.ms`, or `max.compaction.lag.ms` in a compacted topic if less."""
    compact: bool = field(init=False, repr=False, compare=False)
    delete: bool = field(init=False, repr=False, compare=False)
    rules: ValidationRules = field(init=False, repr=False, compare=False)
    """The rules by which an append validates batches of clients; `strict_rules` read every record, `internal_rules` are
    for batches of the broker itself."""
    strict_rules: ValidationRules = field(init=False, repr=False, compare=False)
    internal_rules: ValidationRules = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "compact", "compact" in self.cleanup_policy)
        put(self, "delete", "delete" in self.cleanup_policy)
        lag_ms = self.max_compaction_lag_ms
        put(self, "roll_ms", min(lag_ms, self.segment_ms) if self.compact and lag_ms > 0 else self.segment_ms)
        compression = _COMPRESSIONS[self.compression_type]
        levels = {
            Compression.GZIP: self.compression_gzip_level,
            Compression.LZ4: self.compression_lz4_level,
            Compression.ZSTD: self.compression_zstd_level,
        }
        rules = ValidationRules(
            compacted=self.compact,
            compression=compression,
            compression_level=levels.get(compression) if compression is not None else None,
            timestamp_type=_TIMESTAMP_TYPES[self.message_timestamp_type],
            timestamp_before_max_ms=self.message_timestamp_before_max_ms,
            timestamp_after_max_ms=self.message_timestamp_after_max_ms,
        )
        put(self, "rules", rules)
        put(self, "strict_rules", replace(rules, strict=True))
        put(self, "internal_rules", replace(rules, from_client=False, compacted=False))

    @classmethod
    def from_configs(cls, configs: Mapping[str, str | None]) -> LogConfig:
        """Parse the settings of a topic, `{"segment.bytes": "1048576"}`; use the defaults for missing and null ones,
        and ignore other names."""
        values: dict[str, Any] = {}
        internal = configs.get("internal.segment.bytes")
        if internal is not None:
            # Kafka 4's setting for tests, without the minimum of segment.bytes.
            configs = {**configs, "segment.bytes": internal}
        difference_max_ms = configs.get("message.timestamp.difference.max.ms")
        if difference_max_ms is not None:
            configs = {**configs, **_timestamp_limits(difference_max_ms, configs)}
        for name, (kafka_name, parse) in _PARSERS.items():
            text = configs.get(kafka_name)
            if text is not None:
                values[name] = parse(text)
        return cls(**values)


def _timestamp_limits(difference_max_ms: str, configs: Mapping[str, str | None]) -> dict[str, str]:
    """Return the two newer settings that replace `message.timestamp.difference.max.ms`, which Kafka 4 removed; omit one
    that has a value of its own."""
    sides = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
    return {name: difference_max_ms for name in sides if int(configs.get(name) or _MAX_LONG) == _MAX_LONG}


def _list(text: str) -> tuple[str, ...]:
    return tuple(item for item in (part.strip() for part in text.split(",")) if item)


def _word(text: str) -> str:
    return text.strip()


def _boolean(text: str) -> bool:
    return text.strip().lower() == "true"


def _parsers() -> dict[str, tuple[str, Callable[[str], Any]]]:
    by_type: dict[str, Callable[[str], Any]] = {
        "int": int,
        "float": float,
        "str": _word,
        "bool": _boolean,
        "tuple[str, ...]": _list,
    }
    return {f.name: (f.name.replace("_", "."), by_type[str(f.type)]) for f in fields(LogConfig) if f.init}


_PARSERS = _parsers()

DEFAULT_CONFIG = LogConfig()
