"""One step of a coordinator: the outcome of one input (a request, a deadline that passed, a write that completed).

Owns the parts of a step that the group coordinator and the transaction coordinator share. Leaves their own parts to
`groups.core.group_step` and `transactions.core.transaction_step`, and applying a step to `coordinator_partition`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from odradek_broker.coordination.core.deadlines import Instant
from odradek_wire.errors import ErrorCode

Record = TypeVar("Record")
Write = TypeVar("Write")

DeferredResponse = object
"""The response to a request, which is completed later. Opaque to the state machines: the shell passes a `Deferred`."""


class CoordinatorEvent(NamedTuple):
    """An event for the broker's log."""

    message: str
    facts: Mapping[str, object]
    notable: bool
    """True: logged at INFO, such as the removal of a member. False: logged at DEBUG."""


class ResponseOnceWritten(NamedTuple):
    """A response that is sent when the records of its step are committed."""

    deferred: DeferredResponse
    response: object
    error_response: Callable[[ErrorCode], object]
    """Makes the response if the write fails."""


@dataclass(slots=True)
class Step(Generic[Record, Write]):
    """The state machine fills a step while it handles one input. `CoordinatorPartition` then logs the events, sends the
    responses, and appends the records as one batch."""

    now: Instant
    records: list[Record] = field(default_factory=list)
    responses: list[tuple[DeferredResponse, object]] = field(default_factory=list)
    responses_once_written: list[ResponseOnceWritten] = field(default_factory=list)
    """Only in a step with records."""
    write: Write | None = None
    """A description of the records for the state machine. The shell passes it back with the outcome of the write; None:
    the state machine does not need the outcome."""
    events: list[CoordinatorEvent] = field(default_factory=list)
