"""The group coordinator of one broker: it passes requests to the partitions of `__consumer_offsets` that this broker
leads.

Owns the choice of a group's partition, the checks before a group is looked up (in the order of Kafka's
GroupCoordinatorService), and the interval of offset expiration. Leaves one partition to `group_partition`, the rules to
`core.group_shard`, authorization and topics to the API modules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from odradek_broker.clock import Clock
from odradek_broker.config import BrokerConfig
from odradek_broker.coordination.coordinator_runtime import CoordinatorRuntime
from odradek_broker.coordination.durable_partition import CoordinatorState
from odradek_broker.deferred import Deferred
from odradek_broker.groups.core import offset_requests
from odradek_broker.groups.core.group_kind import Request, RequestHandler, Response
from odradek_broker.groups.core.group_step import GroupClient, GroupSettings
from odradek_broker.groups.core.offset_requests import FetchedOffsets
from odradek_broker.groups.core.offset_store import OffsetStore
from odradek_broker.groups.core.write_errors import group_write_error, stable_fetch_error
from odradek_broker.groups.group_partition import GroupPartition
from odradek_broker.logger import Logger
from odradek_broker.metadata.view import CONSUMER_OFFSETS
from odradek_broker.replication.partition import Partition
from odradek_broker.timers import Timers
from odradek_broker.transactions.core.transaction_metadata import Producer
from odradek_controller.image import ClusterImage, MetadataDelta
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.delete_groups import DeleteGroupsResponse
from odradek_wire.messages.describe_groups import DescribeGroupsResponse
from odradek_wire.messages.list_groups import ListGroupsResponse
from odradek_wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from odradek_wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from odradek_wire.messages.offset_fetch import OffsetFetchRequest
from odradek_wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from odradek_wire.records.attributes import COMPRESSIONS, NO_PRODUCER_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from odradek_broker.transactions.add_partitions_to_txn_manager import AddPartitionsToTxnManager
    from odradek_log.verification_guard import VerificationGuard

MS_PER_MINUTE = 60_000


class GroupCoordinator:
    """A method that serves a request returns the response, or a `Deferred` if the response is not known yet."""

    def __init__(
        self,
        *,
        config: Callable[[], BrokerConfig],
        image: Callable[[], ClusterImage],
        has_metadata: Callable[[], bool],
        add_partitions_to_txn_manager: Callable[[], AddPartitionsToTxnManager],
        clock: Clock,
        timers: Timers,
        log: Logger,
    ) -> None:
        """`config` and `image` return the present ones. `has_metadata` returns whether the broker has received its
        first metadata: before, a topic that is not in the image may exist."""
        self._config = config
        self._image = image
        self._has_metadata = has_metadata
        self._add_partitions_to_txn_manager = add_partitions_to_txn_manager
        self._clock = clock
        self._timers = timers
        self._log = log
        self._runtime = CoordinatorRuntime(
            topic=CONSUMER_OFFSETS,
            new_partition_count=lambda: config().integer("offsets.topic.num.partitions"),
            image=image,
            timers=timers,
            cleanup_interval_ms=lambda: config().integer("offsets.retention.check.interval.ms"),
            clean_up=self._expire_offsets,
        )

    # -- leadership -----------------------------------------------------------------------------------------------

    def elected(self, partition: Partition) -> None:
        """Load the groups of a partition that this broker leads in a new leader epoch."""
        self.resigned(partition.index)
        config = self._config()
        group_partition = GroupPartition(
            partition=partition,
            clock=self._clock,
            timers=self._timers,
            settings=settings_from(config),
            image=self._image(),
            log=self._log,
            compression=COMPRESSIONS[config.integer("offsets.topic.compression.codec")],
            write_timeout_ms=config.integer("offsets.commit.timeout.ms"),
        )
        self._runtime.load(partition.index, group_partition)

    def resigned(self, index: int) -> None:
        """Unload a partition that another broker leads now."""
        self._runtime.unload(index)

    def metadata_changed(self, delta: MetadataDelta) -> None:
        """Pass on the image, and delete the offsets of deleted topics; as in Kafka, the topic's name decides, not its
        id."""
        for group_partition in self._runtime.partitions:
            group_partition.shard.image = delta.image
        deleted = [topic.name for topic in delta.deleted_topics.values()]
        # Without `__consumer_offsets` there are no offsets to delete, nor a log for their tombstones.
        if deleted and CONSUMER_OFFSETS not in deleted:
            for group_partition in self._runtime.active:
                self._delete_offsets_of_topics(group_partition, deleted)

    def stop(self) -> None:
        """Resign from every partition: pending requests fail with NOT_COORDINATOR."""
        self._runtime.close()

    @property
    def ready(self) -> bool:
        """Whether every partition that this broker coordinates is loaded."""
        return all(group_partition.state is CoordinatorState.ACTIVE for group_partition in self._runtime.partitions)

    def partition_of(self, group_id: str) -> int:
        """Return the index of the group's partition, also before `__consumer_offsets` exists."""
        return self._runtime.partition_of(group_id)

    # -- members --------------------------------------------------------------------------------------------------

    def handle(
        self, handler: RequestHandler[Request, Response], request: Request, client: GroupClient
    ) -> Response | Deferred[Response]:
        """Serve a request of a group's member: JoinGroup, SyncGroup, Heartbeat or LeaveGroup."""
        error = self._validate(handler, request)
        if error:
            return handler.error_response(request, error)
        group_partition = self._runtime.find(request.group_id)
        if isinstance(group_partition, ErrorCode):
            return handler.error_response(request, group_partition)
        pending: Deferred[Response] = Deferred()
        group_partition.handle(handler, request, client, pending)
        return pending.result() if pending.done else pending

    def _validate(self, handler: RequestHandler[Request, Response], request: Request) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if handler.validate is None:
            return ErrorCode.NONE
        return handler.validate(request, settings_from(self._config()))

    # -- offsets --------------------------------------------------------------------------------------------------

    def commit_offsets(
        self, request: OffsetCommitRequest, api_version: int
    ) -> OffsetCommitResponse | ErrorCode | Deferred[OffsetCommitResponse]:
        """Return the response, or the error for every partition. Here the group id may be empty."""
        group_partition = self._runtime.find(request.group_id)
        if isinstance(group_partition, ErrorCode):
            return group_partition
        pending: Deferred[OffsetCommitResponse] = Deferred()
        step = group_partition.shard.commit(request, api_version, pending, group_partition.now())
        if isinstance(step, ErrorCode):
            return step
        group_partition.apply(step)
        return pending.result() if pending.done else pending

    def commit_transactional_offsets(
        self, request: TxnOffsetCommitRequest, api_version: int
    ) -> TxnOffsetCommitResponse | ErrorCode | Deferred[TxnOffsetCommitResponse | ErrorCode]:
        """Like `commit_offsets`, for offsets that become visible when the producer's transaction is committed. The
        transaction coordinator may have to verify the transaction first (KIP-890)."""
        # Imported here, because most brokers never receive a TxnOffsetCommit.
        from odradek_broker.transactions.transaction_verification import VERIFICATION_ENABLE, verify_offset_commit

        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        group_partition = self._runtime.find(request.group_id)
        if isinstance(group_partition, ErrorCode):
            return group_partition
        guard = verify_offset_commit(
            self._add_partitions_to_txn_manager(),
            group_partition.partition,
            request,
            api_version,
            required=self._config().boolean(VERIFICATION_ENABLE),
        )
        if isinstance(guard, Deferred):
            pending: Deferred[TxnOffsetCommitResponse | ErrorCode]
            pending = guard.then(lambda verified: self._commit_in_transaction(request, api_version, verified))
            return pending.result() if pending.done else pending
        return self._commit_in_transaction(request, api_version, guard)

    def _commit_in_transaction(
        self, request: TxnOffsetCommitRequest, api_version: int, guard: VerificationGuard | ErrorCode
    ) -> TxnOffsetCommitResponse | ErrorCode | Deferred[TxnOffsetCommitResponse | ErrorCode]:
        if isinstance(guard, ErrorCode):
            return group_write_error(guard)
        group_partition = self._runtime.find(request.group_id)
        if isinstance(group_partition, ErrorCode):
            return group_partition
        result = group_partition.shard.commit_in_transaction(request, api_version, group_partition.now())
        if isinstance(result, ErrorCode):
            return result
        records, response = result
        if not records:
            return response
        pending: Deferred[TxnOffsetCommitResponse | ErrorCode] = Deferred()

        def done(error: ErrorCode) -> None:
            pending.complete(group_write_error(error) if error else response)

        producer = Producer(request.producer_id, request.producer_epoch)
        if producer.id == NO_PRODUCER_ID:
            group_partition.write(records, done)  # outside any transaction, as in Kafka
        elif producer.epoch == NO_PRODUCER_EPOCH:
            done(ErrorCode.UNKNOWN_SERVER_ERROR)  # as in Kafka
        else:
            group_partition.write_in_transaction(records, producer, guard, done)
        return pending.result() if pending.done else pending

    def fetch_offsets(
        self, request: OffsetFetchRequest.OffsetFetchRequestGroup, require_stable: bool
    ) -> FetchedOffsets | Deferred[FetchedOffsets]:
        group_partition = self._runtime.find(request.group_id)
        if isinstance(group_partition, ErrorCode):
            if CONSUMER_OFFSETS not in self._image().topics and self._has_metadata():
                # No offset was ever committed, or a reset has deleted the topic. Kafka returns NOT_COORDINATOR, which
                # crashes a process with the admin client of librdkafka 2.16.
                return offset_requests.fetch(OffsetStore(), request)
            return FetchedOffsets.failed(request.group_id, group_partition)
        if not require_stable:
            return group_partition.shard.fetch(request)
        # KIP-447: wait for all commits that are being written, also for those outside transactions.
        pending: Deferred[FetchedOffsets] = Deferred()

        def fetch(error: ErrorCode) -> None:
            failed = FetchedOffsets.failed(request.group_id, stable_fetch_error(error))
            pending.complete(failed if error else group_partition.shard.fetch(request, require_stable=True))

        group_partition.when_earlier_writes_committed(fetch)
        return pending.result() if pending.done else pending

    def delete_offsets(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse | Deferred[OffsetDeleteResponse]:
        if not request.group_id:
            return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        group_partition = self._runtime.find(request.group_id)
        if isinstance(group_partition, ErrorCode):
            return OffsetDeleteResponse(error_code=group_partition)
        pending: Deferred[OffsetDeleteResponse] = Deferred()

        def delete(error: ErrorCode) -> None:
            if error:
                pending.complete(OffsetDeleteResponse(error_code=group_write_error(error)))
                return
            group_partition.apply(group_partition.shard.delete_offsets(request, pending, group_partition.now()))

        group_partition.when_writes_committed(delete)
        return pending.result() if pending.done else pending

    # -- administration -------------------------------------------------------------------------------------------

    def list_groups(self) -> Iterator[ListGroupsResponse.ListedGroup] | ErrorCode:
        """Return the groups that this broker coordinates now, in no particular order, each with its state when the
        caller takes it."""
        partitions = list(self._runtime.partitions)
        if any(each.state is CoordinatorState.LOADING for each in partitions):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return chain.from_iterable([each.shard.list() for each in partitions])

    def describe_group(self, group_id: str) -> DescribeGroupsResponse.DescribedGroup:
        group_partition = self._runtime.find(group_id)
        if isinstance(group_partition, ErrorCode):
            return DescribeGroupsResponse.DescribedGroup(group_id=group_id, error_code=group_partition)
        return group_partition.shard.describe(group_id)

    def delete_group(self, group_id: str) -> Deferred[DeleteGroupsResponse.DeletableGroupResult]:
        pending: Deferred[DeleteGroupsResponse.DeletableGroupResult] = Deferred()
        group_partition = self._runtime.find(group_id)
        if isinstance(group_partition, ErrorCode):
            pending.complete(DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=group_partition))
            return pending

        def delete(error: ErrorCode) -> None:
            if error:
                refused = group_write_error(error)
                pending.complete(DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=refused))
                return
            records, result = group_partition.shard.delete(group_id)

            def written(error: ErrorCode) -> None:
                result.error_code = result.error_code or group_write_error(error)
                pending.complete(result)

            group_partition.write_in_batches(records, written)

        group_partition.when_writes_committed(delete)
        return pending

    # -- deletion of offsets in the background --------------------------------------------------------------------

    def _delete_offsets_of_topics(self, group_partition: GroupPartition, topics: Sequence[str]) -> None:
        def delete(error: ErrorCode) -> None:
            if error == ErrorCode.REQUEST_TIMED_OUT:
                self._delete_offsets_of_topics(group_partition, topics)  # wait again, because no request retries this
            elif not error:
                group_partition.write_in_batches(group_partition.shard.delete_offsets_of_topics(topics), _ignore)

        group_partition.when_writes_committed(delete)

    def _expire_offsets(self, group_partition: GroupPartition) -> None:
        group_partition.shard.settings = settings_from(self._config())

        def expire(error: ErrorCode) -> None:
            if not error:
                group_partition.write_in_batches(
                    group_partition.shard.expire_offsets(group_partition.now().wall_ms), _ignore
                )

        group_partition.when_writes_committed(expire)


def _ignore(_: ErrorCode) -> None:
    """No request waits for this write: offsets that were not deleted expire at a later interval."""


def settings_from(config: BrokerConfig) -> GroupSettings:
    return GroupSettings(
        min_session_timeout_ms=config.integer("group.min.session.timeout.ms"),
        max_session_timeout_ms=config.integer("group.max.session.timeout.ms"),
        initial_rebalance_delay_ms=config.integer("group.initial.rebalance.delay.ms"),
        max_size=config.integer("group.max.size"),
        offset_metadata_max_bytes=config.integer("offset.metadata.max.bytes"),
        offsets_retention_ms=config.integer("offsets.retention.minutes") * MS_PER_MINUTE,
    )
