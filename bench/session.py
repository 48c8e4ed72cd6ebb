"""One run of the bench: its sizes, its brokers and the order of their runs.

The brokers take turns (A, B, A, B …), so that a change in the speed of the machine affects all of them. A figure is the
median of its runs.
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
    """The brokers and sizes of one run. A `quick` run measures once, with tiny sizes, and its figures mean nothing."""

    def __init__(self, folder: Path, peers: Mapping[str, str], *, quick: bool, runs: int = 5) -> None:
        self.folder = folder
        self.quick = quick
        self._runs = runs
        self._peers = peers
        self._stack = ExitStack()
        self._warm: list[Broker] = []
        self._folders = 0

    def sized(self, full: int) -> int:
        """Return the size, or a fiftieth of it in a quick run."""
        return max(full // 50, 1) if self.quick else full

    def seconds(self, full: float) -> float:
        """Return the duration of a measurement, which is short in a quick run."""
        return 0.3 if self.quick else full

    def runs(self, full: int = 5) -> int:
        """Return the number of runs per broker."""
        return 1 if self.quick else min(full, self._runs)

    def warm(self) -> Sequence[Broker]:
        """Return all brokers, also the peers, running and warmed up. Every row gets the same ones."""
        if not self._warm:
            brokers = self._stack.enter_context(self.fresh(peers=True))
            for broker in brokers:
                self.say(f"warming up {broker.name}")
                warm_up(broker.address, self.sized(500_000_000), self.seconds(4))
            self._warm = list(brokers)
        return self._warm

    @contextmanager
    def fresh(self, *, peers: bool = False) -> Iterator[Sequence[Broker]]:
        """Start new brokers; the end of the block stops them."""
        with self.stopped() as own:
            others = [Peer(name, address) for name, address in self._peers.items()] if peers else []
            brokers: list[Broker] = [*own, *others]
            for broker in brokers:
                broker.start()
            yield brokers

    @contextmanager
    def stopped(self) -> Iterator[Sequence[Broker]]:
        """Make new brokers without starting them; the end of the block stops them and deletes their data."""
        folder = self.new_folder()
        brokers: list[Broker] = [Odradek(folder / "odradek"), Kafka(folder / "kafka")]
        try:
            yield brokers
        finally:
            for broker in brokers:
                broker.close()

    def new_folder(self) -> Path:
        """Return a new folder for one set of brokers."""
        self._folders += 1
        return self.folder / str(self._folders)

    def in_turn(
        self, brokers: Sequence[Measurable], measure: Callable[[Measurable], Measured], runs: int | None = None
    ) -> Medians:
        """Return the medians by figure and broker."""
        measured: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for _ in range(self.runs() if runs is None else runs):
            for broker in brokers:
                # Otherwise the kernel writes dirty pages of an earlier run during this one.
                os.sync()
                if not self.quick:
                    take_from_host()
                for figure, value in measure(broker).items():
                    measured[figure][broker.name].append(value)
        return {
            figure: {broker: statistics.median(values) for broker, values in by_broker.items()}
            for figure, by_broker in measured.items()
        }

    def say(self, text: str) -> None:
        """Print progress to standard error."""
        print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Stop the brokers and delete their data."""
        self._stack.close()
