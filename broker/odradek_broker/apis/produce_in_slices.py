"""A large Produce in slices, so that it does not delay other clients: one with many partitions or many bytes.

Owns the slices, and keeps the records valid between them. As in Kafka, a request whose append has begun is appended
as a whole, even if the client disconnects: with acks=0 it does not wait for a response. Leaves the append of a slice to
`produce_append`. The records of one partition are one batch, which is not divided.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek_broker.apis.produce_append import append, require_room
from odradek_broker.apis.slices import Slice, Slices
from odradek_broker.deferred import Deferred
from odradek_wire.messages.produce import ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from odradek_broker.apis.context import Context
    from odradek_broker.transactions.transaction_verification import TransactionVerification

ELEMENT_BYTES = 256 * 1024
"""Records of this size count as one more element."""
UNDIVIDED = 25
"""A request with at most this many elements is appended in one turn of the event loop."""


def _weigh(data: ProduceRequest.PartitionProduceData) -> int:
    records: Any = data.records
    return 1 if records is None else 1 + len(records) // ELEMENT_BYTES


SLICES = Slices(
    "topic_data",
    "responses",
    inner=("partition_data", "partition_responses"),
    # The first append to a partition creates its files, which takes a disk some milliseconds.
    elements=8,
    weigh=_weigh,
    also_join="node_endpoints",
)


def append_in_slices(
    ctx: Context,
    request: ProduceRequest,
    verification: TransactionVerification | None = None,
    held_bytes: int | None = None,
) -> ProduceResponse | Deferred[ProduceResponse] | None:
    """Do as `append`, in slices if the request is large.

    `held_bytes` is the result of `hold_records`, if the caller has called it; the bytes go back to the memory budget
    when all records are appended. Raises MemoryExhausted, before it has any effect, if there is no room to convert a
    batch."""
    if ctx.connection.memory.used:  # otherwise there is enough room
        require_room(ctx, request)
    if _is_large(request):
        held_bytes = hold_records(ctx, request) if held_bytes is None else held_bytes
        return _SlicedAppend(ctx, request, verification, held_bytes).begin()
    try:
        return append(ctx, request, verification)
    finally:
        if held_bytes:
            ctx.connection.memory.give_back(held_bytes)


def _is_large(request: ProduceRequest) -> bool:
    topics = request.topic_data
    if len(topics) == 1 and len(topics[0].partition_data) == 1:
        return False
    return sum(_weigh(data) for topic in topics for data in topic.partition_data) > UNDIVIDED


def hold_records(ctx: Context, request: ProduceRequest) -> int:
    """Keep the records valid after the handler has returned: hold the receive buffer, or copy them out of a reused one.
    Return how many bytes the caller gives back to the memory budget when it needs the records no more."""
    held = ctx.connection.hold_request()
    if held is not None:
        return held
    held = 0
    for topic in request.topic_data:
        for data in topic.partition_data:
            records: Any = data.records
            if records is not None:
                data.records = memoryview(bytearray(records))
                held += len(records)
    ctx.connection.memory.take_unchecked(held)
    return held


class _SlicedAppend:
    """One request. The event loop serves other requests between two slices."""

    __slots__ = ("_appended", "_ctx", "_held_bytes", "_slices", "_verification", "_waiting", "response")

    def __init__(
        self, ctx: Context, request: ProduceRequest, verification: TransactionVerification | None, held_bytes: int
    ) -> None:
        self._ctx = ctx
        self._verification = verification
        self._held_bytes = held_bytes
        self._slices = SLICES.divide(request)
        self._appended: list[Slice] = []
        self._waiting = 0
        self.response: Deferred[Any] = Deferred(self._cancel)

    def begin(self) -> Deferred[ProduceResponse]:
        self._append_next()
        return self.response

    def _append_next(self) -> None:
        if self._ctx.broker.timers.closed:  # the broker closes its logs
            self._release()
            return self._cancel()
        try:
            part, continues = next(self._slices)
            self._appended.append(Slice(append(self._ctx, part, self._verification), continues))
        except StopIteration:
            self._release()
            self._wait()
        except Exception as error:
            self._release()
            self._cancel()
            if self.response.done:  # the client has disconnected
                self._ctx.connection.warn("append failed after the client had disconnected", self._ctx, exc_info=error)
            self.response.fail(error)
        else:
            self._ctx.broker.timers.call_soon(self._append_next)
        return None

    def _release(self) -> None:
        self._ctx.connection.memory.give_back(self._held_bytes)

    def _wait(self) -> None:
        """Respond when the acks of all slices are there."""
        if self.response.done:  # the client has disconnected
            return self._cancel()
        waiting = [result for result, _ in self._appended if isinstance(result, Deferred)]
        self._waiting = len(waiting)
        for result in waiting:
            result.when_done(self._acknowledged)
        if not waiting:
            self._respond()
        return None

    def _acknowledged(self, _: Deferred[ProduceResponse]) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._respond()

    def _respond(self) -> None:
        try:
            responses = [
                Slice(result.result() if isinstance(result, Deferred) else result, continues)
                for result, continues in self._appended
            ]
        except Exception as error:
            return self.response.fail(error)
        return self.response.complete(SLICES.join(responses))

    def _cancel(self) -> None:
        for result, _ in self._appended:
            if isinstance(result, Deferred):
                result.cancel()
