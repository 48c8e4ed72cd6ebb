"""The allowed differences between the responses of Apache Kafka and Odradek, with reasons. Any other one is a failure.

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
    why: str
    holds: Callable[[Any, Any], bool]

    def allows(self, api: str, path: str, theirs: Any, ours: Any) -> bool:
        """Return whether this rule covers the field and allows the two values."""
        return self.api in (api, "*") and re.fullmatch(self.path, path) is not None and self.holds(theirs, ours)


def _null_alike(theirs: Any, ours: Any) -> bool:
    return (theirs is None) == (ours is None)


def _told_alike(theirs: Any, ours: Any) -> bool:
    """Return whether both texts or neither are empty: Kafka uses null in one place and an empty text in another."""
    return bool(theirs) == bool(ours)


def _sign_alike(theirs: Any, ours: Any) -> bool:
    return isinstance(theirs, int) and isinstance(ours, int) and (theirs < 0) == (ours < 0)


def _padded(theirs: Any, ours: Any) -> bool:
    """Return whether Kafka's records are ours with padding. Kafka determines the size before it converts the records,
    and fills the rest with the head of a batch at offset -1."""
    return bool(theirs.startswith(ours)) and theirs[len(ours) : len(ours) + 8] == bytes([255] * 8)


def _zero_alike(theirs: Any, ours: Any) -> bool:
    return bool(theirs) == bool(ours)


_GROUP_FEATURES = frozenset({"group.version", "share.version", "streams.version"})


def _without_group_features(theirs: Any, ours: Any) -> bool:
    return bool([each for each in theirs if each["name"] not in _GROUP_FEATURES] == ours)


DIFFERENCES = (
    Difference("*", r"(.*\.)?(batch_index_)?error_message", "the wording is ours", _told_alike),
    Difference("*", r"(.*\.)?producer_id", "each broker hands out its own", _sign_alike),
    Difference("Produce", r".*\.log_append_time_ms", "the moment of appending", _sign_alike),
    Difference("Fetch", r".*\.records", "no padding after down-conversion", _padded),
    Difference("Fetch", r"session_id", "drawn at random", _zero_alike),
    Difference("DescribeLogDirs", r"results\[\d+\]\.log_dir", "a folder of this broker's own", _null_alike),
    Difference("DescribeLogDirs", r".*\.(total_bytes|usable_bytes)", "the disk's", _sign_alike),
    Difference("DescribeQuorum", r".*\.(leader_epoch|high_watermark|log_end_offset)", "its own log", _sign_alike),
    Difference("DescribeQuorum", r".*\.last_(fetch|caught_up)_timestamp", "moments", _sign_alike),
    Difference("DescribeProducers", r".*\.last_timestamp", "a moment", _sign_alike),
    Difference("DescribeTransactions", r".*\.transaction_start_time_ms", "a moment", _sign_alike),
    Difference(
        "ApiVersions",
        r"(supported|finalized)_features",
        "features of groups whose protocols are not served are not listed",
        _without_group_features,
    ),
    Difference("ApiVersions", r"finalized_features_epoch", "its own metadata log", _sign_alike),
)  # fmt: skip


def unexplained(api: str, path: str, theirs: Any, ours: Any) -> bool:
    """Return whether two values differ and no rule allows it."""
    return theirs != ours and not any(each.allows(api, path, theirs, ours) for each in DIFFERENCES)
