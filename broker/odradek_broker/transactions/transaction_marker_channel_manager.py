"""Transaction markers on their way from this broker's transaction coordinator to the leaders of their partitions
(Kafka's TransactionMarkerChannelManager).

Owns which broker each marker is sent to, and retries until every partition has its marker or needs none. Leaves the
requests to one broker to `marker_channel`, appending a marker to `marker_writing`, and completing the transaction to
its coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from odradek_broker.deferred import Deferred
from odradek_broker.inter_broker.channel import BrokerChannels
from odradek_broker.logger import Logger
from odradek_broker.timers import TimerHandle, Timers
from odradek_broker.transactions.core.transaction_metadata import TopicPartition
from odradek_broker.transactions.core.transaction_step import TransactionMarkers
from odradek_broker.transactions.marker_channel import Errors, MarkerChannel, MarkerCoordinator, PendingCompletion
from odradek_controller.image import ClusterImage
from odradek_log.producer_state_manager import TransactionMarker
from odradek_wire.errors import ErrorCode

RETRY_MS = 50
"""The delay before a marker that could not be written is sent again, unless the metadata changes earlier."""
CONNECT_TIMEOUT_S_MAX = 10.0
"""The limit of the time to connect, unless `replica.socket.timeout.ms` is less. All markers for a broker wait
meanwhile."""
RESPONSE_GRACE_S = 5.0
"""The time that a response may take in addition to `request.timeout.ms`, the leader's limit."""

EXPECTED_ERRORS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
"""Errors that are usual while leaders or replicas change. Other errors are logged."""

NO_MARKER_NEEDED = frozenset(
    {
        # The producer has a newer epoch in this partition: the leader will not accept the marker later, either.
        ErrorCode.INVALID_PRODUCER_EPOCH,
        # The log has a format without transactions: it has no records of this one.
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)

WriteMarker = Callable[[str, int, TransactionMarker], ErrorCode | Deferred[ErrorCode]]
"""Appends a marker to a partition that this broker leads (`marker_writing`)."""


class TransactionMarkerChannelManager:
    """The markers of all transactions that this broker coordinates."""

    def __init__(
        self,
        *,
        node_id: int,
        image: Callable[[], ClusterImage],
        has_metadata: Callable[[], bool],
        channels: BrokerChannels,
        write_marker: WriteMarker,
        request_timeout_s: float,
        socket_timeout_s: float,
        timers: Timers,
        log: Logger,
    ) -> None:
        """`has_metadata` returns whether the image is complete: if it is, a partition that is missing from it does not
        exist. `socket_timeout_s` is `replica.socket.timeout.ms`."""
        self._node_id = node_id
        self._image = image
        self._has_metadata = has_metadata
        self._channels = channels
        self._write_marker = write_marker
        self._request_timeout_s = request_timeout_s
        self._socket_timeout_s = socket_timeout_s
        self._timers = timers
        self._log = log
        self._marker_channels: dict[int, MarkerChannel] = {}
        self._to_retry: dict[PendingCompletion, list[TopicPartition]] = {}
        """Markers that failed, which are sent again after `RETRY_MS` or when the metadata changes, and markers for
        partitions without a leader."""
        self._unreported: dict[PendingCompletion, list[TopicPartition]] = {}
        """Partitions that have their marker, but for which `markers_written` raised: the next retry calls it again. It
        does not send the markers again, because a second one could end the producer's next transaction."""
        self._timer: TimerHandle | None = None
        self._closed = False

    def add(self, coordinator: MarkerCoordinator, markers: TransactionMarkers) -> None:
        """Send the markers. Those for partitions that this broker leads are appended before this returns."""
        self._route(PendingCompletion(coordinator, markers), sorted(markers.partitions))

    def metadata_changed(self) -> None:
        """Send the remaining markers to the new leaders of their partitions."""
        for broker_id, marker_channel in self._marker_channels.items():
            registration = self._image().brokers.get(broker_id)
            is_gone = registration is None or registration.fenced
            for pending, partitions in marker_channel.remove_moved(self._is_led_by(broker_id), is_gone):
                self._to_retry.setdefault(pending, []).extend(partitions)
        if self._to_retry:
            self._retry()

    @property
    def markers_to_retry(self) -> int:
        """The number of markers that wait for a leader, or that could not be written."""
        return sum(map(len, self._to_retry.values()))

    async def close(self) -> None:
        """Send nothing more; no task is left when this returns."""
        self._closed = True
        self._to_retry.clear()
        self._unreported.clear()
        if self._timer is not None:
            self._timer.cancel()
        marker_channels, self._marker_channels = self._marker_channels, {}
        for marker_channel in marker_channels.values():
            await marker_channel.close()

    # -- the leader of each partition ---------------------------------------------------------------------------------

    def _route(self, pending: PendingCompletion, partitions: Iterable[TopicPartition]) -> None:
        if self._closed:
            return
        completed: list[TopicPartition] = []
        local: list[TopicPartition] = []
        remote: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            leader = self._leader(partition)
            if leader == self._node_id:
                local.append(partition)
            elif leader is not None:
                remote.setdefault(leader, []).append(partition)
            elif self._image().partition(*partition) is None and self._has_metadata():
                # The topic is deleted: its partitions need no marker.
                completed.append(partition)
            else:
                self._to_retry.setdefault(pending, []).append(partition)
        for broker_id, led in remote.items():
            self._marker_channel(broker_id).add(pending, led)
        if local:
            completed += self._write_local(pending, local)
        self._report(pending, completed)

    def _leader(self, partition: TopicPartition) -> int | None:
        """The partition's leader; None if there is none, or if it is fenced."""
        image = self._image()
        registration = image.partition(*partition)
        leader = None if registration is None else image.brokers.get(registration.leader)
        return None if leader is None or leader.fenced else leader.id

    def _is_led_by(self, broker_id: int) -> Callable[[TopicPartition], bool]:
        return lambda partition: self._leader(partition) == broker_id

    def _marker_channel(self, broker_id: int) -> MarkerChannel:
        marker_channel = self._marker_channels.get(broker_id)
        if marker_channel is None:
            marker_channel = self._marker_channels[broker_id] = MarkerChannel(
                new_channel=lambda: self._channels.to(
                    broker_id,
                    "txn-marker-sender",
                    timeout_s=self._request_timeout_s + RESPONSE_GRACE_S,
                    connect_timeout_s=min(self._socket_timeout_s, CONNECT_TIMEOUT_S_MAX),
                ),
                version=lambda: self._image().levels.write_txn_markers_version,
                handle_errors=self._handle_errors,
                timers=self._timers,
                log=self._log.bind(broker=broker_id),
            )
        return marker_channel

    def _write_local(self, pending: PendingCompletion, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Append markers to partitions that this broker leads; return those that are completed already."""
        markers, completed = pending.markers, []
        marker = TransactionMarker(
            markers.producer.id,
            markers.producer.epoch,
            markers.coordinator_epoch,
            markers.commit,
            markers.transaction_version,
        )
        for partition in partitions:
            outcome: ErrorCode | Deferred[ErrorCode]
            try:
                outcome = self._write_marker(*partition, marker)
            except Exception as error:
                outcome = self._write_failed(pending, error)
            if isinstance(outcome, Deferred):
                self._handle_when_replicated(pending, partition, outcome)
            elif self._complete_or_retry(pending, partition, outcome):
                completed.append(partition)
        return completed

    def _handle_when_replicated(
        self, pending: PendingCompletion, partition: TopicPartition, outcome: Deferred[ErrorCode]
    ) -> None:
        def replicated(done: Deferred[ErrorCode]) -> None:
            try:
                error = done.result()
            except Exception as failure:
                error = self._write_failed(pending, failure)
            self._handle_errors(pending, {partition: error})

        outcome.when_done(replicated)

    def _write_failed(self, pending: PendingCompletion, error: Exception) -> ErrorCode:
        self._log_failure("writing a marker failed; retrying", pending, error)
        return ErrorCode.UNKNOWN_SERVER_ERROR

    # -- outcomes -----------------------------------------------------------------------------------------------------

    def _handle_errors(self, pending: PendingCompletion, errors: Errors) -> None:
        """Handle the errors of the partitions' leaders. Never raises."""
        completed = [
            partition for partition, error in errors.items() if self._complete_or_retry(pending, partition, error)
        ]
        self._report(pending, completed)

    def _report(self, pending: PendingCompletion, completed: list[TopicPartition]) -> None:
        """Report written markers to the coordinator. Never raises: a failure in one transaction must not affect the
        others."""
        if not completed or not pending.is_active:
            return
        try:
            pending.coordinator.markers_written(pending.markers, completed)
        except Exception as error:
            self._log_failure("handling of written markers failed; retrying", pending, error)
            self._unreported.setdefault(pending, []).extend(completed)
            self._retry_soon()

    def _log_failure(self, event: str, pending: PendingCompletion, error: Exception) -> None:
        """Log only the first exception of each transaction, because retries may fail in the same way."""
        if not pending.exception_logged:
            pending.exception_logged = True
            self._log.error(event, transactional_id=pending.markers.transactional_id, exc_info=error)

    def _complete_or_retry(self, pending: PendingCompletion, partition: TopicPartition, error: ErrorCode) -> bool:
        """Return whether the partition has its marker, or needs none. If not, send the marker again later,
        unless another broker is the coordinator."""
        if not error:
            return True
        if not pending.is_active:
            return False
        facts = {"topic": partition[0], "partition": partition[1], "error": error.name}
        log = self._log.bind(transactional_id=pending.markers.transactional_id, **facts)
        if error in NO_MARKER_NEEDED:
            log.warning("partition refused a marker and needs none")
            return True
        if error == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            # Another broker is the coordinator, but this broker has not received the metadata yet.
            pending.abandoned = True
            log.warning("markers abandoned: a later coordinator has written markers of the producer")
            return False
        if error not in EXPECTED_ERRORS and not pending.error_logged:
            pending.error_logged = True
            log.warning("marker not written; retrying")
        self._to_retry.setdefault(pending, []).append(partition)
        self._retry_soon()
        return False

    def _retry_soon(self) -> None:
        if self._timer is None or not self._timer.pending:
            self._timer = self._timers.call_later(RETRY_MS, self._retry)

    def _retry(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        unreported, self._unreported = self._unreported, {}
        for pending, partitions in unreported.items():
            self._report(pending, partitions)
        to_retry, self._to_retry = self._to_retry, {}
        for pending, partitions in to_retry.items():
            if pending.is_active:
                self._route(pending, partitions)
