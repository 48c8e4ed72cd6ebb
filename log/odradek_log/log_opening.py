"""Create the log of a partition, or open it from its directory and repair it after a crash (`log_loader`)."""

from __future__ import annotations

from odradek_log import log_loader
from odradek_log.file_names import PARTITION_METADATA
from odradek_log.leader_epoch_cache import LeaderEpochCache
from odradek_log.log import Log
from odradek_log.log_config import LogConfig
from odradek_log.log_environment import LogEnvironment
from odradek_log.log_segment import LogSegment
from odradek_log.partition_metadata import decode as decode_topic_id
from odradek_log.partition_metadata import encode as encode_topic_id
from odradek_log.partition_metadata import is_torn
from odradek_log.producer_snapshots import ProducerSnapshots
from odradek_wire.uuid import Uuid


def create_log(
    env: LogEnvironment, directory: str, *, topic: str, partition: int, topic_id: Uuid | None, config: LogConfig
) -> Log:
    """Create a new, empty log and its directory. Raises OSError."""
    env.disk.make_directory(directory)
    if topic_id is not None:
        env.disk.write_file(f"{directory}/{PARTITION_METADATA}", encode_topic_id(topic_id))
    snapshots = ProducerSnapshots(env, directory, [])
    loaded = log_loader.LoadedLog(
        [LogSegment.without_files(env, directory, config)], 0, 0, LeaderEpochCache(), snapshots
    )
    return Log(
        env=env,
        directory=directory,
        topic=topic,
        partition=partition,
        topic_id=topic_id,
        config=config,
        loaded=loaded,
    )


def open_log(
    env: LogEnvironment,
    directory: str,
    *,
    topic: str,
    partition: int,
    config: LogConfig,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    clean_shutdown: bool = False,
) -> Log:
    """Open an existing log, and repair it unless it was shut down cleanly.

    Reads the topic id from `partition.metadata`. Raises CorruptLogError or OSError.
    """
    loaded = log_loader.load(
        env,
        directory,
        config,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        clean_shutdown=clean_shutdown,
    )
    topic_id = _read_topic_id(env, f"{directory}/{PARTITION_METADATA}")
    recovery_point = min(recovery_point, loaded.next_offset)
    log = Log(
        env=env,
        directory=directory,
        topic=topic,
        partition=partition,
        topic_id=topic_id,
        config=config,
        loaded=loaded,
        recovery_point=recovery_point,
    )
    # After a crash the .txnindex files of the recovered segments may be incomplete.
    recovered_from = None if clean_shutdown else log.segments.containing(recovery_point).base_offset
    if not clean_shutdown:
        # Their index files may be torn, too, and no start checks segments below the recovery point.
        for segment in log.segments.from_offset(recovery_point)[:-1]:
            log.segments.seal(segment)
        if log.segments.active.size:
            log.segments.active.write_new_index_entries()
    log.rebuild_producer_state(recovered_from=recovered_from, clean_shutdown=clean_shutdown)
    return log


def _read_topic_id(env: LogEnvironment, path: str) -> Uuid | None:
    """Return None without the file, or if a power loss left only a part of it."""
    try:
        data = env.disk.read_file(path)
    except FileNotFoundError:
        return None
    return None if is_torn(data) else decode_topic_id(data, path)
