"""A replica fetcher: copies partitions from one leader, batch for batch (Kafka's ReplicaFetcherThread).

Owns the rounds of Fetch requests, and the truncation of a log that has diverged from its leader's. Leaves the
connection to `inter_broker.channel`, the point of divergence to `core.partition_follower`, the partitions that a
request names to `core.follower_session`, and appending to the partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import cast

from odradek_broker.inter_broker.broker_connection import BrokerConnectionError
from odradek_broker.inter_broker.channel import BrokerChannel
from odradek_broker.metadata.broker_state import BrokerState
from odradek_broker.replication.core.follower_session import FollowerSession, Key, Position
from odradek_broker.replication.core.partition_follower import EpochEnd, truncation_after_out_of_range, truncation_point
from odradek_broker.replication.core.replication_quota import ReplicationQuota
from odradek_broker.replication.log_syncer import LogSyncer, is_unsynced
from odradek_broker.replication.partition import STORAGE_ERRORS, Partition
from odradek_log.log import Log
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.fetch import FetchRequest, FetchResponse
from odradek_wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from odradek_wire.records.record_errors import CorruptRecordError
from odradek_wire.uuid import Uuid

EARLIEST = -2
LATEST = -1
FIRST_VERSION_WITH_REPLICA_STATE = 15
FIRST_VERSION_WITH_HIGH_WATERMARK = 18
LIST_OFFSETS_VERSION = 7


class ReplicaFetcher:
    """Fetches from `leader` until `close`; `number` is that of the fetcher among those of the leader."""

    def __init__(
        self,
        state: BrokerState,
        leader: int,
        number: int,
        *,
        channel: BrokerChannel,
        quota: ReplicationQuota,
        log_syncer: LogSyncer | None,
    ) -> None:
        """`quota` limits the bytes of throttled replicas; `log_syncer` is given if a Fetch waits for the disk."""
        self.leader = leader
        self.number = number
        self._state = state
        self._quota = quota
        self._log_syncer = log_syncer
        self._log = state.log.bind(leader=leader, fetcher=number)
        self._partitions: dict[Key, Partition] = {}
        self._changed: dict[Key, None] = {}
        """Partitions whose position may differ from the session's."""
        self._delayed: dict[Key, int] = {}
        """The time at which to fetch a partition again after an error or a throttle (ms on the clock of timeouts)."""
        self._throttled_caught_up: set[Key] = set()
        """The partitions with a throttle that have caught up: a replica in sync is not throttled."""
        self._truncated: dict[Partition, None] = {}
        """Partitions that were truncated below a checkpoint on disk."""
        self._session = FollowerSession()
        self._backoff_ms = state.config.integer("replica.fetch.backoff.ms")
        self._channel = channel
        self._wake = asyncio.Event()
        self._reachable = True
        self._task = asyncio.get_running_loop().create_task(self._run())

    def __len__(self) -> int:
        return len(self._partitions)

    def add(self, partition: Partition) -> None:
        key = (partition.topic_id, partition.index)
        self._partitions[key] = partition
        self._changed[key] = None
        self._delayed.pop(key, None)
        self._wake.set()

    def remove(self, partition: Partition) -> None:
        key = (partition.topic_id, partition.index)
        self._partitions.pop(key, None)
        self._delayed.pop(key, None)
        self._throttled_caught_up.discard(key)
        self._changed[key] = None

    def log_changed(self, partition: Partition) -> None:
        """Send the partition's offsets to the leader in the next round."""
        self._changed[partition.topic_id, partition.index] = None

    def close(self) -> asyncio.Task[None]:
        """Cancel the task and return it."""
        self._partitions.clear()
        self._task.cancel()
        self._channel.close()
        return self._task

    # -- rounds -----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self._round()
                self._reachable = True
            except BrokerConnectionError as error:
                if self._reachable:
                    self._reachable = False
                    self._log.warning("fetching from the leader failed, retrying", error=str(error))
                self._channel.close()
                await self._pause(self._backoff_ms)
            except Exception as error:
                self._log.error("unexpected error in a fetch round, retrying", exc_info=error)
                self._channel.close()
                await self._pause(self._backoff_ms)

    async def _round(self) -> None:
        await self._wait_until_synced()
        self._update_session()
        if not len(self._session):
            await self._pause(self._next_due_ms())
            return
        if not self._channel.connected:
            await self._channel.connect()
            self._session.reset()
            await self._wait_until_synced()
            self._update_session()
        version = self._state.image.levels.fetch_version
        request = self._request(version)
        response = await self._channel.request(request, version, FetchResponse)
        if response.error_code:
            self._session.reset()
            if response.error_code not in (
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
            ):
                raise BrokerConnectionError(f"Fetch failed: {ErrorCode(response.error_code).name}")
            return
        self._session.handle_response(response.session_id)
        out_of_range = []
        for topic in response.responses:
            for data in topic.partitions:
                key = (Uuid(topic.topic_id), data.partition_index)
                partition = self._partitions.get(key)
                fetched = self._session.position(key)
                if partition is None or fetched is None or not _is_followed_in(partition, fetched.leader_epoch):
                    continue  # The metadata has changed meanwhile.
                self._changed[key] = None
                if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    out_of_range.append(partition)
                elif data.error_code:
                    self._delay_after_error(partition, data.error_code)
                else:
                    self._process(partition, fetched, data)
        self._write_checkpoints_of_truncated()
        for partition in out_of_range:
            await self._handle_out_of_range(partition)

    async def _wait_until_synced(self) -> None:
        """Wait for the disk with `odradek.sync=always`: a fetch offset says that the records below it are stored."""
        log_syncer = self._log_syncer
        while log_syncer is not None and (logs := [log for log in self._changed_logs() if is_unsynced(log)]):
            await log_syncer.wait_until_synced(logs)

    def _changed_logs(self) -> Iterator[Log]:
        for key in self._changed:
            partition = self._partitions.get(key)
            if partition is not None and partition.served_log is not None:
                yield partition.served_log

    def _update_session(self) -> None:
        """Bring the positions of the session in line with the logs."""
        if self._delayed:
            now_ms = self._state.timers.now_ms()
            for key in [key for key, due_ms in self._delayed.items() if due_ms <= now_ms]:
                del self._delayed[key]
                self._changed[key] = None
        for key in self._changed:
            partition = self._partitions.get(key)
            if partition is not None and key not in self._delayed and self._should_throttle(key, partition):
                self._delay(key)
            log = None if partition is None or key in self._delayed else partition.served_log
            if partition is None or log is None or log.offline_cause is not None:
                self._session.remove(key)
            else:
                self._session.put(
                    key,
                    Position(
                        log.log_end_offset,
                        log.leader_epochs.latest,
                        partition.leader_epoch,
                        log.log_start_offset,
                        partition.high_watermark,
                    ),
                )
        self._changed.clear()

    def _request(self, version: int) -> FetchRequest:
        broker, config = self._state, self._state.config
        session_request = self._session.next()
        request = FetchRequest(
            max_wait_ms=config.integer("replica.fetch.wait.max.ms"),
            min_bytes=config.integer("replica.fetch.min.bytes"),
            max_bytes=config.integer("replica.fetch.response.max.bytes"),
            session_id=session_request.session_id,
            session_epoch=session_request.session_epoch,
        )
        if version >= FIRST_VERSION_WITH_REPLICA_STATE:
            request.replica_state = FetchRequest.ReplicaState(broker.node_id, broker.epoch)
        else:
            request.replica_id = broker.node_id
        topics: dict[bytes, FetchRequest.FetchTopic] = {}
        max_bytes = config.integer("replica.fetch.max.bytes")
        for (topic_id, index), position in session_request.wanted:
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = FetchRequest.FetchTopic(topic_id=topic_id)
                request.topics.append(topic)
            wanted = FetchRequest.FetchPartition(
                partition=index,
                current_leader_epoch=position.leader_epoch,
                fetch_offset=position.fetch_offset,
                last_fetched_epoch=position.last_fetched_epoch,
                log_start_offset=position.log_start_offset,
                partition_max_bytes=max_bytes,
            )
            if version >= FIRST_VERSION_WITH_HIGH_WATERMARK:
                wanted.high_watermark = position.high_watermark
            topic.partitions.append(wanted)
        for topic_id, index in session_request.forgotten:
            request.forgotten_topics_data.append(FetchRequest.ForgottenTopic(topic_id=topic_id, partitions=[index]))
        return request

    # -- responses ----------------------------------------------------------------------------------------------------

    def _process(self, partition: Partition, fetched: Position, data: FetchResponse.PartitionData) -> None:
        """Append or truncate. Never raises: an error of one partition must not affect the others."""
        log = partition.log
        try:
            if data.diverging_epoch.epoch >= 0:
                leader = EpochEnd(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
                own = EpochEnd(*log.end_offset_for_epoch(leader.epoch))
                point = truncation_point(leader, own, log.log_end_offset, partition.high_watermark)
                if partition.truncate_to(point):
                    self._truncated[partition] = None
                self._log.info("log truncated to follow its leader", partition=log.name, offset=point)
            elif log.log_end_offset == fetched.fetch_offset:
                records = cast("memoryview", data.records or b"")
                partition.append_as_follower(records, data.high_watermark, data.log_start_offset)
                self._record_throttled_bytes(partition, len(records), data.high_watermark)
        except CorruptRecordError as error:
            self._log.warning("records from the leader are corrupt, retrying", partition=log.name, error=str(error))
            self._delay_after_error(partition, ErrorCode.CORRUPT_MESSAGE)
        except STORAGE_ERRORS:
            partition.take_offline()
        except Exception as error:
            self._log.error("partition is not fetched until its metadata changes", partition=log.name, exc_info=error)
            self.remove(partition)

    async def _handle_out_of_range(self, partition: Partition) -> None:
        """Truncate a log whose fetch offset the leader does not have, after ListOffsets has returned the leader's log
        start and end offset."""
        epoch = partition.leader_epoch
        leader_end = await self._list_offset(partition, epoch, LATEST)
        leader_start = await self._list_offset(partition, epoch, EARLIEST)
        key = (partition.topic_id, partition.index)
        if self._partitions.get(key) is not partition or not _is_followed_in(partition, epoch):
            return  # The metadata has changed meanwhile: this log may be the leader's now.
        if leader_end is None or leader_start is None:
            self._delay_after_error(partition, ErrorCode.OFFSET_OUT_OF_RANGE)
            return
        log = partition.log
        truncation = truncation_after_out_of_range(leader_start, leader_end, log.log_end_offset)
        self._log.warning(
            "fetch offset is out of the leader's range",
            partition=log.name,
            end=log.log_end_offset,
            leader_start=leader_start,
            leader_end=leader_end,
        )
        try:
            truncate = partition.truncate_fully_and_start_at if truncation.fully else partition.truncate_to
            if truncate(truncation.offset):
                self._truncated[partition] = None
                self._write_checkpoints_of_truncated()
        except STORAGE_ERRORS:
            partition.take_offline()
        self._changed[key] = None

    def _write_checkpoints_of_truncated(self) -> None:
        """Write lower recovery points before the next append: after a crash the old ones would skip the recovery of
        records appended since (Kafka's LogManager.truncateTo). On the loop, because it is rare."""
        truncated, self._truncated = self._truncated, {}
        for directory in {partition.directory for partition in truncated}:
            assert directory is not None, "a truncated partition has a log"
            directory.prepare_checkpoints()
            if not directory.write_checkpoints():
                for partition in truncated:
                    if partition.directory is directory:
                        partition.take_offline()

    async def _list_offset(self, partition: Partition, epoch: int, timestamp: int) -> int | None:
        wanted = ListOffsetsRequest.ListOffsetsPartition(partition.index, epoch, timestamp)
        request = ListOffsetsRequest(
            self._state.node_id, 0, [ListOffsetsRequest.ListOffsetsTopic(partition.topic, [wanted])]
        )
        response = await self._channel.request(request, LIST_OFFSETS_VERSION, ListOffsetsResponse)
        (topic,) = response.topics
        (found,) = topic.partitions
        return None if found.error_code else found.offset

    def _delay_after_error(self, partition: Partition, error: int) -> None:
        """Fetch the partition again after the back-off."""
        key = (partition.topic_id, partition.index)
        self._delay(key)
        self._changed[key] = None
        self._log.debug(
            "partition cannot be fetched now", partition=f"{partition.topic}-{partition.index}", error=error
        )

    def _delay(self, key: Key) -> None:
        self._delayed[key] = self._state.timers.now_ms() + self._backoff_ms

    # -- throttling (KIP-73) ------------------------------------------------------------------------------------------

    def _should_throttle(self, key: Key, partition: Partition) -> bool:
        quota = self._quota
        return (
            quota.is_throttled(partition.topic, partition.index)
            and key not in self._throttled_caught_up
            and quota.is_exceeded(self._state.timers.now_ms())
        )

    def _record_throttled_bytes(self, partition: Partition, size: int, leader_high_watermark: int) -> None:
        quota = self._quota
        if quota.is_throttled(partition.topic, partition.index):
            quota.record(size, self._state.timers.now_ms())
            key = (partition.topic_id, partition.index)
            if partition.log.log_end_offset >= leader_high_watermark:
                self._throttled_caught_up.add(key)
            else:
                self._throttled_caught_up.discard(key)

    # -- waiting ------------------------------------------------------------------------------------------------------

    def _next_due_ms(self) -> int | None:
        return max(min(self._delayed.values()) - self._state.timers.now_ms(), 1) if self._delayed else None

    async def _pause(self, delay_ms: int | None) -> None:
        """Wait until a partition is added, but not longer than the delay. Return immediately if one was added since the
        round began."""
        timer = None if delay_ms is None else self._state.timers.call_later(delay_ms, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            if timer is not None:
                timer.cancel()


def _is_followed_in(partition: Partition, leader_epoch: int) -> bool:
    return partition.is_following and partition.leader_epoch == leader_epoch
