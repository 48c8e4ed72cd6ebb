"""The names of Kafka's files and directories (LogFileUtils, UnifiedLog): format and parse them. Opens no file."""

from __future__ import annotations

import re

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
SEGMENT_SUFFIXES = (LOG, INDEX, TIME_INDEX, TXN_INDEX)

DELETE_DIR = "-delete"
STRAY_DIR = "-stray"
FUTURE_DIR = "-future"

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
REPLICATION_CHECKPOINT = "replication-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"
CLUSTER_METADATA_DIR = "__cluster_metadata-0"
REMOTE_INDEX_CACHE_DIR = "remote-log-index-cache"
LOST_AND_FOUND_DIR = "lost+found"
"""A directory at the root of a file system."""

_MAX_NAME = 255
_SUFFIXED = re.compile(r"(\S+)-(\d+)\.[0-9a-f]{32}(-delete|-future|-stray)")


def segment_name(offset: int, suffix: str) -> str:
    """Return the name of a file of a segment: the base offset in twenty digits, so that names sort like offsets."""
    return f"{offset:020d}{suffix}"


def offset_of(name: str) -> int | None:
    """Return the offset in the name of a file of a segment, or of a snapshot; None for another name."""
    digits = name[: name.find(".")]
    return int(digits) if len(digits) == 20 and digits.isdigit() else None


def partition_dir(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def suffixed_dir(topic: str, partition: int, unique: str, suffix: str) -> str:
    """Return `topic-partition.unique-delete`, with the topic cut to the maximum length of a file name.

    `unique` has the 32 hex digits of a UUID.
    """
    end = f"-{partition}.{unique}{suffix}"
    return topic[: _MAX_NAME - len(end)] + end


def parse_dir(name: str) -> tuple[str, int, str] | None:
    """Return (topic, partition, suffix) of the directory of a partition; None for another name."""
    match = _SUFFIXED.fullmatch(name)
    if match:
        return match[1], int(match[2]), match[3]
    if name.endswith((DELETE_DIR, STRAY_DIR, FUTURE_DIR)) and "." in name:
        return None
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not partition.isdigit():
        return None
    return topic, int(partition), ""
