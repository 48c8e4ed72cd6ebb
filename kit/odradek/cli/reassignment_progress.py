"""Progress bars of reassignments: one for each of the first partitions, and one for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from odradek.client.reassignments import Reassignment, TopicPartition

BARS_MAX = 15


def bars(moves: Sequence[Reassignment], shares: Mapping[TopicPartition, float]) -> Table:
    """Make a line for each reassignment: the partition, new and leaving brokers, and the share that is copied."""
    table = Table.grid(padding=(0, 1))
    for move in moves[:BARS_MAX]:
        share = shares.get((move.topic, move.index), 0.0)
        table.add_row(
            f"{move.topic}-{move.index}",
            " ".join([*(f"+{broker}" for broker in move.adding), *(f"-{broker}" for broker in move.removing)]),
            ProgressBar(total=1.0, completed=share, width=30),
            f"{share:4.0%}",
        )
    if len(moves) > BARS_MAX:
        table.add_row(Text(f"and {len(moves) - BARS_MAX} more", style="dim"))
    return table


class ReassignmentProgress:
    """A live view on standard error in a `with` block; shows nothing if `quiet` or without a terminal."""

    def __init__(self, total: int, *, quiet: bool) -> None:
        self._total = total
        console = Console(stderr=True)
        self._live = None if quiet or not console.is_terminal else Live(console=console, transient=True)

    def show(self, moves: Sequence[Reassignment], shares: Mapping[TopicPartition, float]) -> None:
        """Show the reassignments that are still in progress."""
        if self._live is None:
            return
        done = self._total - len(moves) + sum(shares.values())
        whole = Table.grid(padding=(0, 1))
        whole.add_row(
            f"{self._total - len(moves)} of {self._total} moved",
            ProgressBar(total=max(self._total, 1), completed=done, width=30),
        )
        self._live.update(Group(bars(moves, shares), whole))

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
