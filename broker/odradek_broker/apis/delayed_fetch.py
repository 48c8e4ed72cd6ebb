"""A Fetch that is attempted until it is complete: when it arrives, and whenever a partition changes.

Kafka's DelayedFetch. Owns one pass over the partitions, skipping the idle ones, and the decision that the Fetch is
complete: with `min_bytes`, after an error, or for a reason of `early_completion`. Leaves waiting to the purgatory, and
each partition to `fetch_read`.
"""

from __future__ import annotations

import asyncio

from odradek_broker.apis.context import Context
from odradek_broker.apis.early_completion import EarlyCompletion
from odradek_broker.apis.fetch_context import FetchContext
from odradek_broker.apis.fetch_read import PartitionReader
from odradek_broker.apis.fetch_refusal import PartitionData
from odradek_broker.apis.slices import Turns
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

    __slots__ = ("_calls", "_context", "_ctx", "_early", "_hard_limit", "_max_bytes", "_min_bytes", "_reader")

    def __init__(self, ctx: Context, request: FetchRequest, context: FetchContext) -> None:
        self._ctx = ctx
        self._context = context
        self._calls = ctx.broker.follower_fetches.completions
        self._max_bytes = min(request.max_bytes, ctx.broker.config.fetch_max_bytes)
        self._min_bytes = min_bytes = min(request.min_bytes, self._max_bytes)
        # Up to version 2 the limits on bytes are hard: a first batch above them is not sent.
        self._hard_limit = ctx.api_version <= 2
        self._early = EarlyCompletion(min_bytes) if min_bytes > 1 or self._hard_limit else None
        self._reader = PartitionReader(ctx, request, context, self._early)

    def watchers(self) -> list[Watchers]:
        """Return the watchers of the Fetch: a follower waits for appends, a consumer for commits."""
        context, watched = self._context, self._reader.watched
        if context.follower is not None:
            found = [partition.replica_watchers for partition in watched]
            found.append(self._ctx.broker.follower_fetches.watchers)
            return found if context.idle is None else [*found, context.idle.watchers]
        return [partition.watchers for partition in watched]

    def attempt(self, must_complete: bool = False) -> FetchResponse | None:
        """Read all partitions. Return the response if the Fetch is complete, or in any case with `must_complete`."""
        self._begin(must_complete)
        found: list[tuple[FetchedPartition, PartitionData]] = []
        size = self._read(self._context.asked(), found, 0)
        return self._context.respond(found) if self._is_complete(size) else None

    async def attempt_in_slices(self, must_complete: bool) -> FetchResponse | None:
        """Do as `attempt`, with turns of the event loop for other requests in between."""
        turns = Turns()
        self._begin(must_complete)
        asked = self._context.asked()
        found: list[tuple[FetchedPartition, PartitionData]] = []
        size = 0
        for start in range(0, len(asked), SLICE):
            size = self._read(asked[start : start + SLICE], found, size)
            await turns.others_first()
        await asyncio.sleep(0)
        return await self._context.respond_in_slices(found, SLICE) if self._is_complete(size) else None

    def progress(self) -> int:
        """Return a number that changes with each append to a partition that is not idle."""
        context = self._context
        found = [context.find(wanted.topic, wanted.index) for wanted in context.asked()]  # type: ignore[arg-type]
        hosted = [each for each in found if each is not None and each.served_log is not None]
        return sum([each.high_watermark + each.log_end_offset for each in hosted])

    def _begin(self, must_complete: bool) -> None:
        context, reader = self._context, self._reader
        if not reader.first:
            reader.begin_again()
        reader.urgent = must_complete or (context.follower is not None and self._is_called())

    def _read(
        self, asked: list[FetchedPartition], found: list[tuple[FetchedPartition, PartitionData]], size: int
    ) -> int:
        """Read these partitions into `found`, which has `size` bytes of others; return how many bytes it has then."""
        reader = self._reader
        room = max(self._max_bytes - size, 0)
        min_one = not (self._hard_limit or size)
        has_session = self._context.session is not None
        for wanted in asked:
            if has_session and self._is_idle(wanted):
                continue
            data = reader.read(wanted, room, min_one)
            length = 0 if data.records is None else len(data.records)
            if length:
                min_one = False
                size += length
                room = max(room - length, 0)
            found.append((wanted, data))
        return size

    def _is_complete(self, size: int) -> bool:
        """End an attempt that has read `size` bytes; return whether the Fetch has its response."""
        context, reader = self._context, self._reader
        reader.first = False
        can_wait = bool(reader.watched or context.idle)
        return size >= self._min_bytes or reader.urgent or not can_wait or self._completes_early()

    def expire(self) -> FetchResponse:
        """Return the response after `max_wait_ms`, with the records that are there."""
        response = self.attempt(True)
        assert response is not None
        return response

    def _completes_early(self) -> bool:
        if self._early is None:
            return False
        try:
            return self._early.is_due()
        except STORAGE_ERRORS:
            return True  # the next Fetch reports the failed disk

    def _is_called(self) -> bool:
        """Return whether this broker has become the leader of more partitions since the follower sent the request."""
        return self._calls != self._ctx.broker.follower_fetches.completions

    # -- idle partitions ----------------------------------------------------------------------------------------------

    def _is_idle(self, wanted: FetchedPartition) -> bool:
        """Return whether a partition of a session can be skipped."""
        context = self._context
        partition = context.find(wanted.topic, wanted.index)  # type: ignore[arg-type]  # a name or an id
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
        """Return whether the partition is idle for a follower; if so, take it out of the session's active ones."""
        if not is_idle_for_follower(partition, wanted, follower.id) or follower.error(partition, wanted.leader_epoch):
            return False
        if self._reader.first:
            follower.record_fetch(partition, wanted)
            if not is_idle_for_follower(partition, wanted, follower.id):
                return False
        assert partition.leader is not None
        idle.add((wanted.topic, wanted.index), partition, partition.leader.followers[follower.id])
        return True
