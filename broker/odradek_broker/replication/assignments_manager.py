"""Reports to the controller in which log directory a replica of this broker is, or that it is lost (KIP-858).

Owns the AssignReplicasToDirs requests. Leaves their order to `inter_broker.coalescing_queue`. The controller itself
assigns the directory if a broker has only one.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek_broker.inter_broker.coalescing_queue import CoalescingQueue
from odradek_broker.metadata.broker_state import BrokerState
from odradek_broker.metadata.directory_identity import directory_id_of
from odradek_broker.replication.partition import Partition
from odradek_controller.image import LOST_DIRECTORY
from odradek_log.directory import LogDirectory
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from odradek_wire.uuid import Uuid

_RETRY_MS = 100
_ASSIGNMENTS_MAX = 500
"""Assignments in one request (Kafka: 2,250), because the controller decides them in one turn of the event loop."""


class AssignmentsManager:
    """The reports of one broker."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._reports: CoalescingQueue[Partition, None] = CoalescingQueue(
            self._send_reports,
            sleep=state.timers.sleep,
            retry_ms=_RETRY_MS,
            failure_event="AssignReplicasToDirs failed",
            log=state.log,
        )

    def report(self, partitions: Sequence[Partition]) -> None:
        """Report the directories of these partitions, because the controller has assigned others. After `close` this
        does nothing: if a disk fails while logs are closed, the next start finds that."""
        for partition in partitions:
            self._reports.add(partition, None)

    async def assign(self, partition: Partition, directory: LogDirectory) -> bool:
        """Report that the partition moves to a directory; return whether the controller accepts that. A cluster
        without directory ids needs no report."""
        return not self._state.image.levels.directory_assignment or await self._send(
            [(partition, directory_id_of(directory))]
        )

    async def close(self) -> None:
        """Send nothing more; no task is left when this returns."""
        await self._reports.close()

    async def _send_reports(self, reports: dict[Partition, None]) -> dict[Partition, None]:
        partitions = list(reports)
        for start in range(0, len(partitions), _ASSIGNMENTS_MAX):
            part = partitions[start : start + _ASSIGNMENTS_MAX]
            if not await self._send([(partition, _directory_of(partition)) for partition in part]):
                return dict.fromkeys(partitions[start:])
        return {}

    async def _send(self, assignments: Sequence[tuple[Partition, Uuid | None]]) -> bool:
        request = AssignReplicasToDirsRequest(self._state.node_id, self._state.epoch)
        directories: dict[Uuid, AssignReplicasToDirsRequest.DirectoryData] = {}
        for partition, directory_id in assignments:
            if directory_id is None:
                continue
            data = directories.get(directory_id)
            if data is None:
                data = directories[directory_id] = AssignReplicasToDirsRequest.DirectoryData(directory_id)
                request.directories.append(data)
            data.topics.append(
                AssignReplicasToDirsRequest.TopicData(
                    partition.topic_id, [AssignReplicasToDirsRequest.PartitionData(partition.index)]
                )
            )
        if not request.directories:
            return True
        try:
            response: AssignReplicasToDirsResponse = await self._state.controller_channel.submit(request)
        except Exception as error:
            self._state.log.error("AssignReplicasToDirs failed", exc_info=error)
            return False
        # An error of one partition is ignored: the controller has deleted the partition.
        return response.error_code == ErrorCode.NONE


def _directory_of(partition: Partition) -> Uuid | None:
    if partition.error == ErrorCode.KAFKA_STORAGE_ERROR:
        return LOST_DIRECTORY
    return None if partition.directory is None else directory_id_of(partition.directory)
