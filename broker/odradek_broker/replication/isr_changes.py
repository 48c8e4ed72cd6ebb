"""Proposals of leaders on their way to the controller: one AlterPartition at a time, with all that waits.

Owns the order and the repetition. Whether a follower belongs to the ISR is the leader's core's, whether it may is the
controller's.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from odradek_wire.errors import ErrorCode
from odradek_wire.messages.alter_partition import AlterPartitionRequest

if TYPE_CHECKING:
    from odradek_broker.broker import Broker
    from odradek_broker.partition import Partition

_RETRIED = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
_RETRY_MS = 50


class IsrChanges:
    """What the partitions of one broker propose."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting: dict[Partition, frozenset[int]] = {}
        self._task: asyncio.Task[None] | None = None

    def propose(self, partition: Partition, isr: frozenset[int]) -> None:
        """The partition is told by `isr_decided` or `isr_refused`, or hears from the metadata."""
        self._waiting[partition] = isr
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._send_all())

    def close(self) -> None:
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _send_all(self) -> None:
        while self._waiting:
            sent, self._waiting = self._waiting, {}
            try:
                retried = await self._send(sent)
            except Exception as error:
                self._broker.log.error("AlterPartition failed", exc_info=error)
                retried = sent
            if retried:
                self._waiting = {**retried, **self._waiting}
                await self._broker.timers.sleep(_RETRY_MS)
        self._task = None

    async def _send(self, proposals: dict[Partition, frozenset[int]]) -> dict[Partition, frozenset[int]]:
        """Returns those that are to be sent again."""
        sent: dict[tuple[bytes, int], Partition] = {}
        request = AlterPartitionRequest(self._broker.node_id, self._broker.epoch)
        topics: dict[bytes, AlterPartitionRequest.TopicData] = {}
        for partition, isr in proposals.items():
            leader = partition.leader
            if leader is None or leader.proposed_isr != isr:
                continue
            topic = topics.get(partition.topic_id)
            if topic is None:
                topic = topics[partition.topic_id] = AlterPartitionRequest.TopicData(topic_id=partition.topic_id)
                request.topics.append(topic)
            topic.partitions.append(
                AlterPartitionRequest.PartitionData(
                    partition.index,
                    leader.leader_epoch,
                    new_isr_with_epochs=[
                        AlterPartitionRequest.BrokerState(replica, leader.broker_epoch_of(replica, self._broker.epoch))
                        for replica in sorted(isr)
                    ],
                    partition_epoch=leader.partition_epoch,
                )
            )
            sent[partition.topic_id, partition.index] = partition
        if not sent:
            return {}
        response = await self._broker.controller.alter_partition(request)
        if response.error_code:
            return {partition: proposals[partition] for partition in sent.values()}
        again: dict[Partition, frozenset[int]] = {}
        for answered in response.topics:
            for result in answered.partitions:
                partition = sent[answered.topic_id, result.partition_index]
                leader = partition.leader
                if leader is None or leader.proposed_isr != proposals[partition]:
                    continue  # The metadata was faster.
                if result.error_code in _RETRIED:
                    again[partition] = proposals[partition]
                elif result.error_code:
                    leader.isr_refused()
                elif result.leader_epoch == leader.leader_epoch:
                    partition.isr_decided(frozenset(result.isr), result.partition_epoch)
        return again
