"""A Fetch that is attempted when it arrives, and again whenever a partition changes, until it is complete.

Kafka's DelayedFetch. Owns one pass over the partitions, which skips the idle ones, and the decision that the Fetch is
complete: with `min_bytes`, after an error, or for a reason of `early_completion`. Leaves waiting to the purgatory, and
reading a partition to `fetch_read`.
"""

from __future__ import annotations

import asyncio

from odradek_broker.apis.context import Context
from odradek_broker.apis.early_completion import EarlyCompletion
from odradek_broker.apis.fetch_context import FetchContext, FetchedData
from odradek_broker.apis.fetch_read import PartitionReader
from odradek_broker.apis.slices import LoopYielder
from odradek_broker.purgatory import Watchers
from odradek_broker.replication.core.fetch_session import FetchedPartition
from odradek_broker.replication.follower_fetches import Follower
from odradek_broker.replication.idle_partitions import IdlePartitions, is_idle_for_consumer, is_idle_for_follower
from odradek_broker.replication.partition import STORAGE_ERRORS, Partition
from odradek_wire.messages.fetch import FetchRequest, FetchResponse

SLICE = 100
"""Partitions that are read in one slice."""


class DelayedFetch:
    """One request. The caller calls `attempt` once, and again after each change that `watchers` report, until it
    returns a response."""

    __slots__ = (
        "_completions_before",
        "_context",
        "_ctx",
        "_early",
        "_hard_limit",
        "_max_bytes",
        "_min_bytes",
        "_reader",
    )

    def __init__(self, ctx: Context, request: FetchRequest, context: FetchContext) -> None:
        self._ctx = ctx
        self._context = context
        self._completions_before = ctx.broker.follower_fetches.completions
        self._max_bytes = min(request.max_bytes, ctx.broker.config.fetch_max_bytes)
        self._min_bytes = min_bytes = min(request.min_bytes, self._max_bytes)
        # Up to version 2 not even the first batch of the response may exceed the limits.
        self._hard_limit = ctx.api_version <= 2
        self._early = EarlyCompletion(min_bytes) if min_bytes > 1 or self._hard_limit else None
        self._reader = PartitionReader(ctx, request, context, self._early)

    def watchers(self) -> list[Watchers]:
        """Return the watchers to wait at: a follower waits for appends, a consumer for the high watermark."""
        context, watched = self._context, self._reader.watched
        if context.follower is not None:
            watchers = [partition.replica_watchers for partition in watched]
            watchers.append(self._ctx.broker.follower_fetches.watchers)
            return watchers if context.idle is None else [*watchers, context.idle.watchers]
        return [partition.watchers for partition in watched]

    def attempt(self, must_complete: bool = False) -> FetchResponse | None:
        """Read all partitions. Return the response if the Fetch is complete, or in any case with `must_complete`."""
        self._begin(must_complete)
        fetched: FetchedData = []
        size = self._read(self._context.partitions_to_read(), fetched, 0)
        return self._context.respond(fetched) if self._is_complete(size) else None

    async def attempt_in_slices(self, must_complete: bool) -> FetchResponse | None:
        """Do as `attempt`, with turns of the event loop for other requests in between."""
        yielder = LoopYielder()
        self._begin(must_complete)
        partitions = self._context.partitions_to_read()
        fetched: FetchedData = []
        size = 0
        for start in range(0, len(partitions), SLICE):
            size = self._read(partitions[start : start + SLICE], fetched, size)
            await yielder.yield_if_due()
        await asyncio.sleep(0)
        return await self._context.respond_in_slices(fetched, SLICE) if self._is_complete(size) else None

    def progress(self) -> int:
        """Return a number that changes with each append to a partition that is not idle."""
        context = self._context
        partitions = [
            context.find_partition(wanted.topic, wanted.index)  # type: ignore[arg-type]  # a name or an id
            for wanted in context.partitions_to_read()
        ]
        hosted = [each for each in partitions if each is not None and each.served_log is not None]
        return sum([each.high_watermark + each.log_end_offset for each in hosted])

    def _begin(self, must_complete: bool) -> None:
        context, reader = self._context, self._reader
        if not reader.is_first_attempt:
            reader.begin_attempt()
        reader.completes_fetch = must_complete or (context.follower is not None and self._may_have_new_partitions())

    def _read(self, partitions: list[FetchedPartition], fetched: FetchedData, size: int) -> int:
        """Read these partitions and add them to `fetched`, which has `size` bytes before; return its new size."""
        reader = self._reader
        room = max(self._max_bytes - size, 0)
        min_one = not (self._hard_limit or size)
        has_session = self._context.session is not None
        for wanted in partitions:
            if has_session and self._is_idle(wanted):
                continue
            data = reader.read(wanted, room, min_one)
            length = 0 if data.records is None else len(data.records)
            if length:
                min_one = False
                size += length
                room = max(room - length, 0)
            fetched.append((wanted, data))
        return size

    def _is_complete(self, size: int) -> bool:
        """End an attempt that has read `size` bytes; return whether the Fetch is complete."""
        context, reader = self._context, self._reader
        reader.is_first_attempt = False
        can_wait = bool(reader.watched or context.idle)
        return size >= self._min_bytes or reader.completes_fetch or not can_wait or self._completes_early()

    def expire(self) -> FetchResponse:
        """Return the response after `max_wait_ms`, with the records that are there."""
        response = self.attempt(True)
        assert response is not None
        return response

    def _completes_early(self) -> bool:
        if self._early is None:
            return False
        try:
            return self._early.completes_fetch()
        except STORAGE_ERRORS:
            return True  # the next Fetch reports the failed disk

    def _may_have_new_partitions(self) -> bool:
        """Return whether the follower may have partitions to add to its next Fetch (`FollowerFetches`)."""
        return self._completions_before != self._ctx.broker.follower_fetches.completions

    # -- idle partitions ----------------------------------------------------------------------------------------------

    def _is_idle(self, wanted: FetchedPartition) -> bool:
        """Return whether the Fetch can skip this partition of its session."""
        context = self._context
        partition = context.find_partition(wanted.topic, wanted.index)  # type: ignore[arg-type]  # a name or an id
        if partition is None or partition.error or not self._ctx.broker.authorizer.allows_everything:
            return False
        if context.idle is not None:
            assert context.follower is not None
            return self._becomes_idle(wanted, partition, context.follower, context.idle)
        if not is_idle_for_consumer(partition, wanted, self._reader.read_committed):
            return False
        self._reader.watch_idle(wanted, partition)
        return True

    def _becomes_idle(
        self, wanted: FetchedPartition, partition: Partition, follower: Follower, idle: IdlePartitions
    ) -> bool:
        """Return whether the partition is idle for the follower; if so, remove it from the session's active ones."""
        if not is_idle_for_follower(partition, wanted, follower.id) or follower.error(partition, wanted.leader_epoch):
            return False
        if self._reader.is_first_attempt:
            follower.record_fetch(partition, wanted)
            if not is_idle_for_follower(partition, wanted, follower.id):
                return False
        assert partition.leader is not None
        idle.add((wanted.topic, wanted.index), partition, partition.leader.followers[follower.id])
        return True
