"""In which of its log directories this broker keeps each replica, or that it lost one, as the controller is told
(KIP-858).

Owns the reports and their repetition. The controller decides the directory of a broker that has only one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek_broker.replication.partition import Partition
from odradek_broker.storage.directory_identity import id_of
from odradek_controller.image import LOST_DIRECTORY
from odradek_log.directory import LogDirectory
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from odradek_wire.uuid import Uuid

if TYPE_CHECKING:
    from odradek_broker.broker import Broker

_RETRY_MS = 100


class AssignmentsManager:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting: dict[Partition, None] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def report(self, partitions: Sequence[Partition]) -> None:
        """These are not where the controller believes."""
        if self._closed:
            # A disk that fails while logs are closed: who starts next finds that for himself.
            return
        self._waiting.update(dict.fromkeys(partitions))
        if self._waiting and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._send_all())

    async def assign(self, partition: Partition, directory: LogDirectory) -> bool:
        """The partition is going there; whether the controller knows. Without directory ids it need not."""
        return not self._broker.image.levels.directories or await self._send([(partition, id_of(directory))])

    async def close(self) -> None:
        self._closed = True
        self._waiting.clear()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _send_all(self) -> None:
        while self._waiting:
            sent, self._waiting = self._waiting, {}
            if not await self._send([(each, _where(each)) for each in sent]):
                self._waiting = {**sent, **self._waiting}
                await self._broker.timers.sleep(_RETRY_MS)
        self._task = None

    async def _send(self, places: Sequence[tuple[Partition, Uuid | None]]) -> bool:
        request = AssignReplicasToDirsRequest(self._broker.node_id, self._broker.epoch)
        directories: dict[Uuid, AssignReplicasToDirsRequest.DirectoryData] = {}
        for partition, directory_id in places:
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
            response = await self._broker.controller.assign_replicas_to_dirs(request)
        except Exception as error:
            self._broker.log.error("AssignReplicasToDirs failed", exc_info=error)
            return False
        # A partition that the controller does not know is on its way out.
        return response.error_code == ErrorCode.NONE


def _where(partition: Partition) -> Uuid | None:
    if partition.error == ErrorCode.KAFKA_STORAGE_ERROR:
        return LOST_DIRECTORY
    return None if partition.directory is None else id_of(partition.directory)
