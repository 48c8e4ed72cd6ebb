"""The coordinator of transactions: which partition of `__transaction_state` keeps a transactional id, and requests on
their way there.

Owns the partitions that this broker coordinates, the checks that come before a transactional id is looked at (in the
order of Kafka's TransactionCoordinator), fresh producer ids, and the regular expiry of transactional ids. Leaves one
partition's work to `transaction_partition`, the rules to `core.transaction_shard`, authorization and topics to the API
modules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from odradek_broker.config import BrokerConfig
from odradek_broker.coordination.core.deadlines import Instant
from odradek_broker.coordination.core.java_hash import partition_for
from odradek_broker.coordination.durable_partition import CoordinatorState
from odradek_broker.deferred import Deferred
from odradek_broker.metadata.producer_ids import NoProducerIdsError
from odradek_broker.metadata.view import TRANSACTION_STATE
from odradek_broker.replication.partition import Partition
from odradek_broker.timers import TimerHandle
from odradek_broker.transactions.core.transaction import Ending, Producer, TopicPartition
from odradek_broker.transactions.core.transaction_listing import TransactionFilter
from odradek_broker.transactions.core.transaction_shard import TransactionShard
from odradek_broker.transactions.core.transaction_step import TransactionSettings, TransactionStep
from odradek_broker.transactions.markers import Markers
from odradek_broker.transactions.transaction_partition import TransactionPartition
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.describe_transactions import DescribeTransactionsResponse
from odradek_wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek_wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek_wire.messages.list_transactions import ListTransactionsResponse

if TYPE_CHECKING:
    from odradek_broker.broker import Broker
    from odradek_controller.image import MetadataDelta

BETWEEN_BROKERS = 5
"""The version of AddPartitionsToTxn that stands for what this broker asks itself."""

R = TypeVar("R")
Add = Callable[[TransactionShard, Deferred[ErrorCode], Instant], TransactionStep]
AskWithId = Callable[[TransactionShard, int | None, Deferred[R], Instant], TransactionStep]
"""InitProducerId or EndTxn, with a fresh producer id where one may be taken."""


class TransactionCoordinator:
    """Every method answers at once when it can, else with something awaitable."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._markers = Markers(broker)
        self._partitions: dict[int, TransactionPartition] = {}
        self._version = 0
        self._expiry: TimerHandle | None = None
        self.ended: Counter[Ending] = Counter()
        """Transactions that were decided here."""

    # -- leadership -----------------------------------------------------------------------------------------------

    def elected(self, partition: Partition) -> None:
        """This broker leads the partition, perhaps again in a newer epoch: what is in its log is what counts."""
        self.resigned(partition.index)
        broker = self._broker
        config = broker.config
        coordinated = TransactionPartition(
            partition,
            self._markers,
            broker.clock,
            broker.timers,
            settings_from(config),
            broker.log,
            config.integer("request.timeout.ms"),
            broker.producer_ids.next_now_or_soon,
            self.ended,
        )
        coordinated.shard.transaction_version = self._version = broker.image.levels.transaction_version
        self._partitions[partition.index] = coordinated
        coordinated.load()
        if self._expiry is None:
            self._schedule_expiry()

    def resigned(self, index: int) -> None:
        coordinated = self._partitions.pop(index, None)
        if coordinated is not None:
            coordinated.resign()

    def metadata_changed(self, delta: MetadataDelta) -> None:
        """Leaders of partitions may be others now, and the version of transactions."""
        version = delta.image.levels.transaction_version
        if version != self._version:
            self._version = version
            for coordinated in self._partitions.values():
                coordinated.shard.transaction_version = version
        self._markers.metadata_changed()

    def stop(self) -> None:
        """Whoever waits is sent elsewhere."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        for index in list(self._partitions):
            self.resigned(index)

    async def close(self) -> None:
        """Send no more markers; no task is left when this returns."""
        await self._markers.close()

    @property
    def ready(self) -> bool:
        """Is everything that this broker coordinates loaded? What waits for other brokers to come is not waited for."""
        loaded = (CoordinatorState.ACTIVE, CoordinatorState.UNCOMMITTED)
        return all(coordinated.state in loaded for coordinated in self._partitions.values())

    def partition_of(self, transactional_id: str) -> int:
        """Which partition keeps the id; before the topic exists, which one will."""
        topic = self._broker.image.topics.get(TRANSACTION_STATE)
        setting = "transaction.state.log.num.partitions"
        return partition_for(transactional_id, len(topic.partitions) if topic else self._broker.config.integer(setting))

    # -- requests -------------------------------------------------------------------------------------------------

    def init_producer_id(
        self, request: InitProducerIdRequest, api_version: int
    ) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
        """With a transactional id (not None)."""
        transactional_id = request.transactional_id
        assert transactional_id is not None
        if not transactional_id:
            return init_error(ErrorCode.INVALID_REQUEST)

        def init(
            shard: TransactionShard, fresh_id: int | None, answer: Deferred[InitProducerIdResponse], now: Instant
        ) -> TransactionStep:
            return shard.init_producer_id(request, api_version, fresh_id, answer, now)

        return self._with_producer_id(transactional_id, TransactionShard.init_takes_id, init, init_error)

    def add(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        api_version: int = BETWEEN_BROKERS,
        *,
        patiently: bool = True,
    ) -> ErrorCode | Deferred[ErrorCode]:
        """One transaction of AddPartitionsToTxn: what becomes of all these partitions. `patiently`: wait for the end of
        the transaction before."""

        def add(shard: TransactionShard, answer: Deferred[ErrorCode], now: Instant) -> TransactionStep:
            return shard.add_partitions(transactional_id, producer, partitions, api_version, answer, now)

        return self._add(transactional_id, producer, add, patiently)

    def verify(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
    ) -> Mapping[TopicPartition, ErrorCode]:
        """The same with verify-only: NONE for each partition that is in the open transaction of this producer."""
        coordinated = self._coordinated(transactional_id) if transactional_id else ErrorCode.INVALID_REQUEST
        if isinstance(coordinated, ErrorCode):
            return dict.fromkeys(partitions, coordinated)
        return coordinated.shard.verify_partitions(transactional_id, producer, partitions)

    def add_offsets(
        self, transactional_id: str, producer: Producer, partition: TopicPartition, api_version: int
    ) -> ErrorCode | Deferred[ErrorCode]:
        """AddOffsetsToTxn, of the group that is kept in this partition of `__consumer_offsets`."""

        def add(shard: TransactionShard, answer: Deferred[ErrorCode], now: Instant) -> TransactionStep:
            return shard.add_offsets(transactional_id, producer, partition, api_version, answer, now)

        return self._add(transactional_id, producer, add, patiently=True)

    def _add(
        self, transactional_id: str, producer: Producer, add: Add, patiently: bool
    ) -> ErrorCode | Deferred[ErrorCode]:
        """Who begins a transaction while the one before is being completed has to wait a little. Kafka sends it away at
        once, for some 20 ms at least; the markers take less. Who is outdated need not wait to hear of it."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        coordinated = self._coordinated(transactional_id)
        if isinstance(coordinated, ErrorCode):
            return coordinated
        answer: Deferred[ErrorCode] = Deferred()

        def go_on() -> None:
            if answer.done:
                return  # The client is gone.
            coordinated = self._coordinated(transactional_id)
            if isinstance(coordinated, ErrorCode):
                answer.complete(coordinated)
            else:
                coordinated.apply(add(coordinated.shard, answer, coordinated.now()))

        patience_ms = 0
        if patiently and not coordinated.shard.add_refused(transactional_id, producer):
            patience_ms = self._broker.config.integer("add.partitions.to.txn.retry.backoff.max.ms")
        coordinated.when_idle(transactional_id, patience_ms, go_on)
        return answer.result() if answer.done else answer

    def end(self, request: EndTxnRequest, api_version: int) -> EndTxnResponse | Awaitable[EndTxnResponse]:
        """Answered when the decision is in the log; the markers are under way then, if not written."""
        if not request.transactional_id:
            return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)

        def end(
            shard: TransactionShard, fresh_id: int | None, answer: Deferred[EndTxnResponse], now: Instant
        ) -> TransactionStep:
            return shard.end_txn(request, api_version, fresh_id, answer, now)

        def refused(error: ErrorCode) -> EndTxnResponse:
            return EndTxnResponse(error_code=error)

        return self._with_producer_id(request.transactional_id, TransactionShard.end_takes_id, end, refused)

    def _with_producer_id(
        self,
        transactional_id: str,
        takes_id: Callable[[TransactionShard, str], bool],
        ask: AskWithId[R],
        refused: Callable[[ErrorCode], R],
    ) -> R | Awaitable[R]:
        """Ask the core, with a fresh producer id if that may take one."""
        coordinated = self._coordinated(transactional_id)
        if isinstance(coordinated, ErrorCode):
            return refused(coordinated)
        fresh_id = None
        if takes_id(coordinated.shard, transactional_id):
            fresh_id = self._broker.producer_ids.next_now()
            if fresh_id is None:
                return self._after_allocation(transactional_id, ask, refused)
        return _asked(coordinated, fresh_id, ask)

    async def _after_allocation(self, transactional_id: str, ask: AskWithId[R], refused: Callable[[ErrorCode], R]) -> R:
        try:
            fresh_id = await self._broker.producer_ids.next()
        except NoProducerIdsError:
            return refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        coordinated = self._coordinated(transactional_id)
        if isinstance(coordinated, ErrorCode):
            return refused(coordinated)
        answer = _asked(coordinated, fresh_id, ask)
        return await answer if isinstance(answer, Deferred) else answer

    # -- administration -------------------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> DescribeTransactionsResponse.TransactionState:
        coordinated = self._coordinated(transactional_id)
        if isinstance(coordinated, ErrorCode):
            state = DescribeTransactionsResponse.TransactionState
            return state(transactional_id=transactional_id, error_code=coordinated)
        return coordinated.shard.describe(transactional_id)

    def list(self, wanted: TransactionFilter) -> Iterable[ListTransactionsResponse.TransactionState] | ErrorCode:
        """All of this broker that pass the filters, in no particular order. Without those that cannot be loaded."""
        listed: list[ListTransactionsResponse.TransactionState] = []
        for coordinated in self._partitions.values():
            if coordinated.state is CoordinatorState.LOADING:
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            if coordinated.state is not CoordinatorState.FAILED:
                listed.extend(coordinated.shard.list(wanted, coordinated.now()))
        return listed

    # -- figures --------------------------------------------------------------------------------------------------

    @property
    def shards(self) -> Iterator[TransactionShard]:
        """Whose transactions are coordinated here now."""
        return (coordinated.shard for coordinated in self._partitions.values() if coordinated.is_active)

    @property
    def markers_to_send_again(self) -> int:
        """Those that wait for a leader, or to be sent once more."""
        return self._markers.to_send_again

    # -- inside ---------------------------------------------------------------------------------------------------

    def _coordinated(self, transactional_id: str) -> TransactionPartition | ErrorCode:
        """The partition of the id if it is here and loaded."""
        coordinated = self._partitions.get(self.partition_of(transactional_id))
        if coordinated is None or coordinated.state in (CoordinatorState.FAILED, CoordinatorState.CLOSED):
            return ErrorCode.NOT_COORDINATOR
        if coordinated.state in (CoordinatorState.LOADING, CoordinatorState.UNCOMMITTED):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return coordinated

    def _schedule_expiry(self) -> None:
        interval_ms = self._broker.config.integer("transaction.remove.expired.transaction.cleanup.interval.ms")
        self._expiry = self._broker.timers.call_later(interval_ms, self._expire)

    def _expire(self) -> None:
        for coordinated in list(self._partitions.values()):
            if coordinated.is_active:
                coordinated.expire_ids()
        self._schedule_expiry()


def _asked(coordinated: TransactionPartition, fresh_id: int | None, ask: AskWithId[R]) -> R | Deferred[R]:
    answer: Deferred[R] = Deferred()
    coordinated.apply(ask(coordinated.shard, fresh_id, answer, coordinated.now()))
    return answer.result() if answer.done else answer


def init_error(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_epoch=-1)


def settings_from(config: BrokerConfig) -> TransactionSettings:
    return TransactionSettings(
        max_timeout_ms=config.integer("transaction.max.timeout.ms"),
        id_expiration_ms=config.integer("transactional.id.expiration.ms"),
        abort_interval_ms=config.integer("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
    )
