"""The kinds of groups that Kafka knows."""

from __future__ import annotations

from enum import Enum


class GroupType(Enum):
    """The kind of a group; the value is its type in ListGroups."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"
