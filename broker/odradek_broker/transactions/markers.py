"""Markers on their way: every partition of a decided transaction learns of it from its leader.

Owns which broker each marker goes to, and that it is sent again, wherever the leader is then, until it is written or
nobody needs it. Leaves the connections, and which markers share a request, to `marker_sender`, and what follows from
markers that are written to whoever asked for them. Kafka's TransactionMarkerChannelManager.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from odradek_broker.deferred import Deferred
from odradek_broker.timers import TimerHandle
from odradek_broker.transactions.core.transaction import TopicPartition
from odradek_broker.transactions.core.transaction_step import MarkerWork
from odradek_broker.transactions.marker_sender import MarkerSender
from odradek_broker.transactions.marker_writing import write_marker
from odradek_log.producer_state import TransactionMarker
from odradek_wire.errors import ErrorCode

if TYPE_CHECKING:
    from odradek_broker.broker import Broker

RETRY_MS = 50
"""After so long a marker that could not be written is sent again, unless the metadata changes before."""

PASSING = frozenset(
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
"""What happens while leaders change and replicas come and go; other errors are told to operators."""

NEEDS_NO_MARKER = frozenset(
    {
        # The producer went on there in a newer epoch: no later attempt will be accepted either.
        ErrorCode.INVALID_PRODUCER_EPOCH,
        # The log is of a format without transactions: nothing was written to it in this one.
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


class Coordinating(Protocol):
    """Whose markers these are."""

    @property
    def is_active(self) -> bool:
        """Whether these transactions are still coordinated here: else others send what is to be sent."""

    def markers_written(self, work: MarkerWork, partitions: Iterable[TopicPartition]) -> None:
        """These partitions have their marker, or need none."""


class Sending:
    """One decided transaction, until all of its partitions know."""

    __slots__ = ("abandoned", "failed", "owner", "warned", "work")

    def __init__(self, owner: Coordinating, work: MarkerWork) -> None:
        self.owner = owner
        self.work = work
        self.abandoned = False
        self.failed = False
        self.warned = False

    @property
    def wanted(self) -> bool:
        return not self.abandoned and self.owner.is_active


class Markers:
    """All markers that this broker's coordinators have to get written."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._log = broker.log
        self._senders: dict[int, MarkerSender] = {}
        self._later: dict[Sending, list[TopicPartition]] = {}
        """What could not be written: sent again at the next change of metadata, or soon if there was a leader."""
        self._untold: dict[Sending, list[TopicPartition]] = {}
        """What is settled, but telling so failed: told again with the next attempt, and never sent again, since the
        marker might end the transaction after its own."""
        self._timer: TimerHandle | None = None
        self._closed = False

    def send(self, owner: Coordinating, work: MarkerWork) -> None:
        """What can be written here is, before this returns."""
        self._route(Sending(owner, work), sorted(work.partitions))

    def metadata_changed(self) -> None:
        """Whatever has not been written goes to who leads its partition now."""
        for broker_id, sender in self._senders.items():
            leader = self._broker.image.brokers.get(broker_id)
            gone = leader is None or leader.fenced
            for sending, places in sender.take_back(partial(self._leads, broker_id), gone):
                self._later.setdefault(sending, []).extend(places)
        if self._later:
            self._try_again()

    @property
    def to_send_again(self) -> int:
        """How many markers wait for a leader, or could not be written."""
        return sum(map(len, self._later.values()))

    async def close(self) -> None:
        """Send nothing more; no task is left when this returns."""
        self._closed = True
        self._later.clear()
        self._untold.clear()
        if self._timer is not None:
            self._timer.cancel()
        senders, self._senders = self._senders, {}
        for sender in senders.values():
            await sender.close()

    # -- where they go ------------------------------------------------------------------------------------------------

    def _route(self, sending: Sending, partitions: Iterable[TopicPartition]) -> None:
        if self._closed:
            return
        broker = self._broker
        settled: list[TopicPartition] = []
        here: list[TopicPartition] = []
        elsewhere: dict[int, list[TopicPartition]] = {}
        for place in partitions:
            leader = self._leader(place)
            if leader == broker.node_id:
                here.append(place)
            elif leader is not None:
                elsewhere.setdefault(leader, []).append(place)
            elif broker.image.partition(*place) is None and broker.has_metadata:
                # The topic is deleted, and the transaction with it.
                settled.append(place)
            else:
                # Nobody leads it: the metadata will say who does.
                self._later.setdefault(sending, []).append(place)
        for broker_id, places in elsewhere.items():
            self._sender(broker_id).add(sending, places)
        if here:
            settled += self._write_here(sending, here)
        self._tell(sending, settled)

    def _leader(self, place: TopicPartition) -> int | None:
        """None while nobody can be asked."""
        image = self._broker.image
        registration = image.partition(*place)
        leader = None if registration is None else image.brokers.get(registration.leader)
        return None if leader is None or leader.fenced else leader.id

    def _leads(self, broker_id: int, place: TopicPartition) -> bool:
        return self._leader(place) == broker_id

    def _sender(self, broker_id: int) -> MarkerSender:
        sender = self._senders.get(broker_id)
        if sender is None:
            sender = self._senders[broker_id] = MarkerSender(self._broker, broker_id, self.settle)
        return sender

    def _write_here(self, sending: Sending, places: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Without a socket. Those that are settled at once."""
        work, settled = sending.work, []
        marker = TransactionMarker(
            work.producer.id, work.producer.epoch, work.coordinator_epoch, work.commit, work.transaction_version
        )
        for place in places:
            outcome: ErrorCode | Deferred[ErrorCode]
            try:
                outcome = write_marker(self._broker, *place, marker)
            except Exception as error:
                self._failed("writing a marker failed; trying again", sending, error)
                outcome = ErrorCode.UNKNOWN_SERVER_ERROR
            if isinstance(outcome, Deferred):
                self._settle_later(sending, place, outcome)
            elif self._is_settled(sending, place, outcome):
                settled.append(place)
        return settled

    def _settle_later(self, sending: Sending, place: TopicPartition, outcome: Deferred[ErrorCode]) -> None:
        def replicated(done: Deferred[ErrorCode]) -> None:
            try:
                error = done.result()
            except Exception as failure:
                self._failed("writing a marker failed; trying again", sending, failure)
                error = ErrorCode.UNKNOWN_SERVER_ERROR
            self.settle(sending, {place: error})

        outcome.when_done(replicated)

    # -- what becomes of them -----------------------------------------------------------------------------------------

    def settle(self, sending: Sending, outcomes: dict[TopicPartition, ErrorCode]) -> None:
        """These are the answers of the partitions' leaders. Raises nothing."""
        self._tell(sending, [place for place, error in outcomes.items() if self._is_settled(sending, place, error)])

    def _tell(self, sending: Sending, settled: list[TopicPartition]) -> None:
        """Raises nothing: what fails for one transaction is no other one's business."""
        if not settled or not sending.wanted:
            return
        try:
            sending.owner.markers_written(sending.work, settled)
        except Exception as error:
            self._failed("a transaction could not be told that its markers are written; trying again", sending, error)
            self._untold.setdefault(sending, []).extend(settled)
            self._try_again_soon()

    def _failed(self, what: str, sending: Sending, error: Exception) -> None:
        """Once for each transaction, since it may go on failing."""
        if not sending.failed:
            sending.failed = True
            self._log.error(what, transactional_id=sending.work.transactional_id, exc_info=error)

    def _is_settled(self, sending: Sending, place: TopicPartition, error: ErrorCode) -> bool:
        if not error:
            return True
        if not sending.wanted:
            return False
        facts = {"topic": place[0], "partition": place[1], "error": error.name}
        log = self._log.bind(transactional_id=sending.work.transactional_id, **facts)
        if error in NEEDS_NO_MARKER:
            log.warning("a partition accepts no marker of the transaction, and needs none")
            return True
        if error == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            # Another broker coordinates it already, and this one is about to be told.
            sending.abandoned = True
            log.warning("a later coordinator has written markers of the producer: ours are given up")
            return False
        if error not in PASSING and not sending.warned:
            sending.warned = True
            log.warning("a marker was not written; it is sent again until it is")
        self._later.setdefault(sending, []).append(place)
        self._try_again_soon()
        return False

    def _try_again_soon(self) -> None:
        if self._timer is None or not self._timer.pending:
            self._timer = self._broker.timers.call_later(RETRY_MS, self._try_again)

    def _try_again(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        untold, self._untold = self._untold, {}
        for sending, places in untold.items():
            self._tell(sending, places)
        later, self._later = self._later, {}
        for sending, places in later.items():
            if sending.wanted:
                self._route(sending, places)
