"""One entry of `log.dirs`: its lock, identity, checkpoints and marker of a clean shutdown, and all logs in it.

Owns which partitions there are on this disk and in which state (served, failed, set aside). The partitions' roles are
the broker's; a log's files are `Log`'s. Failed partitions do not hinder their neighbours.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from odradek_log import file_names
from odradek_log.checkpoints import TopicPartition
from odradek_log.disk import Disk, Lock, RealDisk
from odradek_log.foreign import partitions_in, refuse_foreign
from odradek_log.log import Log
from odradek_log.log_config import LogConfig
from odradek_log.log_environment import PRODUCER_EXPIRATION_MS, Later, LogEnvironment
from odradek_log.log_errors import CorruptLogError, LogDirectoryError
from odradek_log.log_opening import create_log, open_log
from odradek_log.meta_properties import MetaProperties
from odradek_log.offset_checkpoint import OffsetCheckpoint
from odradek_log.open_files import OpenFiles
from odradek_log.reporting import Reporter, StandardReporter
from odradek_wire.records.record_errors import CorruptRecordError
from odradek_wire.uuid import METADATA_TOPIC_ID, Uuid

if TYPE_CHECKING:
    from pathlib import Path

_OPEN_FILES = 512
_FLUSH_THREADS = 16
_NO_PARTITIONS = (file_names.CLUSTER_METADATA_DIR, file_names.REMOTE_INDEX_CACHE_DIR, file_names.LOST_AND_FOUND_DIR)


class LogDirectory:
    """A directory of logs. `open` locks it, `load` finds its logs, `close` leaves the marker of a clean shutdown."""

    def __init__(self, path: str, env: LogEnvironment, lock: Lock, meta: MetaProperties | None) -> None:
        self.path = path
        self.env = env
        self.meta = meta
        """None until `write_meta` in a fresh directory."""
        self.logs: dict[TopicPartition, Log] = {}
        self.futures: dict[TopicPartition, Log] = {}
        """Copies on their way here from another directory: `topic-partition.unique-future`."""
        self.failed: dict[TopicPartition, Exception] = {}
        """Partitions that could not be opened (KAFKA_STORAGE_ERROR), each with the reason."""
        self.clean_shutdown = False
        """Whether the last owner closed the directory properly."""
        self.previous_broker_epoch = -1
        self.offline = False
        """Whether its disk has failed: nothing here is read or written any more."""
        self._lock = lock
        self._recovery_points = OffsetCheckpoint(env, self._file(file_names.RECOVERY_POINT_CHECKPOINT))
        self._start_offsets = OffsetCheckpoint(env, self._file(file_names.LOG_START_CHECKPOINT))
        self._high_watermarks = OffsetCheckpoint(env, self._file(file_names.REPLICATION_CHECKPOINT))
        self._cleaned = OffsetCheckpoint(env, self._file(file_names.CLEANER_CHECKPOINT))
        # What the checkpoints said of the failed ones, to be kept until somebody repairs them.
        self._failed_recovery_points: dict[TopicPartition, int] = {}
        self._failed_start_offsets: dict[TopicPartition, int] = {}
        self._failed_cleaned: dict[TopicPartition, int] = {}

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        wall_ms: Callable[[], int],
        later: Later,
        disk: Disk | None = None,
        reporter: Reporter | None = None,
        producer_expiration_ms: int = PRODUCER_EXPIRATION_MS,
        open_files: int = _OPEN_FILES,
        random_below: Callable[[int], int] | None = None,
    ) -> LogDirectory:
        """Lock the directory, which is created if it is missing, and read `meta.properties`.

        `LogDirectoryError` when it is in use, of a format newer than ours, or not a broker's: then nothing is written.
        """
        disk = disk or RealDisk()
        directory = os.fspath(path)
        refuse_foreign(disk, directory)
        disk.make_directories(directory)
        lock = disk.lock(f"{directory}/{file_names.LOCK}")
        env = LogEnvironment(
            disk=disk,
            wall_ms=wall_ms,
            open_files=OpenFiles(disk, open_files),
            later=later,
            reporter=reporter or StandardReporter(),
            producer_expiration_ms=producer_expiration_ms,
        )
        if random_below is not None:
            env.random_below = random_below
        try:
            meta_path = f"{directory}/{file_names.META_PROPERTIES}"
            meta = MetaProperties.decode(disk.read_file(meta_path), meta_path) if disk.exists(meta_path) else None
        except BaseException:
            lock.release()
            raise
        return cls(directory, env, lock, meta)

    def write_meta(self, meta: MetaProperties) -> None:
        """Say whose directory this is."""
        self.env.disk.replace_file(self._file(file_names.META_PROPERTIES), meta.encode(self.env.wall_ms()))
        self.meta = meta

    def partitions_on_disk(self) -> list[str]:
        """The names of the partitions' directories, whether they are loaded or not."""
        return partitions_in(self.env.disk, self.path)

    # --- the logs

    def has_log(self, topic: str, partition: int) -> bool:
        """Whether there is a log of that name, be it one that cannot be opened."""
        return (topic, partition) in self.logs or (topic, partition) in self.failed

    def load(self, config_of: Callable[[str], LogConfig]) -> None:
        """Open every partition's directory. `config_of` maps a topic's name to its settings.

        A partition that cannot be opened goes into `failed`; a directory that is no partition's is an error, as in
        Kafka.
        """
        disk = self.env.disk
        self._read_marker()
        recovery_points = self._recovery_points.read()
        start_offsets = self._start_offsets.read()
        cleaned = self._cleaned.read()
        for name in sorted(disk.names(self.path)):
            if name in _NO_PARTITIONS:
                continue
            parsed = file_names.parse_dir(name)
            if parsed is None:
                if disk.is_directory(f"{self.path}/{name}"):
                    raise LogDirectoryError(
                        f"{self.path}/{name} is no partition's directory, and nothing else may be here"
                    )
                continue
            topic, partition, suffix = parsed
            if not disk.is_directory(f"{self.path}/{name}"):
                continue
            if suffix == file_names.DELETE_DIR:
                self._remove_later(f"{self.path}/{name}", config_of(topic).file_delete_delay_ms)
            elif suffix == file_names.FUTURE_DIR:
                self._load_future(name, (topic, partition), config_of(topic))
            elif suffix:
                self.env.reporter.warning("leaving a set-aside partition alone", directory=f"{self.path}/{name}")
            else:
                key = topic, partition
                self._load_log(key, config_of(topic), recovery_points.get(key, 0), start_offsets.get(key, 0))
                self._set_cleaner_checkpoint(key, cleaned.get(key))

    def _load_log(self, key: TopicPartition, config: LogConfig, recovery_point: int, start_offset: int) -> None:
        topic, partition = key
        directory = f"{self.path}/{file_names.partition_dir(topic, partition)}"
        try:
            self.logs[key] = open_log(
                self.env,
                directory,
                topic=topic,
                partition=partition,
                config=config,
                recovery_point=recovery_point,
                log_start_offset=start_offset,
                clean_shutdown=self.clean_shutdown,
            )
        except (OSError, CorruptLogError, CorruptRecordError) as error:
            self.failed[key] = error
            self._failed_recovery_points[key] = recovery_point
            if start_offset:
                self._failed_start_offsets[key] = start_offset
            self.env.reporter.error(
                "partition stays offline",
                partition=f"{topic}-{partition}",
                directory=directory,
                error=f"{type(error).__name__}: {error}",
            )

    def _set_cleaner_checkpoint(self, key: TopicPartition, offset: int | None) -> None:
        log = self.logs.get(key)
        if log is not None:
            log.cleaner.checkpoint = offset
        elif offset is not None:
            self._failed_cleaned[key] = offset

    def _load_future(self, name: str, key: TopicPartition, config: LogConfig) -> None:
        """Read all of it, since it is in no checkpoint. Remove a copy that cannot be opened, and a second copy of the
        same partition: the broker can copy it again."""
        topic, partition = key
        directory = f"{self.path}/{name}"
        if key in self.futures:
            other = self.futures[key].directory
            self.env.reporter.warning("removing a second copy of a partition", directory=directory, kept=other)
            self._remove_later(directory, config.file_delete_delay_ms)
            return
        try:
            self.futures[key] = open_log(
                self.env,
                directory,
                topic=topic,
                partition=partition,
                config=config,
                clean_shutdown=self.clean_shutdown,
            )
        except (OSError, CorruptLogError, CorruptRecordError) as error:
            self.env.reporter.warning("removing a copy that cannot be finished", directory=directory, error=str(error))
            self._remove_later(directory, config.file_delete_delay_ms)

    # --- copies of partitions from other directories

    def create_future_log(
        self, topic: str, partition: int, topic_id: Uuid | None, config: LogConfig, unique: str
    ) -> Log:
        """An empty log that will take the place of another directory's. Raises `OSError`."""
        key = topic, partition
        assert key not in self.logs
        assert key not in self.futures
        directory = f"{self.path}/{file_names.suffixed_dir(topic, partition, unique, file_names.FUTURE_DIR)}"
        log = create_log(self.env, directory, topic=topic, partition=partition, topic_id=topic_id, config=config)
        self.futures[key] = log
        return log

    def promote_future_log(self, topic: str, partition: int) -> Log:
        """The copy is the partition now: it is closed, renamed and opened again. Raises `OSError` and what opening
        raises; it is no copy any more then, unless the checkpoints cannot be written."""
        key = topic, partition
        self._remove_stale_checkpoint_entries(key)
        future = self.futures.pop(key)
        config, end = future.config, future.log_end_offset
        start = future.log_start_offset
        future.close()
        directory = f"{self.path}/{file_names.partition_dir(topic, partition)}"
        self.env.disk.rename(future.directory, directory)
        # Before the old log goes: a power loss must not leave neither.
        self.env.disk.sync_directory(self.path)
        log = self.logs[key] = open_log(
            self.env,
            directory,
            topic=topic,
            partition=partition,
            config=config,
            recovery_point=end,
            log_start_offset=start,
            clean_shutdown=True,
        )
        return log

    def delete_future_log(self, topic: str, partition: int, unique: str) -> None:
        """The copy is not wanted any more. What the disk refuses is reported, and left for a person."""
        future = self.futures.pop((topic, partition))
        path = f"{self.path}/{file_names.suffixed_dir(topic, partition, unique, file_names.DELETE_DIR)}"
        try:
            future.rename(path)
        except OSError as error:
            self.env.reporter.error("could not remove a copy", directory=future.directory, error=str(error))
            future.abandon()
        else:
            self._remove_later(path, future.config.file_delete_delay_ms)

    def create_log(self, topic: str, partition: int, topic_id: Uuid | None, config: LogConfig) -> Log:
        """A new partition. Raises `OSError`."""
        key = topic, partition
        assert key not in self.logs
        self._remove_stale_checkpoint_entries(key)
        directory = f"{self.path}/{file_names.partition_dir(topic, partition)}"
        try:
            log = create_log(self.env, directory, topic=topic, partition=partition, topic_id=topic_id, config=config)
        except FileExistsError:
            raise
        except OSError:
            # What was begun must not stand in the way of the next attempt.
            with suppress(OSError):
                self.env.disk.remove_tree(directory)
            raise
        self.logs[key] = log
        return log

    def _remove_stale_checkpoint_entries(self, key: TopicPartition) -> None:
        """Should we crash, a partition must not be begun or recovered where a deleted one of its name was: the
        checkpoints know names only. (Kafka writes them with each deletion, LogManager.asyncDelete.)"""
        if self._recovery_points.names(key) or self._start_offsets.names(key) or self._cleaned.names(key):
            self.prepare_checkpoints()
            if not self.write_checkpoints():
                raise OSError(f"the checkpoints of {self.path} name a deleted partition and cannot be written")

    def open_metadata_log(self, config: LogConfig) -> Log:
        """`__cluster_metadata-0`, made if need be. As in Kafka it stands in no checkpoint and is checked at every
        start; who opens it closes it."""
        directory = f"{self.path}/{file_names.CLUSTER_METADATA_DIR}"
        topic, partition = "__cluster_metadata", 0
        if self.env.disk.exists(directory):
            return open_log(self.env, directory, topic=topic, partition=partition, config=config)
        return create_log(
            self.env, directory, topic=topic, partition=partition, topic_id=METADATA_TOPIC_ID, config=config
        )

    def delete_log(self, topic: str, partition: int, unique: str) -> None:
        """The partition is gone: its directory is renamed to `…-delete` now and removed after `file.delete.delay.ms`.
        Raises `OSError`; the partition is here as before then, and may be deleted again.

        `unique` are 32 hex digits of a random UUID.
        """
        self._set_aside(topic, partition, unique, file_names.DELETE_DIR)

    def set_aside_as_stray(self, topic: str, partition: int, unique: str) -> None:
        """The cluster knows nothing of this partition: keep its directory under another name; a person may decide.
        Raises `OSError` as `delete_log` does."""
        self._set_aside(topic, partition, unique, file_names.STRAY_DIR)

    def _set_aside(self, topic: str, partition: int, unique: str, suffix: str) -> None:
        """Rename first, forget then: what still has the name must not be forgotten, or nobody could use it again."""
        key = topic, partition
        log = self.logs.get(key)
        source = f"{self.path}/{file_names.partition_dir(topic, partition)}"
        target = f"{self.path}/{file_names.suffixed_dir(topic, partition, unique, suffix)}"
        try:
            if log is not None:
                log.rename(target)
            else:
                self.env.disk.rename(source, target)
        except FileNotFoundError:
            if self.env.disk.exists(source):
                raise
            # Somebody else took it away: that frees the name, too.
            if log is not None:
                log.abandon()
        else:
            if suffix == file_names.DELETE_DIR:
                self._remove_later(target, (LogConfig() if log is None else log.config).file_delete_delay_ms)
        self.logs.pop(key, None)
        self.failed.pop(key, None)
        self._failed_recovery_points.pop(key, None)
        self._failed_start_offsets.pop(key, None)
        self._failed_cleaned.pop(key, None)

    def _remove_later(self, path: str, delay_ms: int) -> None:
        disk, reporter = self.env.disk, self.env.reporter

        def remove() -> None:
            try:
                disk.remove_tree(path)
            except FileNotFoundError:
                return
            except OSError as error:
                reporter.error("could not remove a deleted partition", directory=path, error=str(error))

        self.env.later(delay_ms, remove)

    # --- checkpoints

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """As last written."""
        return self._high_watermarks.read()

    def prepare_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """What `write_high_watermarks` is to write; the mapping is not changed any more. Whether that is news."""
        return self._high_watermarks.prepare(offsets)

    def write_high_watermarks(self) -> bool:
        """Any thread. False when they could not be written: reported, the old ones stay."""
        return self._high_watermarks.write()

    def prepare_checkpoints(self) -> None:
        """Note, for `write_checkpoints`, the recovery points of all logs, and the start offsets that differ from the
        first segment's. What the recovery points name was forced to the disk before."""
        recovery_points = {key: log.recovery_point for key, log in self.logs.items()}
        self._recovery_points.prepare(self._failed_recovery_points | recovery_points)
        self.prepare_start_offsets()
        self.prepare_cleaner_checkpoint()

    def prepare_start_offsets(self) -> None:
        """As `prepare_checkpoints`, the start offsets alone, for `write_start_offsets`."""
        start_offsets = {
            key: log.log_start_offset for key, log in self.logs.items() if log.log_start_offset > log.first_base_offset
        }
        self._start_offsets.prepare(self._failed_start_offsets | start_offsets)

    def prepare_cleaner_checkpoint(self) -> None:
        """As `prepare_checkpoints`, of what the cleaner has done alone, for `write_cleaner_checkpoint`."""
        cleaned = {key: at for key, log in self.logs.items() if (at := log.cleaner.checkpoint) is not None}
        if cleaned or self._cleaned.is_known:
            self._cleaned.prepare(self._failed_cleaned | cleaned)

    def write_checkpoints(self) -> bool:
        """Write what was offered. Any thread. False when one could not be written: reported, its old content stays."""
        recovered = self._recovery_points.write()
        started = self.write_start_offsets()
        cleaned = self.write_cleaner_checkpoint()
        return recovered and started and cleaned

    def write_cleaner_checkpoint(self) -> bool:
        """As `write_checkpoints`, of what the cleaner has done alone."""
        return self._cleaned.write()

    def write_start_offsets(self) -> bool:
        """As `write_checkpoints`, of the start offsets alone."""
        return self._start_offsets.write()

    def _file(self, name: str) -> str:
        return f"{self.path}/{name}"

    # --- the end

    def _read_marker(self) -> None:
        """Take the marker of the clean shutdown away: should we crash, it must not be believed."""
        path = self._file(file_names.CLEAN_SHUTDOWN)
        disk = self.env.disk
        if not disk.exists(path):
            return
        self.clean_shutdown = True
        # {"version":0,"brokerEpoch":12}; an empty file, as releases before 3.7 left it, says nothing.
        epoch = re.search(rb'"brokerEpoch"\s*:\s*(-?\d+)', disk.read_file(path))
        self.previous_broker_epoch = int(epoch[1]) if epoch else -1
        disk.remove(path)

    def go_offline(self) -> None:
        """The disk has failed under something here, and is trusted with nothing any more."""
        self.offline = True
        for log in [*self.logs.values(), *self.futures.values()]:
            if log.failure is None:
                log.abandon()

    def close(self, broker_epoch: int = -1) -> None:
        """Close every log, write the checkpoints and the marker. With a log that could not be closed the marker is left
        out, so that the next start looks at everything."""
        if self.offline:
            self._lock.release()
            return
        self._flush_all()
        clean = True
        for log in [*self.logs.values(), *self.futures.values()]:
            try:
                log.close()
            except (OSError, CorruptLogError):
                pass  # reported by the log
            except Exception as error:
                # A mistake of ours in one log is none of its neighbours' business.
                self.env.reporter.error("partition cannot be closed", partition=log.name, error=repr(error))
            clean = clean and log.is_closed
        self.prepare_checkpoints()
        if self.write_checkpoints() and clean:
            self._write_marker(broker_epoch)
        self._lock.release()

    def _write_marker(self, broker_epoch: int) -> None:
        marker = f'{{"version":0,"brokerEpoch":{broker_epoch}}}'
        path = self._file(file_names.CLEAN_SHUTDOWN)
        try:
            self.env.disk.replace_file(path, marker.encode())
        except OSError as error:
            self.env.reporter.error("could not write the marker of a clean shutdown", file=path, error=str(error))

    def _flush_all(self) -> None:
        """Side by side, because a disk answers many waiting syncs almost as fast as one."""
        for log in self.logs.values():
            if log.failure is None:
                with suppress(Exception):  # as below
                    log.seal()
        unflushed = [
            log
            for log in self.logs.values()
            if log.failure is None and (log.recovery_point < log.log_end_offset or log.has_unflushed_sealed)
        ]
        if len(unflushed) < 2:
            return
        # Not worth an import before the end.
        from concurrent.futures import ThreadPoolExecutor

        def flush(log: Log) -> None:
            with suppress(Exception):  # reported by the log, or when it is closed
                log.flush_for_close()

        with ThreadPoolExecutor(_FLUSH_THREADS) as pool:
            for _ in pool.map(flush, unflushed):
                pass

    def abandon(self) -> None:
        """Let go as a killed process would: nothing is written, descriptors and lock are given back."""
        for log in [*self.logs.values(), *self.futures.values()]:
            log.abandon()
        self._lock.release()
