"""A fetch at a random offset of a log of 10 GB beside one of 100 MB, in the log itself (`bench.log`)."""

from __future__ import annotations

from collections.abc import Iterator

from bench.line import ODRADEK, Line, limit
from bench.log import random_fetch
from bench.session import Session


def lines(session: Session) -> Iterator[Line]:
    """Sparse files: what 10 GB cost on the disk is its headers."""
    if session.quick:
        return
    for work, (small, large) in random_fetch(session.folder / "log").items():
        note = f"{small:.1f} µs and {large:.1f} µs of processor time"
        # The target speaks of a fetch; finding its place is the part of it that grows.
        targets = (limit(1.2, "×"),) if work.startswith("fetch") else ()
        yield Line(f"{work}, 10 GB ÷ 100 MB", "×", {ODRADEK: large / small}, targets, note)
