"""The allowed differences between the responses of Apache Kafka and Odradek, with reasons. Any other one fails a test.

The tests leave out some requests, because Kafka fails on them: it never answers null records or a subscription that it
cannot parse, and returns unknown server errors for an unknown operation of IncrementalAlterConfigs and for Metadata of
a topic without name and id. They also leave out text that is not UTF-8: Kafka replaces the bytes, we close the
connection.

A rule names an API (or * for all), a pattern for the field's path, and the condition that both values must meet.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple


class Difference(NamedTuple):
    """An allowed difference: the field, the reason, and the remaining condition on the values."""

    api: str
    path: str
    reason: str
    condition: Callable[[Any, Any], bool]

    def allows(self, api: str, path: str, theirs: Any, ours: Any) -> bool:
        """Return whether this rule covers the field and allows the two values."""
        return self.api in (api, "*") and re.fullmatch(self.path, path) is not None and self.condition(theirs, ours)


def _same_nullness(theirs: Any, ours: Any) -> bool:
    return (theirs is None) == (ours is None)


def _same_presence(theirs: Any, ours: Any) -> bool:
    """Return whether both texts or neither are empty: Kafka uses null in one place and an empty text in another."""
    return bool(theirs) == bool(ours)


def _same_sign(theirs: Any, ours: Any) -> bool:
    return isinstance(theirs, int) and isinstance(ours, int) and (theirs < 0) == (ours < 0)


def _padded(theirs: Any, ours: Any) -> bool:
    """Return whether Kafka's records are ours with padding. Kafka determines the size before it converts the records,
    and fills the rest with the head of a batch at offset -1."""
    return bool(theirs.startswith(ours)) and theirs[len(ours) : len(ours) + 8] == bytes([255] * 8)


def _zero_or_not(theirs: Any, ours: Any) -> bool:
    return bool(theirs) == bool(ours)


_GROUP_FEATURES = frozenset({"group.version", "share.version", "streams.version"})


def _without_group_features(theirs: Any, ours: Any) -> bool:
    return bool([each for each in theirs if each["name"] not in _GROUP_FEATURES] == ours)


DIFFERENCES = (
    Difference("*", r"(.*\.)?(batch_index_)?error_message", "the wording is ours", _same_presence),
    Difference("*", r"(.*\.)?producer_id", "each broker generates its own ids", _same_sign),
    Difference("Produce", r".*\.log_append_time_ms", "the time of the append", _same_sign),
    Difference("Fetch", r".*\.records", "no padding after down-conversion", _padded),
    Difference("Fetch", r"session_id", "a random number", _zero_or_not),
    Difference("DescribeLogDirs", r"results\[\d+\]\.log_dir", "each broker has its own directory", _same_nullness),
    Difference("DescribeLogDirs", r".*\.(total_bytes|usable_bytes)", "the space of the disk", _same_sign),
    Difference("DescribeQuorum", r".*\.(leader_epoch|high_watermark|log_end_offset)", "its own log", _same_sign),
    Difference("DescribeQuorum", r".*\.last_(fetch|caught_up)_timestamp", "times of fetches", _same_sign),
    Difference("DescribeProducers", r".*\.last_timestamp", "a time of the broker's clock", _same_sign),
    Difference("DescribeTransactions", r".*\.transaction_start_time_ms", "a time of the broker's clock", _same_sign),
    Difference(
        "ApiVersions",
        r"(supported|finalized)_features",
        "features of groups whose protocols are not served are not listed",
        _without_group_features,
    ),
    Difference("ApiVersions", r"finalized_features_epoch", "an offset of its own metadata log", _same_sign),
)  # fmt: skip


def unexplained(api: str, path: str, theirs: Any, ours: Any) -> bool:
    """Return whether two values differ and no rule allows it."""
    return theirs != ours and not any(each.allows(api, path, theirs, ours) for each in DIFFERENCES)
