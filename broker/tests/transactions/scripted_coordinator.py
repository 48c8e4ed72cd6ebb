"""A local transaction coordinator whose responses a test sets, in place of the broker's own."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from odradek_broker.deferred import Deferred
from odradek_broker.transactions.core.transaction_metadata import Producer, TopicPartition
from odradek_wire.errors import ErrorCode


class ScriptedCoordinator:
    def __init__(self) -> None:
        self.requests: list[tuple[str, str, Producer, tuple[TopicPartition, ...]]] = []
        """Each request: "verify" or "add", the transactional id, the producer and the partitions."""
        self.errors: dict[TopicPartition, ErrorCode] = {}
        """The errors of a verification; other partitions get NONE."""
        self.error = ErrorCode.NONE
        """The error of an addition."""
        self.held: list[Deferred[ErrorCode]] | None = None
        """If it is a list, additions append their pending responses to it."""

    def verify_partitions(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        self.requests.append(("verify", transactional_id, producer, tuple(partitions)))
        return {partition: self.errors.get(partition, ErrorCode.NONE) for partition in partitions}

    def add_partitions(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> ErrorCode | Deferred[ErrorCode]:
        self.requests.append(("add", transactional_id, producer, tuple(partitions)))
        if self.held is None:
            return self.error
        self.held.append(Deferred())
        return self.held[-1]
