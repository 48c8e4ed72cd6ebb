"""ISR changes that leaders propose, sent to the controller in AlterPartition requests.

Leaves whether a follower belongs to the ISR to the leader's core, whether it may join to the controller, and the order
of requests to `inter_broker.coalescing_retry`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek_broker.inter_broker.coalescing_retry import CoalescingRetry
from odradek_broker.metadata.broker_state import BrokerState
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

if TYPE_CHECKING:
    from odradek_broker.replication.partition import Partition

_REFUSED = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
"""Nothing has changed, for certain: the partition may forget what it proposed."""
_OVERTAKEN = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""The controller knows more than we do. It may be our own proposal, whose answer was lost: until the metadata says what
is true, the high watermark has to hold for both (Kafka's Partition.handleAlterPartitionError)."""
_RETRY_MS = 50


class AlterPartitionManager:
    """The proposals of all partitions that this broker leads: of each partition the last one."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._proposals: CoalescingRetry[Partition, frozenset[int]] = CoalescingRetry(
            self._send,
            sleep=state.timers.sleep,
            retry_ms=_RETRY_MS,
            failed="AlterPartition failed",
            log=state.log,
        )

    def propose(self, partition: Partition, isr: frozenset[int]) -> None:
        """Send the proposal. The partition gets the response by `isr_decided` or `isr_refused`, or learns the decision
        from the metadata."""
        self._proposals.add(partition, isr)

    async def close(self) -> None:
        """Send nothing more; no task is left when this returns."""
        await self._proposals.close()

    async def _send(self, proposals: dict[Partition, frozenset[int]]) -> dict[Partition, frozenset[int]]:
        """Returns those that are to be sent again."""
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
        for answered in response.topics:
            for result in answered.partitions:
                partition = sent[answered.topic_id, result.partition_index]
                leader = partition.leader
                if leader is None or leader.proposed_isr != proposals[partition]:
                    continue  # The metadata was faster.
                if result.error_code in _REFUSED:
                    partition.isr_refused()
                elif result.error_code in _OVERTAKEN:
                    self._state.log.debug(
                        "AlterPartition was overtaken", partition=f"{partition.topic}-{partition.index}"
                    )
                elif result.error_code:
                    again[partition] = proposals[partition]
                elif result.leader_epoch == leader.leader_epoch:
                    partition.isr_decided(frozenset(result.isr), result.partition_epoch)
        return again
