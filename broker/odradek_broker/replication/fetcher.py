"""One follower's task: copy partitions from one leader, batch for batch, as long as both live.

Owns the rounds of Fetch requests, and what becomes of a partition whose log has gone another way than its leader's.
Leaves the connection to `inter_broker.channel`, where logs part to `core.partition_follower`, what a request mentions
to `core.follower_session`, and appending to the partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import cast

from odradek_broker.inter_broker.broker_connection import BrokerConnectionError
from odradek_broker.inter_broker.channel import BrokerChannel
from odradek_broker.metadata.broker_state import BrokerState
from odradek_broker.replication.core.follower_session import FollowerSession, Key, Position
from odradek_broker.replication.core.partition_follower import EpochEnd, after_out_of_range, truncation_point
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


class Fetcher:
    """Fetches from `leader` as long as it has partitions."""

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
        """`quota` limits what is fetched of throttled replicas; `log_syncer` is given if a fetch waits for the disk."""
        self.leader = leader
        self.number = number
        self._state = state
        self._quota = quota
        self._log_syncer = log_syncer
        self._log = state.log.bind(leader=leader, fetcher=number)
        self._partitions: dict[Key, Partition] = {}
        self._touched: dict[Key, None] = {}
        """Partitions whose position is to be looked at anew before the next round."""
        self._waiting: dict[Key, int] = {}
        """Partitions that had an error, and when they may be asked for again (ms on the clock of timeouts)."""
        self._caught_up: set[Key] = set()
        """Those of the throttled ones that have everything: they are in sync, and never held up."""
        self._truncated: dict[Partition, None] = {}
        """Those of which a checkpoint on disk says that more is there than is."""
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
        self._touched[key] = None
        self._waiting.pop(key, None)
        self._wake.set()

    def remove(self, partition: Partition) -> None:
        key = (partition.topic_id, partition.index)
        self._partitions.pop(key, None)
        self._waiting.pop(key, None)
        self._caught_up.discard(key)
        self._touched[key] = None

    def touch(self, partition: Partition) -> None:
        """Its log begins elsewhere: the leader is told in the next round."""
        self._touched[partition.topic_id, partition.index] = None

    def close(self) -> asyncio.Task[None]:
        """Stop at once; the task is over soon."""
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
                    self._log.warning("leader cannot be fetched from; trying again", error=str(error))
                self._channel.close()
                await self._pause(self._backoff_ms)
            except Exception as error:
                self._log.error("fetching failed; trying again", exc_info=error)
                self._channel.close()
                await self._pause(self._backoff_ms)

    async def _round(self) -> None:
        await self._settle()
        self._look_again()
        if not len(self._session):
            await self._pause(self._next_due_ms())
            return
        if await self._channel.connect():
            self._session.begin_anew()
            await self._settle()
            self._look_again()
        version = self._state.image.levels.fetch_version
        request = self._request(version)
        response = await self._channel.request(request, version, FetchResponse)
        if response.error_code:
            self._session.begin_anew()
            if response.error_code not in (
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
            ):
                raise BrokerConnectionError(f"Fetch was answered with {ErrorCode(response.error_code).name}")
            return
        self._session.answered(response.session_id)
        out_of_range = []
        for topic in response.responses:
            for data in topic.partitions:
                key = (Uuid(topic.topic_id), data.partition_index)
                partition = self._partitions.get(key)
                asked = self._session.asked(key)
                if partition is None or asked is None or not _is_followed_in(partition, asked.leader_epoch):
                    continue  # The metadata has changed meanwhile.
                self._touched[key] = None
                if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    out_of_range.append(partition)
                elif data.error_code:
                    self._put_off(partition, data.error_code)
                else:
                    self._take(partition, asked, data)
        self._vouch_no_more()
        for partition in out_of_range:
            await self._restart(partition)

    async def _settle(self) -> None:
        """The next request says what we have, and that is to be on the disk if the leader's acknowledgements are."""
        log_syncer = self._log_syncer
        while log_syncer is not None and (logs := [log for log in self._touched_logs() if is_unsynced(log)]):
            await log_syncer.wait_until_synced(logs)

    def _touched_logs(self) -> Iterator[Log]:
        for key in self._touched:
            partition = self._partitions.get(key)
            if partition is not None and partition.served_log is not None:
                yield partition.served_log

    def _look_again(self) -> None:
        """Bring the session in line with what stands in the logs."""
        if self._waiting:
            now_ms = self._state.timers.now_ms()
            for key in [key for key, due_ms in self._waiting.items() if due_ms <= now_ms]:
                del self._waiting[key]
                self._touched[key] = None
        for key in self._touched:
            partition = self._partitions.get(key)
            if partition is not None and key not in self._waiting and self._should_throttle(key, partition):
                self._wait(key)
            log = None if partition is None or key in self._waiting else partition.served_log
            if partition is None or log is None or log.failure is not None:
                self._session.leave(key)
            else:
                self._session.want(
                    key,
                    Position(
                        log.log_end_offset,
                        log.leader_epochs.latest,
                        partition.leader_epoch,
                        log.log_start_offset,
                        partition.high_watermark,
                    ),
                )
        self._touched.clear()

    def _request(self, version: int) -> FetchRequest:
        broker, config = self._state, self._state.config
        said = self._session.next()
        request = FetchRequest(
            max_wait_ms=config.integer("replica.fetch.wait.max.ms"),
            min_bytes=config.integer("replica.fetch.min.bytes"),
            max_bytes=config.integer("replica.fetch.response.max.bytes"),
            session_id=said.session_id,
            session_epoch=said.session_epoch,
        )
        if version >= FIRST_VERSION_WITH_REPLICA_STATE:
            request.replica_state = FetchRequest.ReplicaState(broker.node_id, broker.epoch)
        else:
            request.replica_id = broker.node_id
        topics: dict[bytes, FetchRequest.FetchTopic] = {}
        max_bytes = config.integer("replica.fetch.max.bytes")
        for (topic_id, index), position in said.wanted:
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
        for topic_id, index in said.forgotten:
            request.forgotten_topics_data.append(FetchRequest.ForgottenTopic(topic_id=topic_id, partitions=[index]))
        return request

    # -- answers ------------------------------------------------------------------------------------------------------

    def _take(self, partition: Partition, asked: Position, data: FetchResponse.PartitionData) -> None:
        """What is wrong with one partition must not keep the others from being copied."""
        log = partition.log
        try:
            if data.diverging_epoch.epoch >= 0:
                leader = EpochEnd(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
                own = EpochEnd(*log.end_offset_for_epoch(leader.epoch))
                point = truncation_point(leader, own, log.log_end_offset, partition.high_watermark)
                if partition.truncate_to(point):
                    self._truncated[partition] = None
                self._log.info("log truncated to follow its leader", partition=log.name, offset=point)
            elif log.log_end_offset == asked.fetch_offset:
                records = cast("memoryview", data.records or b"")
                partition.append_as_follower(records, data.high_watermark, data.log_start_offset)
                self._count(partition, len(records), data.high_watermark)
        except CorruptRecordError as error:
            self._log.warning("records from the leader are damaged; asking again", partition=log.name, error=str(error))
            self._put_off(partition, ErrorCode.CORRUPT_MESSAGE)
        except STORAGE_ERRORS:
            partition.take_offline()
        except Exception as error:
            self._log.error("partition is not copied until there is news of it", partition=log.name, exc_info=error)
            self.remove(partition)

    async def _restart(self, partition: Partition) -> None:
        """The leader does not have what we asked for: ask where its log begins and ends."""
        epoch = partition.leader_epoch
        leader_end = await self._offset(partition, epoch, LATEST)
        leader_start = await self._offset(partition, epoch, EARLIEST)
        key = (partition.topic_id, partition.index)
        if self._partitions.get(key) is not partition or not _is_followed_in(partition, epoch):
            return  # The metadata has changed meanwhile: this log may be the one that counts.
        if leader_end is None or leader_start is None:
            self._put_off(partition, ErrorCode.OFFSET_OUT_OF_RANGE)
            return
        log = partition.log
        restart = after_out_of_range(leader_start, leader_end, log.log_end_offset)
        self._log.warning(
            "log is out of its leader's range",
            partition=log.name,
            end=log.log_end_offset,
            leader_start=leader_start,
            leader_end=leader_end,
        )
        try:
            cut = partition.start_at if restart.empty else partition.truncate_to
            if cut(restart.offset):
                self._truncated[partition] = None
                self._vouch_no_more()
        except STORAGE_ERRORS:
            partition.take_offline()
        self._touched[key] = None

    def _vouch_no_more(self) -> None:
        """Write recovery points below what was truncated, before anything else is appended there: after a crash the old
        ones would vouch for other records (Kafka's LogManager.truncateTo). Here and now, on the loop: it is rare."""
        truncated, self._truncated = self._truncated, {}
        for directory in {partition.directory for partition in truncated}:
            assert directory is not None, "what was truncated has a log"
            directory.prepare_checkpoints()
            if not directory.write_checkpoints():
                for partition in truncated:
                    if partition.directory is directory:
                        partition.take_offline()

    async def _offset(self, partition: Partition, epoch: int, timestamp: int) -> int | None:
        wanted = ListOffsetsRequest.ListOffsetsPartition(partition.index, epoch, timestamp)
        request = ListOffsetsRequest(
            self._state.node_id, 0, [ListOffsetsRequest.ListOffsetsTopic(partition.topic, [wanted])]
        )
        response = await self._channel.request(request, LIST_OFFSETS_VERSION, ListOffsetsResponse)
        (topic,) = response.topics
        (found,) = topic.partitions
        return None if found.error_code else found.offset

    def _put_off(self, partition: Partition, error: int) -> None:
        """Ask again after a while: the error goes away with the next metadata, or with time."""
        key = (partition.topic_id, partition.index)
        self._wait(key)
        self._touched[key] = None
        self._log.debug(
            "partition cannot be fetched now", partition=f"{partition.topic}-{partition.index}", error=error
        )

    def _wait(self, key: Key) -> None:
        self._waiting[key] = self._state.timers.now_ms() + self._backoff_ms

    # -- throttling (KIP-73) ------------------------------------------------------------------------------------------

    def _should_throttle(self, key: Key, partition: Partition) -> bool:
        throttle = self._quota
        return (
            throttle.is_throttled(partition.topic, partition.index)
            and key not in self._caught_up
            and throttle.is_exceeded(self._state.timers.now_ms())
        )

    def _count(self, partition: Partition, size: int, leader_high_watermark: int) -> None:
        throttle = self._quota
        if throttle.is_throttled(partition.topic, partition.index):
            throttle.record(size, self._state.timers.now_ms())
            key = (partition.topic_id, partition.index)
            if partition.log.log_end_offset >= leader_high_watermark:
                self._caught_up.add(key)
            else:
                self._caught_up.discard(key)

    # -- waiting ------------------------------------------------------------------------------------------------------

    def _next_due_ms(self) -> int | None:
        return max(min(self._waiting.values()) - self._state.timers.now_ms(), 1) if self._waiting else None

    async def _pause(self, delay_ms: int | None) -> None:
        """Until a partition is added, also one that was since the round began, or the delay is over if there is one."""
        timer = None if delay_ms is None else self._state.timers.call_later(delay_ms, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            if timer is not None:
                timer.cancel()


FIRST_VERSION_WITH_HIGH_WATERMARK = 18
LIST_OFFSETS_VERSION = 7


def _is_followed_in(partition: Partition, leader_epoch: int) -> bool:
    return partition.follows and partition.leader_epoch == leader_epoch
