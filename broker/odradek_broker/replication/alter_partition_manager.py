"""ISR changes that leaders propose, sent to the controller in AlterPartition requests.

Leaves the decision that a follower belongs to the ISR to the leader core, whether it may join to the controller, and
the order of requests to `inter_broker.coalescing_queue`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek_broker.inter_broker.coalescing_queue import CoalescingQueue
from odradek_broker.metadata.broker_state import BrokerState
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

if TYPE_CHECKING:
    from odradek_broker.replication.partition import Partition

_REFUSED = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
"""The ISR has not changed: the leader may drop its proposal."""
_NEWER_METADATA = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""The controller has newer metadata than this broker. It may have applied this very proposal and the response was
lost: until the metadata arrives, the high watermark has to hold for both ISRs (Kafka's
Partition.handleAlterPartitionError)."""
_RETRY_MS = 50


class AlterPartitionManager:
    """Sends the latest proposal of each partition that this broker leads."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._proposals: CoalescingQueue[Partition, frozenset[int]] = CoalescingQueue(
            self._send,
            sleep=state.timers.sleep,
            retry_ms=_RETRY_MS,
            failure_event="AlterPartition failed",
            log=state.log,
        )

    def propose(self, partition: Partition, isr: frozenset[int]) -> None:
        """Send the proposal, then call `apply_isr` or `drop_proposed_isr` of the partition, unless the decision comes
        with the metadata."""
        self._proposals.add(partition, isr)

    async def close(self) -> None:
        """Send nothing more; no task is left when this returns."""
        await self._proposals.close()

    async def _send(self, proposals: dict[Partition, frozenset[int]]) -> dict[Partition, frozenset[int]]:
        """Send the proposals; return those to send again."""
        sent: dict[tuple[bytes, int], Partition] = {}
        request = AlterPartitionRequest(self._state.node_id, self._state.epoch)
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
                        AlterPartitionRequest.BrokerState(replica, leader.broker_epoch_of(replica, self._state.epoch))
                        for replica in sorted(isr)
                    ],
                    partition_epoch=leader.partition_epoch,
                )
            )
            sent[partition.topic_id, partition.index] = partition
        if not sent:
            return {}
        response: AlterPartitionResponse = await self._state.controller_channel.submit(request)
        if response.error_code:
            return {partition: proposals[partition] for partition in sent.values()}
        again: dict[Partition, frozenset[int]] = {}
        for topic_result in response.topics:
            for result in topic_result.partitions:
                partition = sent[topic_result.topic_id, result.partition_index]
                leader = partition.leader
                if leader is None or leader.proposed_isr != proposals[partition]:
                    continue  # The metadata arrived before the response.
                if result.error_code in _REFUSED:
                    partition.drop_proposed_isr()
                elif result.error_code in _NEWER_METADATA:
                    self._state.log.debug(
                        "AlterPartition refused, waiting for metadata", partition=f"{partition.topic}-{partition.index}"
                    )
                elif result.error_code:
                    again[partition] = proposals[partition]
                elif result.leader_epoch == leader.leader_epoch:
                    partition.apply_isr(frozenset(result.isr), result.partition_epoch)
        return again
