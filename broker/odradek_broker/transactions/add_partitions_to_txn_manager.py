"""Requests of partition leaders to transaction coordinators: verify that partitions are part of a transaction, or, for
clients of transaction version 2, add them to it (KIP-890; Kafka's AddPartitionsToTxnManager).

Owns finding the coordinator, and one AddPartitionsToTxn request at a time to each broker: a request contains all
transactions that were added since the previous one was sent. Calls a coordinator in this broker directly. Leaves
verification guards, and the responses to clients, to `transaction_verification` and its callers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from typing import NamedTuple, Protocol

from odradek_broker.coordination.core.java_hash import partition_for
from odradek_broker.deferred import Deferred
from odradek_broker.inter_broker.broker_connection import BrokerConnectionError, error_code
from odradek_broker.inter_broker.channel import BrokerChannel, BrokerChannels
from odradek_broker.inter_broker.coalescing_queue import CoalescingQueue
from odradek_broker.logger import Logger
from odradek_broker.metadata.view import TRANSACTION_STATE
from odradek_broker.timers import Timers
from odradek_broker.transactions.core.transaction_metadata import Producer, TopicPartition
from odradek_controller.image import ClusterImage
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

VERSION_BETWEEN_BROKERS = 5
"""The version of AddPartitionsToTxn between brokers: it takes several transactions, and may return
TRANSACTION_ABORTABLE."""

CONNECT_TIMEOUT_S_MAX = 10.0
"""The limit of the time to connect, because another broker may become the coordinator meanwhile."""

PartitionErrors = Mapping[TopicPartition, ErrorCode]
"""The errors of the partitions that are not part of the transaction; the other partitions are."""


class TransactionSupportedOperation(Enum):
    """The coordinator's operation for a client's request, and the errors that the client knows; named as in Kafka."""

    DEFAULT_ERROR = "verify, for clients that do not know TRANSACTION_ABORTABLE"
    GENERIC_ERROR_SUPPORTED = "verify"
    ADD_PARTITION = "add"

    @classmethod
    def of_produce(cls, version: int) -> TransactionSupportedOperation:
        if version >= 12:
            return cls.ADD_PARTITION
        return cls.GENERIC_ERROR_SUPPORTED if version >= 11 else cls.DEFAULT_ERROR

    @classmethod
    def of_txn_offset_commit(cls, version: int) -> TransactionSupportedOperation:
        if version >= 5:
            return cls.ADD_PARTITION
        return cls.GENERIC_ERROR_SUPPORTED if version >= 4 else cls.DEFAULT_ERROR

    @property
    def adds(self) -> bool:
        return self is TransactionSupportedOperation.ADD_PARTITION

    def client_error(self, error: ErrorCode) -> ErrorCode:
        """Return the coordinator's error, or one that the client knows in its place."""
        if error == ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if error == ErrorCode.TRANSACTION_ABORTABLE and self is TransactionSupportedOperation.DEFAULT_ERROR:
            return ErrorCode.INVALID_TXN_STATE
        return error


class LocalCoordinator(Protocol):
    """The transaction coordinator in this broker. It returns NOT_COORDINATOR for a transactional id that it does not
    coordinate, and COORDINATOR_LOAD_IN_PROGRESS while it loads."""

    def verify_partitions(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Return one error for each partition, NONE if it is part of the open transaction."""

    def add_partitions(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> ErrorCode | Deferred[ErrorCode]:
        """Return one error for all partitions, NONE once they are part of the transaction."""


class AddPartitionsToTxnManager:
    """Verifies or adds partitions for all transactional batches that this broker appends."""

    def __init__(
        self,
        *,
        node_id: int,
        image: Callable[[], ClusterImage],
        channels: BrokerChannels,
        local_coordinator: Callable[[], LocalCoordinator],
        request_timeout_s: float,
        timers: Timers,
        log: Logger,
    ) -> None:
        self.local_coordinator = local_coordinator
        self.verification_failures = 0
        """Partitions that were not part of the transaction, counted as in Kafka."""
        self._node_id = node_id
        self._image = image
        self._channels = channels
        self._request_timeout_s = request_timeout_s
        self._timers = timers
        self._log = log
        self._queues: dict[int, _CoordinatorQueue] = {}
        self._closed = False

    def add_or_verify(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        operation: TransactionSupportedOperation,
    ) -> PartitionErrors | Deferred[PartitionErrors]:
        """Return the errors of the partitions that are not part of the producer's open transaction.

        If the coordinator cannot be reached, each partition has a retriable error."""
        transaction = _Transaction(transactional_id, producer, partitions, operation)
        if self._closed:
            return self._count_failures(transaction.errors_of_all(ErrorCode.NETWORK_EXCEPTION))
        coordinator = self.coordinator_of(transactional_id)
        if coordinator == self._node_id:
            return self._call_local_coordinator(transaction)
        if self._channels.endpoint(coordinator) is None:
            return self._count_failures(transaction.errors_of_all(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        queue = self._queues.get(coordinator)
        if queue is None:
            queue = self._queues[coordinator] = self._queue(coordinator)
        return queue.add(transaction)

    def coordinator_of(self, transactional_id: str) -> int:
        """Return the id of the broker that coordinates the transactional id; -1 if there is none."""
        topic = self._image().topics.get(TRANSACTION_STATE)
        if topic is None:
            return -1
        return topic.partitions[partition_for(transactional_id, len(topic.partitions))].leader

    async def close(self) -> None:
        """Send nothing more, and fail the transactions that wait; no task is left when this returns."""
        self._closed = True
        queues, self._queues = self._queues, {}
        for queue in queues.values():
            await queue.close()

    def _queue(self, coordinator: int) -> _CoordinatorQueue:
        timeout_s = self._request_timeout_s
        channel = self._channels.to(
            coordinator, "verification", timeout_s=timeout_s, connect_timeout_s=min(timeout_s, CONNECT_TIMEOUT_S_MAX)
        )
        return _CoordinatorQueue(
            channel,
            is_coordinator=lambda transactional_id: self.coordinator_of(transactional_id) == coordinator,
            count_failures=self._count_failures,
            timers=self._timers,
            log=self._log.bind(coordinator=coordinator),
        )

    def _count_failures(self, errors: PartitionErrors) -> PartitionErrors:
        self.verification_failures += len(errors)
        return errors

    def _call_local_coordinator(self, transaction: _Transaction) -> PartitionErrors | Deferred[PartitionErrors]:
        coordinator = self.local_coordinator()
        transactional_id, producer, partitions, operation = transaction
        if not operation.adds:
            errors = coordinator.verify_partitions(transactional_id, producer, partitions)
            return self._count_failures(transaction.client_errors(errors.items()))
        added = coordinator.add_partitions(transactional_id, producer, partitions)
        if not isinstance(added, Deferred):
            return self._count_failures(transaction.errors_of_all(added))
        return added.map(lambda error: self._count_failures(transaction.errors_of_all(error)))


class _Transaction(NamedTuple):
    transactional_id: str
    producer: Producer
    partitions: Collection[TopicPartition]
    operation: TransactionSupportedOperation

    def errors_of_all(self, error: ErrorCode) -> PartitionErrors:
        """The same error for all partitions; empty for NONE."""
        return dict.fromkeys(self.partitions, self.operation.client_error(error)) if error else {}

    def client_errors(self, errors: Iterable[tuple[TopicPartition, ErrorCode]]) -> PartitionErrors:
        """The coordinator's errors as the client gets them, without NONE."""
        return {partition: self.operation.client_error(error) for partition, error in errors if error}


class _Pending(NamedTuple):
    """A transaction that waits for its coordinator's response."""

    transaction: _Transaction
    response: Deferred[PartitionErrors]


class _CoordinatorQueue:
    """The transactions for one broker: those that wait, at most one of each transactional id, and those in flight."""

    def __init__(
        self,
        channel: BrokerChannel,
        *,
        is_coordinator: Callable[[str], bool],
        count_failures: Callable[[PartitionErrors], PartitionErrors],
        timers: Timers,
        log: Logger,
    ) -> None:
        self._channel = channel
        self._is_coordinator = is_coordinator
        self._count_failures = count_failures
        self._log = log
        # `_send` returns no entries to send again, because the client retries.
        self._pending: CoalescingQueue[str, _Pending] = CoalescingQueue(
            self._send, sleep=timers.sleep, retry_ms=0, failure_event="AddPartitionsToTxn failed", log=log
        )

    def add(self, transaction: _Transaction) -> Deferred[PartitionErrors]:
        """Queue the transaction. Only one of each transactional id waits (Kafka's addTxnData): of two epochs, the older
        one fails, because its producer is fenced; with equal epochs, the earlier request fails, because the client has
        retried."""
        pending = _Pending(transaction, Deferred())
        waiting = self._pending.get(transaction.transactional_id)
        epoch = transaction.producer.epoch
        if waiting is not None and epoch < waiting.transaction.producer.epoch:
            self._fail(pending, ErrorCode.INVALID_PRODUCER_EPOCH)
            return pending.response
        self._pending.add(transaction.transactional_id, pending)
        if waiting is not None:
            retried = epoch == waiting.transaction.producer.epoch
            self._fail(waiting, ErrorCode.NETWORK_EXCEPTION if retried else ErrorCode.INVALID_PRODUCER_EPOCH)
        return pending.response

    async def close(self) -> None:
        self._fail_all(await self._pending.close(), ErrorCode.NETWORK_EXCEPTION)
        self._channel.close()

    async def _send(self, pending: dict[str, _Pending]) -> dict[str, _Pending]:
        moved = {name: each for name, each in pending.items() if not self._is_coordinator(name)}
        self._fail_all(moved, ErrorCode.NOT_COORDINATOR)
        sent = {name: each for name, each in pending.items() if name not in moved}
        try:
            if sent:
                request = _request([each.transaction for each in sent.values()])
                self._handle(
                    sent, await self._channel.request(request, VERSION_BETWEEN_BROKERS, AddPartitionsToTxnResponse)
                )
        except BrokerConnectionError as error:
            self._log.warning("transaction coordinator cannot be reached", error=str(error))
        except Exception as error:
            self._log.error("AddPartitionsToTxn failed", exc_info=error)
        finally:
            # Fails only the transactions without a result. Clients retry after this error.
            self._fail_all(sent, ErrorCode.NETWORK_EXCEPTION)
        return {}

    def _handle(self, sent: Mapping[str, _Pending], response: AddPartitionsToTxnResponse) -> None:
        if response.error_code:
            error = error_code(response.error_code)
            # This broker lacks the permission, not the client: as in Kafka the client does not see the error.
            hidden = error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            return self._fail_all(sent, ErrorCode.INVALID_TXN_STATE if hidden else error)
        for result in response.results_by_transaction:
            pending = sent.get(result.transactional_id)
            if pending is not None:
                errors = pending.transaction.client_errors(
                    ((topic.name, partition.partition_index), error_code(partition.partition_error_code))
                    for topic in result.topic_results
                    for partition in topic.results_by_partition
                )
                self._complete(pending, errors)
        return None

    def _complete(self, pending: _Pending, errors: PartitionErrors) -> None:
        """Complete the response unless it is complete. If a callback raises, the other transactions must not fail."""
        if pending.response.done:
            return
        try:
            pending.response.complete(self._count_failures(errors))
        except Exception as error:
            transactional_id = pending.transaction.transactional_id
            self._log.error("handling of a verification failed", transactional_id=transactional_id, exc_info=error)

    def _fail(self, pending: _Pending, error: ErrorCode) -> None:
        self._complete(pending, pending.transaction.errors_of_all(error))

    def _fail_all(self, pending: Mapping[str, _Pending], error: ErrorCode) -> None:
        for each in pending.values():
            self._fail(each, error)


def _request(transactions: list[_Transaction]) -> AddPartitionsToTxnRequest:
    request = AddPartitionsToTxnRequest()
    for transaction in transactions:
        topics: dict[str, AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = {}
        for name, index in transaction.partitions:
            topics.setdefault(name, AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name)).partitions.append(index)
        request.transactions.append(
            AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
                transaction.transactional_id,
                transaction.producer.id,
                transaction.producer.epoch,
                not transaction.operation.adds,
                list(topics.values()),
            )
        )
    return request
