"""Long requests in slices: how an API's long arrays are divided, and how the responses to the parts become one.

Owns the division and the turns that other requests get in between. Leaves what a part means to the API's handler. A
handler that has much to say to a short request returns `Sliced`, and gives way by `Turns`.
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
"""Elements that are decoded in one turn of the event loop, and handled in one slice unless an API needs less. Most
handlers take 2 to 10 microseconds for one."""
TURN_S = 0.005
"""How long a request keeps the event loop before others have their turn, plus at most one slice."""

Slice = tuple[Any, bool]
"""A request with a part of the elements, or its response; and whether its one entry continues the last one before."""


class Divider(Protocol):
    """How long requests of one API are divided."""

    @property
    def elements(self) -> int:
        """Elements that are handled in one turn."""

    def divide(self, request: Any) -> Iterator[Slice]:
        """Yield the parts, in order."""

    def join(self, responses: list[Slice]) -> Any:
        """Return one response from those to the parts, of which there is at least one."""


@dataclass(frozen=True, slots=True)
class Slices:
    """Entries of an array of the request, each with one entry in an array of the response.

    `inner` are the arrays of such entries whose elements correspond, too, in request and response: an entry whose own
    array is long is divided."""

    request: str
    response: str
    inner: tuple[str, str] | None = None
    elements: int = ELEMENTS
    also: str = ""
    """An array of the response besides, whose entries may be repeated in several parts."""
    in_old_versions: str = ""
    """The array that is in the place of `request`, which is empty then."""

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
    """What a handler returns for a response with many elements: it is made in slices, and encoded on a thread."""

    response: Coroutine[Any, Any, Any]


async def handle_in_slices(
    handle: Callable[[Context, Any], Any | Awaitable[Any] | None], ctx: Context, request: Any, divider: Divider
) -> Any:
    """Handle one part after the other, with turns of the event loop for others in between; the joined response, or None
    when the client expects none. Parts that wait for other brokers wait together."""
    answers: list[Slice] = []
    turns = Turns()
    try:
        for part, continues in divider.divide(request):
            answer = handle(ctx, part)
            if isinstance(answer, Sliced):
                answer = await answer.response
            elif isinstance(answer, Coroutine):
                answer = await answer
            answers.append((answer, continues))
            if ctx.connection.closing:
                break
            await turns.others_first()
        responses = [
            (await answer if isinstance(answer, Deferred) else answer, continues) for answer, continues in answers
        ]
    except asyncio.CancelledError:
        for answer, _ in answers:
            if isinstance(answer, Deferred):
                answer.cancel()
        raise
    return divider.join(responses)


class Turns:
    """Turns of the event loop that one long request takes. Slices are small, because what one element costs differs by
    a factor of a hundred (a log whose files must be opened first), and several may fit into one turn."""

    __slots__ = ("_began_s", "_loop")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._began_s = self._loop.time()

    async def others_first(self) -> None:
        """Let the event loop serve other connections before the next slice, if this turn has taken `TURN_S`."""
        if self._loop.time() - self._began_s >= TURN_S:
            await asyncio.sleep(0)
            self._began_s = self._loop.time()
