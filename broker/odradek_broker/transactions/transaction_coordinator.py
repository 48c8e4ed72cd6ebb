"""The transaction coordinator of one broker: it passes requests to the partitions of `__transaction_state` that this
broker leads.

Owns the checks before a transactional id is looked up (in the order of Kafka's TransactionCoordinator), new producer
ids, and the interval at which transactional ids expire. Leaves one partition to `transaction_partition`, the rules to
`core.transaction_shard`, authorization and the look-up of topics to the API modules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from itertools import chain
from typing import TypeVar

from odradek_broker.clock import Clock
from odradek_broker.config import BrokerConfig
from odradek_broker.coordination.coordinator_runtime import CoordinatorRuntime
from odradek_broker.coordination.core.deadlines import Instant
from odradek_broker.coordination.durable_partition import CoordinatorState
from odradek_broker.deferred import Deferred
from odradek_broker.logger import Logger
from odradek_broker.metadata.producer_ids import NoProducerIdsError, ProducerIds
from odradek_broker.metadata.view import TRANSACTION_STATE
from odradek_broker.replication.partition import Partition
from odradek_broker.timers import Timers
from odradek_broker.transactions.add_partitions_to_txn_manager import VERSION_BETWEEN_BROKERS
from odradek_broker.transactions.core.transaction_listing import TransactionFilter
from odradek_broker.transactions.core.transaction_metadata import Producer, TopicPartition, TransactionOutcome
from odradek_broker.transactions.core.transaction_shard import TransactionShard
from odradek_broker.transactions.core.transaction_step import TransactionSettings, TransactionStep
from odradek_broker.transactions.transaction_marker_channel_manager import TransactionMarkerChannelManager
from odradek_broker.transactions.transaction_partition import TransactionPartition
from odradek_controller.image import ClusterImage, MetadataDelta
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.describe_transactions import DescribeTransactionsResponse
from odradek_wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek_wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek_wire.messages.list_transactions import ListTransactionsResponse

R = TypeVar("R")
Handle = Callable[[TransactionShard, Deferred[ErrorCode], Instant], TransactionStep]
"""Handles AddPartitionsToTxn or AddOffsetsToTxn."""
HandleWithProducerId = Callable[[TransactionShard, int | None, Deferred[R], Instant], TransactionStep]
"""Handles InitProducerId or EndTxn, with a fresh producer id if the request may need one."""


class TransactionCoordinator:
    """Methods that handle requests return the response if it is available immediately, otherwise an awaitable."""

    def __init__(
        self,
        *,
        config: Callable[[], BrokerConfig],
        image: Callable[[], ClusterImage],
        markers: TransactionMarkerChannelManager,
        producer_ids: ProducerIds,
        clock: Clock,
        timers: Timers,
        log: Logger,
    ) -> None:
        self._config = config
        self._image = image
        self._markers = markers
        self._producer_ids = producer_ids
        self._clock = clock
        self._timers = timers
        self._log = log
        self._runtime = CoordinatorRuntime(
            topic=TRANSACTION_STATE,
            new_partition_count=lambda: config().integer("transaction.state.log.num.partitions"),
            image=image,
            timers=timers,
            cleanup_interval_ms=lambda: config().integer("transaction.remove.expired.transaction.cleanup.interval.ms"),
            clean_up=TransactionPartition.expire_ids,
        )
        self._transaction_version = 0
        self.outcome_counts: Counter[TransactionOutcome] = Counter()
        """The number of transactions that this coordinator has decided, by outcome."""

    # -- leadership -----------------------------------------------------------------------------------------------

    def elected(self, partition: Partition) -> None:
        """Load the transactions of a partition that this broker leads in a new leader epoch."""
        self.resigned(partition.index)
        config = self._config()
        txn_partition = TransactionPartition(
            partition=partition,
            markers=self._markers,
            clock=self._clock,
            timers=self._timers,
            settings=settings_from(config),
            log=self._log,
            write_timeout_ms=config.integer("request.timeout.ms"),
            generate_producer_id=self._producer_ids.next_or_request_block,
            outcome_counts=self.outcome_counts,
        )
        txn_partition.shard.transaction_version = self._transaction_version = self._image().levels.transaction_version
        self._runtime.load(partition.index, txn_partition)

    def resigned(self, index: int) -> None:
        """Unload a partition that another broker leads now."""
        self._runtime.unload(index)

    def metadata_changed(self, delta: MetadataDelta) -> None:
        """Apply a new transaction version, and send markers to new leaders."""
        version = delta.image.levels.transaction_version
        if version != self._transaction_version:
            self._transaction_version = version
            for txn_partition in self._runtime.partitions:
                txn_partition.shard.transaction_version = version
        self._markers.metadata_changed()

    def stop(self) -> None:
        """Resign from every partition: pending requests fail with NOT_COORDINATOR."""
        self._runtime.close()

    async def close(self) -> None:
        """Send no more markers; no task is left when this returns."""
        await self._markers.close()

    @property
    def ready(self) -> bool:
        """Whether all partitions are loaded. Partitions that wait for other replicas to commit records count as
        loaded."""
        loaded = (CoordinatorState.ACTIVE, CoordinatorState.UNCOMMITTED)
        return all(txn_partition.state in loaded for txn_partition in self._runtime.partitions)

    def partition_of(self, transactional_id: str) -> int:
        """Return the index of the transactional id's partition, also before `__transaction_state` exists."""
        return self._runtime.partition_of(transactional_id)

    # -- requests -------------------------------------------------------------------------------------------------

    def init_producer_id(
        self, request: InitProducerIdRequest, api_version: int
    ) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
        """Handle InitProducerId with a transactional id (not None)."""
        transactional_id = request.transactional_id
        assert transactional_id is not None
        if not transactional_id:
            return init_error(ErrorCode.INVALID_REQUEST)

        def init(
            shard: TransactionShard,
            fresh_producer_id: int | None,
            response: Deferred[InitProducerIdResponse],
            now: Instant,
        ) -> TransactionStep:
            return shard.init_producer_id(request, api_version, fresh_producer_id, response, now)

        return self._with_producer_id(transactional_id, TransactionShard.init_may_need_producer_id, init, init_error)

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        api_version: int = VERSION_BETWEEN_BROKERS,
        *,
        may_wait: bool = True,
    ) -> ErrorCode | Deferred[ErrorCode]:
        """Handle one transaction of AddPartitionsToTxn, or a partition leader's direct call; return one error for all
        partitions. With `may_wait`, wait a short time until the producer's previous transaction is complete."""

        def add(shard: TransactionShard, response: Deferred[ErrorCode], now: Instant) -> TransactionStep:
            return shard.add_partitions(transactional_id, producer, partitions, api_version, response, now)

        return self._add(transactional_id, producer, add, may_wait=may_wait)

    def verify_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Handle one transaction of AddPartitionsToTxn with `verify_only`; return NONE for each partition that is part
        of the producer's open transaction."""
        txn_partition = self._runtime.find(transactional_id) if transactional_id else ErrorCode.INVALID_REQUEST
        if isinstance(txn_partition, ErrorCode):
            return dict.fromkeys(partitions, txn_partition)
        return txn_partition.shard.verify_partitions(transactional_id, producer, partitions)

    def add_offsets(
        self, transactional_id: str, producer: Producer, partition: TopicPartition, api_version: int
    ) -> ErrorCode | Deferred[ErrorCode]:
        """Handle AddOffsetsToTxn for a group in this partition of `__consumer_offsets`."""

        def add(shard: TransactionShard, response: Deferred[ErrorCode], now: Instant) -> TransactionStep:
            return shard.add_offsets(transactional_id, producer, partition, api_version, response, now)

        return self._add(transactional_id, producer, add, may_wait=True)

    def _add(
        self, transactional_id: str, producer: Producer, add: Handle, *, may_wait: bool
    ) -> ErrorCode | Deferred[ErrorCode]:
        """Call `add`. With `may_wait`, first wait a short time until the producer's previous transaction is complete:
        Kafka returns CONCURRENT_TRANSACTIONS immediately, and its clients retry after 20 ms, but the markers are
        usually written earlier. A fenced producer gets its error without waiting."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        txn_partition = self._runtime.find(transactional_id)
        if isinstance(txn_partition, ErrorCode):
            return txn_partition
        response: Deferred[ErrorCode] = Deferred()

        def resume() -> None:
            if response.done:
                return  # The client has disconnected.
            txn_partition = self._runtime.find(transactional_id)
            if isinstance(txn_partition, ErrorCode):
                response.complete(txn_partition)
            else:
                txn_partition.apply(add(txn_partition.shard, response, txn_partition.now()))

        wait_ms = 0
        if may_wait and not txn_partition.shard.add_error(transactional_id, producer):
            wait_ms = self._config().integer("add.partitions.to.txn.retry.backoff.max.ms")
        txn_partition.when_idle(transactional_id, wait_ms, resume)
        return response.result() if response.done else response

    def end_txn(self, request: EndTxnRequest, api_version: int) -> EndTxnResponse | Awaitable[EndTxnResponse]:
        """Handle EndTxn. Respond when the decision is in the log, even if the markers are not written yet."""
        if not request.transactional_id:
            return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)

        def end(
            shard: TransactionShard, fresh_producer_id: int | None, response: Deferred[EndTxnResponse], now: Instant
        ) -> TransactionStep:
            return shard.end_txn(request, api_version, fresh_producer_id, response, now)

        def error_response(error: ErrorCode) -> EndTxnResponse:
            return EndTxnResponse(error_code=error)

        return self._with_producer_id(
            request.transactional_id, TransactionShard.end_may_need_producer_id, end, error_response
        )

    def _with_producer_id(
        self,
        transactional_id: str,
        may_need_producer_id: Callable[[TransactionShard, str], bool],
        handle: HandleWithProducerId[R],
        error_response: Callable[[ErrorCode], R],
    ) -> R | Awaitable[R]:
        """Handle a request with a fresh producer id, if it may need one."""
        txn_partition = self._runtime.find(transactional_id)
        if isinstance(txn_partition, ErrorCode):
            return error_response(txn_partition)
        fresh_producer_id = None
        if may_need_producer_id(txn_partition.shard, transactional_id):
            fresh_producer_id = self._producer_ids.next_of_block()
            if fresh_producer_id is None:
                return self._handle_after_allocation(transactional_id, handle, error_response)
        return _apply(txn_partition, fresh_producer_id, handle)

    async def _handle_after_allocation(
        self, transactional_id: str, handle: HandleWithProducerId[R], error_response: Callable[[ErrorCode], R]
    ) -> R:
        try:
            fresh_producer_id = await self._producer_ids.next()
        except NoProducerIdsError:
            return error_response(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        txn_partition = self._runtime.find(transactional_id)
        if isinstance(txn_partition, ErrorCode):
            return error_response(txn_partition)
        response = _apply(txn_partition, fresh_producer_id, handle)
        return await response if isinstance(response, Deferred) else response

    # -- administration -------------------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> DescribeTransactionsResponse.TransactionState:
        """The row of DescribeTransactions for this transactional id."""
        txn_partition = self._runtime.find(transactional_id)
        if isinstance(txn_partition, ErrorCode):
            state = DescribeTransactionsResponse.TransactionState
            return state(transactional_id=transactional_id, error_code=txn_partition)
        return txn_partition.shard.describe(transactional_id)

    def list(
        self, transaction_filter: TransactionFilter
    ) -> Iterator[ListTransactionsResponse.TransactionState | None] | ErrorCode:
        """Return a row for each transactional id that this broker coordinates now, in no particular order, without
        those of partitions that cannot be loaded: None if the id does not pass the filter. Each row is made when the
        caller takes it."""
        partitions = list(self._runtime.partitions)
        if any(each.state is CoordinatorState.LOADING for each in partitions):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return chain.from_iterable(
            [
                each.shard.list(transaction_filter, each.now())
                for each in partitions
                if each.state is not CoordinatorState.FAILED
            ]
        )

    # -- metrics --------------------------------------------------------------------------------------------------

    @property
    def shards(self) -> Iterator[TransactionShard]:
        """The shards of all partitions that are loaded."""
        return (txn_partition.shard for txn_partition in self._runtime.active)

    @property
    def markers_to_retry(self) -> int:
        """The number of markers that wait for a leader, or that could not be written."""
        return self._markers.markers_to_retry


def _apply(
    txn_partition: TransactionPartition, fresh_producer_id: int | None, handle: HandleWithProducerId[R]
) -> R | Deferred[R]:
    response: Deferred[R] = Deferred()
    txn_partition.apply(handle(txn_partition.shard, fresh_producer_id, response, txn_partition.now()))
    return response.result() if response.done else response


def init_error(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_epoch=-1)


def settings_from(config: BrokerConfig) -> TransactionSettings:
    return TransactionSettings(
        max_timeout_ms=config.integer("transaction.max.timeout.ms"),
        id_expiration_ms=config.integer("transactional.id.expiration.ms"),
        abort_interval_ms=config.integer("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
    )
