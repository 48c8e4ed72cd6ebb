"""Requests with much work, in slices, so that they do not delay other clients.

Owns the division of long arrays, the joining of responses, and how often the event loop serves other requests in
between. Leaves the meaning of a slice to the API's handler. An API with long arrays has a `Divider`. A handler whose
work grows with the state of the broker is a generator, which `run_in_slices` runs.

Elements are the entries of arrays (`network.long_requests`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from odradek_broker.deferred import Deferred

if TYPE_CHECKING:
    from odradek_broker.apis.context import Context

T = TypeVar("T")

ELEMENTS = 1000
"""Elements that are decoded in one turn of the event loop, and handled in one slice unless an API needs fewer. Most
handlers take 2 to 10 microseconds for an element."""
TURN_S = 0.005
"""A request keeps the event loop for at most this time and one slice before other requests have their turn."""


class Slice(NamedTuple):
    """One slice of a request, or the response to it."""

    part: Any
    """The request with some of its elements, or the response to them."""
    continues: bool
    """Whether the only entry of the part continues the last entry of the previous slice."""


class Divider(Protocol):
    """Divides the long requests of one API."""

    @property
    def elements(self) -> int:
        """Elements of one slice; a request with at most so many is handled in one piece."""

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
    weigh: Callable[[Any], int] | None = None
    """Returns how many elements an entry of the inner array counts as; None: one."""
    also_join: str = ""
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
            size = 1
            if self.inner is not None:
                inner: list[Any] = getattr(entry, self.inner[0]) or []
                size += len(inner) if self.weigh is None else sum(map(self.weigh, inner))
            if collected and weight + size > self.elements:
                yield Slice(_with(request, name, collected), False)
                collected, weight = [], 0
            if self.inner is not None and size > self.elements:
                for number, piece in enumerate(self._pieces(inner)):
                    yield Slice(_with(request, name, [_with(entry, self.inner[0], piece)]), number > 0)
            else:
                collected.append(entry)
                weight += size
        if collected:
            yield Slice(_with(request, name, collected), False)
        elif not getattr(request, name):
            yield Slice(request, False)

    def _pieces(self, inner: list[Any]) -> Iterator[list[Any]]:
        """Divide an inner array into pieces of the weight of a slice; a heavier entry is a piece of its own."""
        start = weight = 0
        for index, entry in enumerate(inner):
            more = 1 if self.weigh is None else self.weigh(entry)
            if index > start and weight + more > self.elements:
                yield inner[start:index]
                start, weight = index, 0
            weight += more
        yield inner[start:]

    def join(self, responses: list[Slice]) -> Any:
        first = responses[0].part
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
            if self.also_join:
                others.extend(each for each in getattr(response, self.also_join) if each not in others)
        setattr(first, self.response, joined)
        if self.also_join:
            setattr(first, self.also_join, others)
        return first


def _with(struct: Any, array: str, entries: list[Any]) -> Any:
    """Return a copy of the request or the entry with these entries in the array."""
    part = copy(struct)
    setattr(part, array, entries)
    return part


@dataclass(frozen=True, slots=True)
class Sliced:
    """A response with many elements, which its coroutine makes in slices; it is encoded on a thread."""

    response: Coroutine[Any, Any, Any]


def run_in_slices(work: Generator[int, None, T]) -> T | Sliced:
    """Run a generator that makes a response, and return the response.

    The generator yields after each step how many elements it has read or made. After `ELEMENTS` of them the rest
    continues with turns of the event loop for other requests in between: a step that needs unchanged state reads a copy
    of it, such as an image. A client that disconnects ends it."""
    left = ELEMENTS
    try:
        while left > 0:
            left -= next(work)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    return Sliced(finish_in_slices(work))


async def finish_in_slices(work: Generator[int, None, T]) -> T:
    """Do as `run_in_slices`, in a coroutine."""
    yielder = LoopYielder()
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        await yielder.yield_if_due()


async def handle_in_slices(
    handle: Callable[[Context, Any], Any | Awaitable[Any] | None], ctx: Context, request: Any, divider: Divider
) -> Any:
    """Handle one slice after another, with turns of the event loop for other requests in between. Return the joined
    response, or None if the client expects none. Slices that wait for other brokers wait together."""
    handled: list[Slice] = []
    yielder = LoopYielder()
    try:
        for part, continues in divider.divide(request):
            result = handle(ctx, part)
            if isinstance(result, Sliced):
                result = await result.response
            elif isinstance(result, Coroutine):
                result = await result
            handled.append(Slice(result, continues))
            if ctx.connection.closing:
                break
            await yielder.yield_if_due()
        responses = [
            Slice(await result if isinstance(result, Deferred) else result, continues) for result, continues in handled
        ]
    except asyncio.CancelledError:
        for result, _ in handled:
            if isinstance(result, Deferred):
                result.cancel()
        raise
    return divider.join(responses)


class LoopYielder:
    """Lets the event loop serve other connections while one request takes many turns. Slices are small, because the
    cost of an element differs by a factor of a hundred (a log whose files must be opened first), and several slices may
    fit into one turn."""

    __slots__ = ("_began_s", "_loop")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._began_s = self._loop.time()

    async def yield_if_due(self) -> None:
        """Let the event loop serve other connections before the next slice, if this turn has taken `TURN_S`."""
        if self._loop.time() - self._began_s >= TURN_S:
            await asyncio.sleep(0)
            self._began_s = self._loop.time()
