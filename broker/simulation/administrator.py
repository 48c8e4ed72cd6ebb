"""An administrator's requests under load: reassignments, elections, configurations, topics, deleted records.

Any request may fail at any time, so the responses are ignored; `checks` has the rules.
"""

from __future__ import annotations

import asyncio

from odradek_controller.configs.table import Resource
from odradek_wire.message import Message
from odradek_wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from odradek_wire.messages.create_partitions import CreatePartitionsRequest
from odradek_wire.messages.create_topics import CreateTopicsRequest
from odradek_wire.messages.delete_records import DeleteRecordsRequest
from odradek_wire.messages.delete_topics import DeleteTopicsRequest
from odradek_wire.messages.elect_leaders import ElectLeadersRequest
from odradek_wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from simulation.checks import Checks
from simulation.client import Client, UnreachableError, response_class_of

TEMPORARY_TOPIC = "passing"
"""A topic that is created and deleted repeatedly."""
SET, DELETE = 0, 1
ANY_EPOCH = 1 << 31


class Administrator:
    def __init__(self, client: Client, checks: Checks, brokers: tuple[int, ...], topic: str, partitions: int) -> None:
        self._client = client
        self._chance = client.chance
        self._checks = checks
        self._brokers = brokers
        self._topic = topic
        self._partitions = partitions

    async def reassign(self) -> None:
        """Assign two or three replicas in random order, or cancel the reassignment."""
        partition = self._chance.randrange(self._partitions)
        replicas: list[int] | None = self._chance.sample(self._brokers, self._chance.choice((2, 3, 3)))
        if self._chance.random() < 0.15:
            replicas = None
        wanted = AlterPartitionReassignmentsRequest.ReassignablePartition(partition, replicas)
        topic = AlterPartitionReassignmentsRequest.ReassignableTopic(self._topic, [wanted])
        self._client.note(f"replicas of {self._topic}-{partition} are reassigned to {replicas}")
        await self._ask(AlterPartitionReassignmentsRequest(topics=[topic]), 1)

    async def elect_preferred_leaders(self) -> None:
        self._client.note("elects the preferred leaders")
        await self._ask(ElectLeadersRequest(0, None), 2)

    async def configure(self) -> None:
        kind, name, setting, value = self._chance.choice(
            (
                (Resource.TOPIC, self._topic, "segment.ms", "2000"),
                (Resource.TOPIC, self._topic, "segment.ms", None),
                (Resource.TOPIC, self._topic, "flush.messages", "1"),
                (Resource.TOPIC, self._topic, "flush.messages", None),
                (Resource.TOPIC, self._topic, "flush.ms", "100"),
                (Resource.TOPIC, self._topic, "message.timestamp.type", "LogAppendTime"),
                (Resource.TOPIC, self._topic, "message.timestamp.type", None),
                (Resource.TOPIC, self._topic, "compression.type", "gzip"),
                (Resource.TOPIC, self._topic, "compression.type", None),
                (Resource.BROKER, "", "num.replica.fetchers", "2"),
                (Resource.BROKER, "", "num.replica.fetchers", None),
            )
        )
        self._client.note(f"sets {setting} of {name or 'all brokers'} to {value}")
        config = IncrementalAlterConfigsRequest.AlterableConfig(setting, SET if value is not None else DELETE, value)
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(int(kind), name, [config])
        await self._ask(IncrementalAlterConfigsRequest([resource]), 1)

    async def create_and_delete_topic(self) -> None:
        """Create a topic, add partitions, and delete it."""
        self._client.note(f"creates {TEMPORARY_TOPIC}")
        await self._ask(CreateTopicsRequest([CreateTopicsRequest.CreatableTopic(TEMPORARY_TOPIC, 2, -1)], 5000), 7)
        await asyncio.sleep(self._chance.uniform(0, 3))
        await self._ask(
            CreatePartitionsRequest([CreatePartitionsRequest.CreatePartitionsTopic(TEMPORARY_TOPIC, 4, None)], 5000), 3
        )
        await asyncio.sleep(self._chance.uniform(0, 3))
        self._client.note(f"deletes {TEMPORARY_TOPIC}")
        await self._ask(
            DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(TEMPORARY_TOPIC)], timeout_ms=5000), 6
        )

    async def delete_records(self) -> None:
        """Delete records before a random offset in the older half of the partition."""
        partition = self._chance.randrange(self._partitions)
        topic_partition = (self._topic, partition)
        before = self._chance.randint(0, self._checks.latest_seen(topic_partition, ANY_EPOCH) // 2)
        self._checks.deleting(topic_partition, before)
        self._client.note(f"deletes the records of {self._topic}-{partition} before {before}")
        wanted = DeleteRecordsRequest.DeleteRecordsPartition(partition, before)
        request = DeleteRecordsRequest([DeleteRecordsRequest.DeleteRecordsTopic(self._topic, [wanted])], 3000)
        try:
            await (await self._client.leader(*topic_partition)).ask(request, 2, response_class_of(DeleteRecordsRequest))
        except UnreachableError:
            pass
        finally:
            self._client.forget_leader(*topic_partition)

    async def _ask(self, request: Message, version: int) -> None:
        try:
            await self._client.ask_controller(request, version, response_class_of(type(request)))
        except UnreachableError:
            self._client.note("no response")
