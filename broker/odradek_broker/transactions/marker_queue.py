"""Markers that wait to be sent to one other broker: those for places that are slow to replicate by place, and the rest.

Owns which places are slow, and which markers go together in a request. Whoever comes costs what it brings, however much
waits: only where a place becomes slow, or is so no more, are its own markers looked at again. Leaves requests and
connections to `marker_sender`. A place is a partition that the other broker led when its marker came.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from odradek_broker.transactions.core.transaction import TopicPartition

if TYPE_CHECKING:
    from odradek_broker.transactions.markers import Sending

MARKERS_AT_ONCE = 1_000

Part = tuple["Sending", list[TopicPartition]]
"""A transaction, and places of it, never none."""


class MarkerQueue:
    """What nobody wants any more leaves the queue when its turn comes."""

    def __init__(self) -> None:
        self._prompt: deque[Part] = deque()
        """May name places that have become slow since: they are put there when their turn comes."""
        self._slow: dict[TopicPartition, deque[Sending]] = {}
        """All places that are slow, with who waits for them."""
        self._awaited: set[TopicPartition] = set()
        """Slow places that a request is under way to."""
        self._ready: OrderedDict[TopicPartition, None] = OrderedDict()
        """Slow places that somebody waits for, and no request."""

    def add(self, sending: Sending, places: list[TopicPartition]) -> None:
        prompt = self._without_slow(sending, places)
        if prompt:
            self._prompt.append((sending, prompt))

    def clear(self) -> None:
        self._prompt.clear()
        self._slow.clear()
        self._ready.clear()

    # -- what goes ----------------------------------------------------------------------------------------------------

    def take_prompt(self) -> list[Part]:
        """What one request may carry, none of it to a slow place."""
        taken: list[Part] = []
        while self._prompt and len(taken) < MARKERS_AT_ONCE:
            sending, places = self._prompt.popleft()
            prompt = self._without_slow(sending, places) if sending.wanted else []
            if prompt:
                taken.append((sending, prompt))
        return taken

    def take_slow(self) -> list[Part]:
        """What one request may carry to slow places that no other is under way to. Say `answered` when it is over."""
        taken: dict[Sending, list[TopicPartition]] = {}
        count = 0
        while self._ready and count < MARKERS_AT_ONCE:
            place, _ = self._ready.popitem(last=False)
            waiting = self._slow[place]
            while waiting and count < MARKERS_AT_ONCE:
                sending = waiting.popleft()
                if sending.wanted:
                    taken.setdefault(sending, []).append(place)
                    self._awaited.add(place)
                    count += 1
        return list(taken.items())

    def _without_slow(self, sending: Sending, places: list[TopicPartition]) -> list[TopicPartition]:
        """Those of the places that are not slow; the marker waits for each of the others by itself."""
        if not self._slow:
            return places
        prompt = []
        for place in places:
            waiting = self._slow.get(place)
            if waiting is None:
                prompt.append(place)
            else:
                waiting.append(sending)
                if place not in self._awaited:
                    self._ready[place] = None
        return prompt

    # -- which places are slow ----------------------------------------------------------------------------------------

    def await_slow(self, places: Iterable[TopicPartition]) -> None:
        """A request to these takes too long: they are slow, and awaited until it is `answered`."""
        for place in places:
            self._awaited.add(place)
            self.is_slow(place)

    def is_slow(self, place: TopicPartition) -> None:
        self._slow.setdefault(place, deque())

    def is_prompt(self, place: TopicPartition) -> None:
        waiting = self._slow.pop(place, None)
        self._ready.pop(place, None)
        if waiting:
            self._prompt.extend((sending, [place]) for sending in waiting)

    def answered(self, places: Iterable[TopicPartition]) -> None:
        """The request to these slow places is over."""
        for place in places:
            self._awaited.discard(place)
            if self._slow.get(place):
                self._ready[place] = None

    # -- what does not belong here any more ---------------------------------------------------------------------------

    def take_back(self, led: Callable[[TopicPartition], bool]) -> list[Part]:
        """What waits for places that are not `led` by the other broker leaves the queue."""
        staying, back = split(self._prompt, led)
        self._prompt = deque(staying)
        for place in [place for place in self._slow if not led(place)]:
            back += [(sending, [place]) for sending in self._slow.pop(place)]
            self._ready.pop(place, None)
        return back


def split(parts: Iterable[Part], led: Callable[[TopicPartition], bool]) -> tuple[list[Part], list[Part]]:
    """What is to go to places that are led, and the rest."""
    staying: list[Part] = []
    back: list[Part] = []
    for sending, places in parts:
        here = [place for place in places if led(place)]
        if here:
            staying.append((sending, here))
        if len(here) < len(places):
            back.append((sending, [place for place in places if not led(place)]))
    return staying, back
