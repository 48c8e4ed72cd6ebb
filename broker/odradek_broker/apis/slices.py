"""Long requests in slices: the division of an API's long arrays, and the joining of the responses.

Owns the division, and the turns of the event loop between slices. Leaves the meaning of a slice to the API's handler. A
handler with a long response to a short request returns `Sliced`, and lets other requests run by `Turns`.

Elements are the entries of arrays (`network.long_requests`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from odradek_broker.deferred import Deferred

if TYPE_CHECKING:
    from odradek_broker.apis.context import Context

ELEMENTS = 1000
"""Elements that are decoded in one turn of the event loop, and handled in one slice unless an API needs fewer. Most
handlers take 2 to 10 microseconds for an element."""
TURN_S = 0.005
"""A request keeps the event loop for at most this time and one slice before other requests have their turn."""

Slice = tuple[Any, bool]
"""A request with some of the elements, or the response to it; and whether its only entry is a further piece of the last
entry of the previous slice."""


class Divider(Protocol):
    """Divides the long requests of one API."""

    @property
    def elements(self) -> int:
        """Elements of one slice."""

    @property
    def undivided(self) -> int | None:
        """A request with at most this many elements is handled in one piece; None: `elements`."""

    def divide(self, request: Any) -> Iterator[Slice]:
        """Yield the slices of a request, in order."""

    def join(self, responses: list[Slice]) -> Any:
        """Return one response for the responses to all slices, of which there is at least one."""


@dataclass(frozen=True, slots=True)
class Slices:
    """Divides the array `request` of a request. Each entry has its response in one entry of the array `response`.

    `inner` names two arrays: one in each entry of `request`, and the one for its responses in each entry of `response`.
    An entry that is too long for one slice is divided there."""

    request: str
    response: str
    inner: tuple[str, str] | None = None
    elements: int = ELEMENTS
    undivided: int | None = None
    """A request with at most this many elements is handled in one piece; None: `elements`."""
    also: str = ""
    """Another array of the response, joined without repeated entries."""
    in_old_versions: str = ""
    """The array that old versions have in place of `request`; in these versions `request` is empty."""

    def divide(self, request: Any) -> Iterator[Slice]:
        name = self.request
        if self.in_old_versions and not getattr(request, name):
            name = self.in_old_versions
        collected: list[Any] = []
        weight = 0
        for entry in getattr(request, name) or ():
            size = 1 if self.inner is None else 1 + len(getattr(entry, self.inner[0]) or ())
            if collected and weight + size > self.elements:
                yield _with(request, name, collected), False
                collected, weight = [], 0
            if self.inner is not None and size > self.elements:
                for number, piece in enumerate(_pieces(entry, self.inner[0], self.elements)):
                    yield _with(request, name, [piece]), number > 0
            else:
                collected.append(entry)
                weight += size
        if collected:
            yield _with(request, name, collected), False
        elif not getattr(request, name):
            yield request, False

    def join(self, responses: list[Slice]) -> Any:
        first = responses[0][0]
        if first is None:
            return None
        joined: list[Any] = []
        others: list[Any] = []
        for response, continues in responses:
            if getattr(response, "error_code", 0):
                return response
            entries = getattr(response, self.response)
            if continues and joined and len(entries) == 1 and self.inner is not None:
                getattr(joined[-1], self.inner[1]).extend(getattr(entries[0], self.inner[1]))
            else:
                joined.extend(entries)
            if self.also:
                others.extend(each for each in getattr(response, self.also) if each not in others)
        setattr(first, self.response, joined)
        if self.also:
            setattr(first, self.also, others)
        return first


def _with(request: Any, array: str, entries: list[Any]) -> Any:
    part = copy(request)
    setattr(part, array, entries)
    return part


def _pieces(entry: Any, inner: str, size: int) -> Iterator[Any]:
    elements = getattr(entry, inner)
    for start in range(0, len(elements), size):
        piece = copy(entry)
        setattr(piece, inner, elements[start : start + size])
        yield piece


@dataclass(frozen=True, slots=True)
class Sliced:
    """A response with many elements, which its coroutine makes in slices; it is encoded on a thread."""

    response: Coroutine[Any, Any, Any]


async def handle_in_slices(
    handle: Callable[[Context, Any], Any | Awaitable[Any] | None], ctx: Context, request: Any, divider: Divider
) -> Any:
    """Handle one slice after another, with turns of the event loop for other requests in between. Return the joined
    response, or None if the client expects none. Slices that wait for other brokers wait together."""
    handled: list[Slice] = []
    turns = Turns()
    try:
        for part, continues in divider.divide(request):
            result = handle(ctx, part)
            if isinstance(result, Sliced):
                result = await result.response
            elif isinstance(result, Coroutine):
                result = await result
            handled.append((result, continues))
            if ctx.connection.closing:
                break
            await turns.others_first()
        responses = [
            (await result if isinstance(result, Deferred) else result, continues) for result, continues in handled
        ]
    except asyncio.CancelledError:
        for result, _ in handled:
            if isinstance(result, Deferred):
                result.cancel()
        raise
    return divider.join(responses)


class Turns:
    """The turns of the event loop that one long request takes. Slices are small, because the cost of an element differs
    by a factor of a hundred (a log whose files must be opened first), and several slices may fit into one turn."""

    __slots__ = ("_began_s", "_loop")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._began_s = self._loop.time()

    async def others_first(self) -> None:
        """Let the event loop serve other connections before the next slice, if this turn has taken `TURN_S`."""
        if self._loop.time() - self._began_s >= TURN_S:
            await asyncio.sleep(0)
            self._began_s = self._loop.time()
