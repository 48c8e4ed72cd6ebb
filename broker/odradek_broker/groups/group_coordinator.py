"""The coordinator of groups: which partition of `__consumer_offsets` keeps a group, and requests on their way there.

Owns the partitions that this broker coordinates, the checks that come before a group is looked at (in the order of
Kafka's GroupCoordinatorService), and the regular expiry of offsets. Leaves one partition's work to `group_partition`,
the rules to `core.group_shard`, authorization and topics to the API modules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from odradek_broker.config import BrokerConfig
from odradek_broker.coordination.core.java_hash import partition_for
from odradek_broker.coordination.durable_partition import CoordinatorState
from odradek_broker.deferred import Deferred
from odradek_broker.groups.core import offset_requests
from odradek_broker.groups.core.group_kind import Request, RequestHandler, Response
from odradek_broker.groups.core.group_step import GroupClient, GroupSettings
from odradek_broker.groups.core.offset_store import OffsetStore
from odradek_broker.groups.core.write_errors import group_write_error, offset_write_error
from odradek_broker.groups.group_partition import GroupPartition
from odradek_broker.metadata.view import CONSUMER_OFFSETS
from odradek_broker.replication.partition import Partition
from odradek_broker.timers import TimerHandle
from odradek_broker.transactions.core.transaction import Producer
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.delete_groups import DeleteGroupsResponse
from odradek_wire.messages.describe_groups import DescribeGroupsResponse
from odradek_wire.messages.list_groups import ListGroupsResponse
from odradek_wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from odradek_wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from odradek_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from odradek_wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from odradek_wire.records.attributes import COMPRESSIONS, NO_PRODUCER_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from odradek_broker.broker import Broker
    from odradek_controller.image import MetadataDelta
    from odradek_log.verification_guard import VerificationGuard

MS_PER_MINUTE = 60_000

OffsetFetchGroup = OffsetFetchResponse.OffsetFetchResponseGroup


class GroupCoordinator:
    """Every method answers at once when it can, else with a `Deferred`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._partitions: dict[int, GroupPartition] = {}
        self._expiry: TimerHandle | None = None

    # -- leadership -----------------------------------------------------------------------------------------------

    def elected(self, partition: Partition) -> None:
        """This broker leads the partition, perhaps again in a newer epoch: what is in its log is what counts."""
        self.resigned(partition.index)
        broker = self._broker
        config = broker.config
        coordinated = GroupPartition(
            partition=partition,
            clock=broker.clock,
            timers=broker.timers,
            settings=settings_from(config),
            image=broker.image,
            log=broker.log,
            compression=COMPRESSIONS[config.integer("offsets.topic.compression.codec")],
            write_timeout_ms=config.integer("offsets.commit.timeout.ms"),
        )
        self._partitions[partition.index] = coordinated
        coordinated.load()
        if self._expiry is None:
            self._schedule_expiry()

    def resigned(self, index: int) -> None:
        coordinated = self._partitions.pop(index, None)
        if coordinated is not None:
            coordinated.resign()

    def metadata_changed(self, delta: MetadataDelta) -> None:
        """Offsets of deleted topics go with them, by name, as Kafka keeps them."""
        for coordinated in self._partitions.values():
            coordinated.shard.image = delta.image
        deleted = [topic.name for topic in delta.deleted_topics.values()]
        if deleted and CONSUMER_OFFSETS not in deleted:
            for coordinated in self._ready():
                self._drop_topics(coordinated, deleted)

    async def stop(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        for index in list(self._partitions):
            self.resigned(index)

    @property
    def ready(self) -> bool:
        """Is everything that this broker coordinates loaded?"""
        return all(coordinated.state is CoordinatorState.ACTIVE for coordinated in self._partitions.values())

    def partition_of(self, group_id: str) -> int:
        """Which partition keeps the group; before the topic exists, which one will."""
        topic = self._broker.image.topics.get(CONSUMER_OFFSETS)
        count = len(topic.partitions) if topic else self._broker.config.integer("offsets.topic.num.partitions")
        return partition_for(group_id, count)

    # -- members --------------------------------------------------------------------------------------------------

    def handle(
        self, handler: RequestHandler[Request, Response], request: Request, client: GroupClient
    ) -> Response | Deferred[Response]:
        """Serve a request about the members of a group: JoinGroup, SyncGroup, a heartbeat."""
        error = self._refusal(handler, request)
        coordinated = error or self._coordinated(request.group_id)
        if isinstance(coordinated, ErrorCode):
            return handler.refused(request, coordinated)
        answer: Deferred[Response] = Deferred()
        coordinated.apply(coordinated.shard.handle(handler, request, client, answer, coordinated.now()))
        return answer.result() if answer.done else answer

    def _refusal(self, handler: RequestHandler[Request, Response], request: Request) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if handler.validate is None:
            return ErrorCode.NONE
        return handler.validate(request, settings_from(self._broker.config))

    # -- offsets --------------------------------------------------------------------------------------------------

    def commit(
        self, request: OffsetCommitRequest, api_version: int
    ) -> OffsetCommitResponse | ErrorCode | Deferred[OffsetCommitResponse]:
        """Return the response, or the error that every partition gets. The empty group id is valid here."""
        coordinated = self._coordinated(request.group_id)
        if isinstance(coordinated, ErrorCode):
            return coordinated
        answer: Deferred[OffsetCommitResponse] = Deferred()
        step = coordinated.shard.commit(request, api_version, answer, coordinated.now())
        if isinstance(step, ErrorCode):
            return step
        coordinated.apply(step)
        return answer.result() if answer.done else answer

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, api_version: int
    ) -> TxnOffsetCommitResponse | ErrorCode | Deferred[TxnOffsetCommitResponse | ErrorCode]:
        """As `commit`, for offsets that count once the producer's transaction is committed. The transaction's
        coordinator may be asked first."""
        # Most brokers never see one.
        from odradek_broker.transactions.transaction_verification import VERIFICATION_ENABLE, verify_offset_commit

        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        coordinated = self._coordinated(request.group_id)
        if isinstance(coordinated, ErrorCode):
            return coordinated
        broker = self._broker
        guard = verify_offset_commit(
            broker.add_partitions_to_txn_manager,
            coordinated.partition,
            request,
            api_version,
            required=broker.config.boolean(VERIFICATION_ENABLE),
        )
        if isinstance(guard, Deferred):
            answer: Deferred[TxnOffsetCommitResponse | ErrorCode]
            answer = guard.then(lambda verified: self._commit_in_transaction(request, verified))
            return answer.result() if answer.done else answer
        return self._commit_in_transaction(request, guard)

    def _commit_in_transaction(
        self, request: TxnOffsetCommitRequest, guard: VerificationGuard | ErrorCode
    ) -> TxnOffsetCommitResponse | ErrorCode | Deferred[TxnOffsetCommitResponse | ErrorCode]:
        if isinstance(guard, ErrorCode):
            return group_write_error(guard)
        coordinated = self._coordinated(request.group_id)
        if isinstance(coordinated, ErrorCode):
            return coordinated
        result = coordinated.shard.commit_in_transaction(request, coordinated.now())
        if isinstance(result, ErrorCode):
            return result
        records, response = result
        if not records:
            return response
        answer: Deferred[TxnOffsetCommitResponse | ErrorCode] = Deferred()

        def done(error: ErrorCode) -> None:
            answer.complete(group_write_error(error) if error else response)

        producer = Producer(request.producer_id, request.producer_epoch)
        if producer.id == NO_PRODUCER_ID:
            coordinated.write(records, done)  # of no transaction, as in Kafka
        elif producer.epoch == NO_PRODUCER_EPOCH:
            done(ErrorCode.UNKNOWN_SERVER_ERROR)  # Kafka has no better code for it
        else:
            coordinated.write_in_transaction(records, producer, guard, done)
        return answer.result() if answer.done else answer

    def fetch(
        self, request: OffsetFetchRequest.OffsetFetchRequestGroup, require_stable: bool
    ) -> OffsetFetchGroup | Deferred[OffsetFetchGroup]:
        coordinated = self._coordinated(request.group_id)
        if isinstance(coordinated, ErrorCode):
            if CONSUMER_OFFSETS not in self._broker.image.topics and self._broker.has_metadata:
                # Nobody ever committed anything, or all was reset. Kafka says NOT_COORDINATOR, at which the admin
                # client of librdkafka 2.16 crashes, in the very process of a user's test.
                return offset_requests.fetch(OffsetStore(), request)
            return OffsetFetchGroup(group_id=request.group_id, error_code=coordinated)
        if not require_stable:
            return coordinated.shard.fetch(request)
        # What is being committed right now counts, in transactions and outside: wait for it (KIP-447).
        answer: Deferred[OffsetFetchGroup] = Deferred()

        def fetch(error: ErrorCode) -> None:
            failed = OffsetFetchGroup(group_id=request.group_id, error_code=error)
            answer.complete(failed if error else coordinated.shard.fetch(request, require_stable=True))

        coordinated.when_drained(fetch)
        return answer.result() if answer.done else answer

    def delete_offsets(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse | Deferred[OffsetDeleteResponse]:
        if not request.group_id:
            return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        coordinated = self._coordinated(request.group_id)
        if isinstance(coordinated, ErrorCode):
            return OffsetDeleteResponse(error_code=coordinated)
        answer: Deferred[OffsetDeleteResponse] = Deferred()

        def delete(error: ErrorCode) -> None:
            if error:
                answer.complete(OffsetDeleteResponse(error_code=error))
                return
            coordinated.apply(coordinated.shard.delete_offsets(request, answer, coordinated.now()))

        coordinated.when_drained(delete)
        return answer.result() if answer.done else answer

    # -- administration -------------------------------------------------------------------------------------------

    def list(self) -> Sequence[ListGroupsResponse.ListedGroup] | ErrorCode:
        """All groups of this broker, in no particular order."""
        listed: list[ListGroupsResponse.ListedGroup] = []
        for coordinated in self._partitions.values():
            if coordinated.state is CoordinatorState.LOADING:
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            listed.extend(coordinated.shard.list())
        return listed

    def describe(self, group_id: str) -> DescribeGroupsResponse.DescribedGroup:
        coordinated = self._coordinated(group_id)
        if isinstance(coordinated, ErrorCode):
            return DescribeGroupsResponse.DescribedGroup(group_id=group_id, error_code=coordinated)
        return coordinated.shard.describe(group_id)

    def delete(self, group_id: str) -> Deferred[DeleteGroupsResponse.DeletableGroupResult]:
        answer: Deferred[DeleteGroupsResponse.DeletableGroupResult] = Deferred()
        coordinated = self._coordinated(group_id)
        if isinstance(coordinated, ErrorCode):
            answer.complete(DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=coordinated))
            return answer

        def delete(error: ErrorCode) -> None:
            if error:
                answer.complete(DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=error))
                return
            records, result = coordinated.shard.delete(group_id)

            def written(error: ErrorCode) -> None:
                result.error_code = result.error_code or offset_write_error(error)
                answer.complete(result)

            coordinated.write_independent(records, written)

        coordinated.when_drained(delete)
        return answer

    # -- inside ---------------------------------------------------------------------------------------------------

    def _coordinated(self, group_id: str) -> GroupPartition | ErrorCode:
        """The group's partition if it is here and loaded."""
        coordinated = self._partitions.get(self.partition_of(group_id))
        if coordinated is None or coordinated.state in (CoordinatorState.FAILED, CoordinatorState.CLOSED):
            return ErrorCode.NOT_COORDINATOR
        if coordinated.state is CoordinatorState.LOADING:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return coordinated

    def _ready(self) -> Iterable[GroupPartition]:
        return [
            coordinated for coordinated in self._partitions.values() if coordinated.state is CoordinatorState.ACTIVE
        ]

    def _drop_topics(self, coordinated: GroupPartition, topics: Sequence[str]) -> None:
        def drop(error: ErrorCode) -> None:
            if not error:
                coordinated.write_independent(coordinated.shard.delete_offsets_of_topics(topics), _nobody_asked)

        coordinated.when_drained(drop)

    def _schedule_expiry(self) -> None:
        interval_ms = self._broker.config.integer("offsets.retention.check.interval.ms")
        self._expiry = self._broker.timers.call_later(interval_ms, self._expire)

    def _expire(self) -> None:
        for coordinated in self._ready():
            coordinated.shard.settings = settings_from(self._broker.config)
            self._expire_in(coordinated)
        self._schedule_expiry()

    def _expire_in(self, coordinated: GroupPartition) -> None:
        def expire(error: ErrorCode) -> None:
            if not error:
                coordinated.write_independent(
                    coordinated.shard.expire_offsets(coordinated.now().wall_ms), _nobody_asked
                )

        coordinated.when_drained(expire)


def _nobody_asked(_: ErrorCode) -> None:
    """What could not be deleted now is still there, and is found, the next time."""


def settings_from(config: BrokerConfig) -> GroupSettings:
    return GroupSettings(
        min_session_timeout_ms=config.integer("group.min.session.timeout.ms"),
        max_session_timeout_ms=config.integer("group.max.session.timeout.ms"),
        initial_rebalance_delay_ms=config.integer("group.initial.rebalance.delay.ms"),
        max_size=config.integer("group.max.size"),
        offset_metadata_max_bytes=config.integer("offset.metadata.max.bytes"),
        offsets_retention_ms=config.integer("offsets.retention.minutes") * MS_PER_MINUTE,
    )
