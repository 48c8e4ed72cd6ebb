"""One entry of `log.dirs`: its lock, identity, checkpoints, clean shutdown file and logs.

Owns which partitions are on this disk, and their state: open, failed, or renamed as deleted or stray. Leaves the roles
of partitions to the broker, and the files of a log to `Log`. A failed partition does not affect the others.
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
_OTHER_DIRECTORIES = (file_names.CLUSTER_METADATA_DIR, file_names.REMOTE_INDEX_CACHE_DIR, file_names.LOST_AND_FOUND_DIR)


class LogDirectory:
    """A directory of logs. `open` locks it, `load` opens its logs, `close` writes the clean shutdown file."""

    def __init__(self, path: str, env: LogEnvironment, lock: Lock, meta: MetaProperties | None) -> None:
        self.path = path
        self.env = env
        self.meta = meta
        """The content of `meta.properties`; None in a new directory until `write_meta`."""
        self.logs: dict[TopicPartition, Log] = {}
        self.futures: dict[TopicPartition, Log] = {}
        """Future logs: copies of partitions of another directory, `topic-partition.unique-future`."""
        self.failed: dict[TopicPartition, Exception] = {}
        """The partitions that could not be opened (KAFKA_STORAGE_ERROR), with the errors."""
        self.clean_shutdown = False
        """Whether the last broker closed the directory cleanly."""
        self.previous_broker_epoch = -1
        self.offline = False
        """Whether the disk has failed: no log is read or written any more."""
        self._lock = lock
        self._recovery_points = OffsetCheckpoint(env, self._file(file_names.RECOVERY_POINT_CHECKPOINT))
        self._start_offsets = OffsetCheckpoint(env, self._file(file_names.LOG_START_CHECKPOINT))
        self._high_watermarks = OffsetCheckpoint(env, self._file(file_names.REPLICATION_CHECKPOINT))
        self._cleaned = OffsetCheckpoint(env, self._file(file_names.CLEANER_CHECKPOINT))
        # The entries of failed partitions, which the checkpoints keep until an operator repairs the partitions.
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
        """Create the directory if it is missing, lock it and read `meta.properties`.

        Raises LogDirectoryError, and writes nothing, if it is in use, has a newer format or is not a log directory.
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
        """Write `meta.properties`."""
        self.env.disk.replace_file(self._file(file_names.META_PROPERTIES), meta.encode(self.env.wall_ms()))
        self.meta = meta

    def partitions_on_disk(self) -> list[str]:
        """Return the names of the directories of partitions, loaded or not."""
        return partitions_in(self.env.disk, self.path)

    # --- the logs

    def has_log(self, topic: str, partition: int) -> bool:
        """Return whether the directory has this partition, even a failed one."""
        return (topic, partition) in self.logs or (topic, partition) in self.failed

    def load(self, config_of: Callable[[str], LogConfig]) -> None:
        """Open the logs of all partitions. `config_of` returns the settings of a topic.

        Adds partitions that cannot be opened to `failed`. Like Kafka, raises LogDirectoryError if there is a directory
        that is not a partition's.
        """
        disk = self.env.disk
        self._read_clean_shutdown_file()
        recovery_points = self._recovery_points.read()
        start_offsets = self._start_offsets.read()
        cleaned = self._cleaned.read()
        for name in sorted(disk.names(self.path)):
            if name in _OTHER_DIRECTORIES:
                continue
            parsed = file_names.parse_dir(name)
            if parsed is None:
                if disk.is_directory(f"{self.path}/{name}"):
                    raise LogDirectoryError(
                        f"{self.path}/{name} is not the directory of a partition; move it out of the log directory"
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
                self.env.reporter.warning("ignoring a stray partition", directory=f"{self.path}/{name}")
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
        """Open a future log; after a crash, recover all of it, because no checkpoint has it. Remove one that cannot be
        opened, and a second one of the same partition: the broker can copy it again."""
        topic, partition = key
        directory = f"{self.path}/{name}"
        if key in self.futures:
            other = self.futures[key].directory
            self.env.reporter.warning("removing a second future log of a partition", directory=directory, kept=other)
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
            self.env.reporter.warning(
                "removing a future log that cannot be opened", directory=directory, error=str(error)
            )
            self._remove_later(directory, config.file_delete_delay_ms)

    # --- future logs

    def create_future_log(
        self, topic: str, partition: int, topic_id: Uuid | None, config: LogConfig, unique: str
    ) -> Log:
        """Create an empty future log of a partition in another directory. Raises OSError."""
        key = topic, partition
        assert key not in self.logs
        assert key not in self.futures
        directory = f"{self.path}/{file_names.suffixed_dir(topic, partition, unique, file_names.FUTURE_DIR)}"
        log = create_log(self.env, directory, topic=topic, partition=partition, topic_id=topic_id, config=config)
        self.futures[key] = log
        return log

    def promote_future_log(self, topic: str, partition: int) -> Log:
        """Make the future log the log of the partition: close it, rename it, open it again. Raises OSError and
        CorruptLogError, after which it is not in `futures` any more, unless the checkpoints could not be written."""
        key = topic, partition
        self._remove_stale_checkpoint_entries(key)
        future = self.futures.pop(key)
        config, end = future.config, future.log_end_offset
        start = future.log_start_offset
        future.close()
        directory = f"{self.path}/{file_names.partition_dir(topic, partition)}"
        self.env.disk.rename(future.directory, directory)
        # Before the caller deletes the old log: a power loss must leave one of the two.
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
        """Delete a future log. After a disk error, which is logged, the directory stays for an operator."""
        future = self.futures.pop((topic, partition))
        path = f"{self.path}/{file_names.suffixed_dir(topic, partition, unique, file_names.DELETE_DIR)}"
        try:
            future.rename(path)
        except OSError as error:
            self.env.reporter.error("failed to remove a future log", directory=future.directory, error=str(error))
            future.close_without_writing()
        else:
            self._remove_later(path, future.config.file_delete_delay_ms)

    # --- creating and deleting logs

    def create_log(self, topic: str, partition: int, topic_id: Uuid | None, config: LogConfig) -> Log:
        """Create the log of a new partition. Raises OSError."""
        key = topic, partition
        assert key not in self.logs
        self._remove_stale_checkpoint_entries(key)
        directory = f"{self.path}/{file_names.partition_dir(topic, partition)}"
        try:
            log = create_log(self.env, directory, topic=topic, partition=partition, topic_id=topic_id, config=config)
        except FileExistsError:
            raise
        except OSError:
            # Remove the partial directory, so that the next attempt can create it.
            with suppress(OSError):
                self.env.disk.remove_tree(directory)
            raise
        self.logs[key] = log
        return log

    def _remove_stale_checkpoint_entries(self, key: TopicPartition) -> None:
        """Remove the entries of a deleted partition of this name from the checkpoints, which have names only: after a
        crash they would apply to the new one. (Kafka does so with each deletion, LogManager.asyncDelete.)"""
        if (
            self._recovery_points.has_offset_of(key)
            or self._start_offsets.has_offset_of(key)
            or self._cleaned.has_offset_of(key)
        ):
            self.prepare_checkpoints()
            if not self.write_checkpoints():
                raise OSError(
                    f"the checkpoints of {self.path} have a deleted partition of this name and cannot be written"
                )

    def open_metadata_log(self, config: LogConfig) -> Log:
        """Open or create `__cluster_metadata-0`. Like in Kafka, no checkpoint has it, and every start recovers it. The
        caller closes it."""
        directory = f"{self.path}/{file_names.CLUSTER_METADATA_DIR}"
        topic, partition = "__cluster_metadata", 0
        if self.env.disk.exists(directory):
            return open_log(self.env, directory, topic=topic, partition=partition, config=config)
        return create_log(
            self.env, directory, topic=topic, partition=partition, topic_id=METADATA_TOPIC_ID, config=config
        )

    def delete_log(self, topic: str, partition: int, unique: str) -> None:
        """Delete a partition: rename its directory to `…-delete` now, remove it after `file.delete.delay.ms`. Raises
        OSError, after which the partition is unchanged and can be deleted again.

        `unique` has the 32 hex digits of a random UUID.
        """
        self._set_aside(topic, partition, unique, file_names.DELETE_DIR)

    def set_aside_as_stray(self, topic: str, partition: int, unique: str) -> None:
        """Rename the directory of a partition that the cluster does not have to `…-stray`, for an operator to decide.
        Raises OSError as `delete_log` does."""
        self._set_aside(topic, partition, unique, file_names.STRAY_DIR)

    def _set_aside(self, topic: str, partition: int, unique: str, suffix: str) -> None:
        """Rename the directory, then remove the log from memory: after an error both still exist."""
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
            # Another process removed the directory, which frees the name too.
            if log is not None:
                log.close_without_writing()
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
                reporter.error("failed to remove a deleted partition", directory=path, error=str(error))

        self.env.later(delay_ms, remove)

    # --- checkpoints

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """Read the high watermarks that were last written."""
        return self._high_watermarks.read()

    def prepare_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Set what `write_high_watermarks` writes; return whether the file has other content. The caller must not
        change the mapping any more."""
        return self._high_watermarks.prepare(offsets)

    def write_high_watermarks(self) -> bool:
        """Write the prepared high watermarks. Any thread. Return False after an error, which is logged; the file is
        unchanged then."""
        return self._high_watermarks.write()

    def prepare_checkpoints(self) -> None:
        """Set what `write_checkpoints` writes: the recovery points of all logs, the start offsets that differ from the
        base offset of the first segment, and the cleaner's offsets."""
        recovery_points = {key: log.recovery_point_to_checkpoint for key, log in self.logs.items()}
        self._recovery_points.prepare(self._failed_recovery_points | recovery_points)
        self.prepare_start_offsets()
        self.prepare_cleaner_checkpoint()

    def prepare_start_offsets(self) -> None:
        """Like `prepare_checkpoints`, only the start offsets, for `write_start_offsets`."""
        start_offsets = {
            key: log.log_start_offset for key, log in self.logs.items() if log.log_start_offset > log.first_base_offset
        }
        self._start_offsets.prepare(self._failed_start_offsets | start_offsets)

    def prepare_cleaner_checkpoint(self) -> None:
        """Like `prepare_checkpoints`, only the cleaner's offsets, for `write_cleaner_checkpoint`."""
        cleaned = {key: at for key, log in self.logs.items() if (at := log.cleaner.checkpoint) is not None}
        if cleaned or self._cleaned.is_known:
            self._cleaned.prepare(self._failed_cleaned | cleaned)

    def write_checkpoints(self) -> bool:
        """Write the prepared checkpoints. Any thread. Return False after an error, which is logged; that file is
        unchanged then."""
        recovered = self._recovery_points.write()
        started = self.write_start_offsets()
        cleaned = self.write_cleaner_checkpoint()
        return recovered and started and cleaned

    def write_cleaner_checkpoint(self) -> bool:
        """Like `write_checkpoints`, only the cleaner's offsets."""
        return self._cleaned.write()

    def write_start_offsets(self) -> bool:
        """Like `write_checkpoints`, only the start offsets."""
        return self._start_offsets.write()

    def _file(self, name: str) -> str:
        return f"{self.path}/{name}"

    # --- clean shutdown and close

    def _read_clean_shutdown_file(self) -> None:
        """Read and remove the clean shutdown file, so that it is not there after a crash."""
        path = self._file(file_names.CLEAN_SHUTDOWN)
        disk = self.env.disk
        if not disk.exists(path):
            return
        self.clean_shutdown = True
        # {"version":0,"brokerEpoch":12}; releases before 3.7 wrote an empty file.
        epoch = re.search(rb'"brokerEpoch"\s*:\s*(-?\d+)', disk.read_file(path))
        self.previous_broker_epoch = int(epoch[1]) if epoch else -1
        disk.remove(path)

    def go_offline(self) -> None:
        """Take all logs offline after a disk error: read and write nothing any more."""
        self.offline = True
        for log in [*self.logs.values(), *self.futures.values()]:
            if log.offline_cause is None:
                log.close_without_writing()

    def close(self, broker_epoch: int = -1) -> None:
        """Close every log, write the checkpoints and the clean shutdown file. Omit that file if a log could not be
        recovered or closed, so that the next start recovers all logs."""
        if self.offline:
            self._lock.release()
            return
        self._flush_all()
        clean = self.clean_shutdown or not self.failed
        for log in [*self.logs.values(), *self.futures.values()]:
            try:
                log.close()
            except (OSError, CorruptLogError):
                pass  # the log has logged it
            except Exception as error:
                # A bug in one log must not affect the others.
                self.env.reporter.error("failed to close a partition", partition=log.name, error=repr(error))
            clean = clean and log.is_closed
        self.prepare_checkpoints()
        if self.write_checkpoints() and clean:
            self._write_clean_shutdown_file(broker_epoch)
        self._lock.release()

    def _write_clean_shutdown_file(self, broker_epoch: int) -> None:
        marker = f'{{"version":0,"brokerEpoch":{broker_epoch}}}'
        path = self._file(file_names.CLEAN_SHUTDOWN)
        try:
            self.env.disk.replace_file(path, marker.encode())
        except OSError as error:
            self.env.reporter.error("failed to write the clean shutdown file", file=path, error=str(error))

    def _flush_all(self) -> None:
        """Flush all logs in parallel, because many concurrent syncs take hardly longer than one."""
        for log in self.logs.values():
            if log.offline_cause is None:
                with suppress(Exception):  # the log logs it, or `close` does
                    log.seal()
        unflushed = [
            log
            for log in self.logs.values()
            if log.offline_cause is None and (log.recovery_point < log.log_end_offset or log.has_unflushed_sealed)
        ]
        if len(unflushed) < 2:
            return
        # Imported here, because only a close needs it.
        from concurrent.futures import ThreadPoolExecutor

        def flush(log: Log) -> None:
            with suppress(Exception):  # the log logs it, or `close` does
                log.flush_for_close()

        with ThreadPoolExecutor(_FLUSH_THREADS) as pool:
            for _ in pool.map(flush, unflushed):
                pass

    def close_without_writing(self) -> None:
        """Close all files and release the lock without writing anything, as if the process was killed."""
        for log in [*self.logs.values(), *self.futures.values()]:
            log.close_without_writing()
        self._lock.release()
