"""One run of the bench: its sizes, its brokers, and the turns that they take.

Brokers are measured in turn (A, B, A, B …), so that a machine that changes its speed changes it for all; a figure is
the median of its runs.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from bench.brokers import Broker, Kafka, Odradek, Peer
from bench.host_memory import take_from_host
from bench.warm_up import warm_up

if TYPE_CHECKING:
    from bench.clusters import Brokers

Measurable = TypeVar("Measurable", "Broker", "Brokers")
Measured = Mapping[str, float]
Medians = dict[str, dict[str, float]]


class Session:
    """`quick` runs everything once and tiny: to see that it works, not how fast."""

    def __init__(self, folder: Path, peers: Mapping[str, str], *, quick: bool, runs: int = 5) -> None:
        self.folder = folder
        self.quick = quick
        self._runs = runs
        self._peers = peers
        self._stack = ExitStack()
        self._warm: list[Broker] = []
        self._made = 0

    def sized(self, full: int) -> int:
        """A size, or a fiftieth of it."""
        return max(full // 50, 1) if self.quick else full

    def seconds(self, full: float) -> float:
        """A time to measure for."""
        return 0.3 if self.quick else full

    def runs(self, full: int = 5) -> int:
        """How often each broker has its turn."""
        return 1 if self.quick else min(full, self._runs)

    def warm(self) -> Sequence[Broker]:
        """All brokers, running and warmed up, the same ones for every row that asks; peers among them."""
        if not self._warm:
            brokers = self._stack.enter_context(self.fresh(peers=True))
            for broker in brokers:
                self.say(f"warming up {broker.name}")
                warm_up(broker.address, self.sized(500_000_000), self.seconds(4))
            self._warm = list(brokers)
        return self._warm

    @contextmanager
    def fresh(self, *, peers: bool = False) -> Iterator[Sequence[Broker]]:
        """New brokers, started, for the length of the block."""
        with self.stopped() as own:
            others = [Peer(name, address) for name, address in self._peers.items()] if peers else []
            brokers: list[Broker] = [*own, *others]
            for broker in brokers:
                broker.start()
            yield brokers

    @contextmanager
    def stopped(self) -> Iterator[Sequence[Broker]]:
        """New brokers that nobody has started yet; stopped and their data deleted at the end."""
        folder = self.new_folder()
        brokers: list[Broker] = [Odradek(folder / "odradek"), Kafka(folder / "kafka")]
        try:
            yield brokers
        finally:
            for broker in brokers:
                broker.close()

    def new_folder(self) -> Path:
        """For one set of brokers; nobody has used it, and it goes away with the session."""
        self._made += 1
        return self.folder / str(self._made)

    def in_turn(
        self, brokers: Sequence[Measurable], measure: Callable[[Measurable], Measured], runs: int | None = None
    ) -> Medians:
        """For each figure, by its name, the median of each broker, by its name."""
        taken: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for _ in range(self.runs() if runs is None else runs):
            for broker in brokers:
                # What an earlier turn left to be written would be written during this one.
                os.sync()
                if not self.quick:
                    take_from_host()
                for figure, value in measure(broker).items():
                    taken[figure][broker.name].append(value)
        return {
            figure: {broker: statistics.median(values) for broker, values in by_broker.items()}
            for figure, by_broker in taken.items()
        }

    def say(self, text: str) -> None:
        """Progress, to standard error."""
        print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Stop what was started, delete what was written."""
        self._stack.close()
