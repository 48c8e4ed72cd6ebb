"""The trace of a run: the last events as text, and a digest of all events, equal only for equal runs."""

from __future__ import annotations

import errno
import os
import zlib
from collections import deque
from collections.abc import Callable
from typing import Any

KEPT = 400
"""The number of events that the trace keeps as text."""
DISK_ERRORS = (os.strerror(errno.EIO), os.strerror(errno.ENOSPC), "KAFKA_STORAGE_ERROR")
DISK_EVENTS = (
    "log directory goes offline",
    "all log directories failed, stopping the broker",
)


class Trace:
    """`now()` returns virtual seconds."""

    def __init__(self) -> None:
        self.now: Callable[[], float] = lambda: 0.0
        self.digest = 0
        self.last: deque[tuple[float, str, str]] = deque(maxlen=KEPT)

    def add(self, host: str, event: str) -> None:
        now = self.now()
        self.last.append((now, host, event))
        self.digest = zlib.crc32(f"{now:.9f} {host} {event}".encode(), self.digest)

    def mix(self, number: int) -> None:
        """Add a number to the digest, without a line."""
        self.digest = zlib.crc32(b"%d %d" % (number, self.now() * 1e9), self.digest)

    def text(self, count: int = KEPT) -> str:
        lines = list(self.last)[-count:]
        width = max((len(host) for _, host, _ in lines), default=0)
        return "\n".join(f"{now:12.6f}  {host:<{width}}  {event}" for now, host, event in lines)


class TraceLog:
    """The brokers' logger, which adds every event to the trace. Calls `unexpected` with each error that is not about a
    failed disk, because no other fault of the simulation may make a broker log an error."""

    def __init__(self, trace: Trace, unexpected: Callable[[str], None], facts: dict[str, Any] | None = None) -> None:
        self._trace = trace
        self._unexpected = unexpected
        self._facts = facts or {}

    def bind(self, **facts: Any) -> TraceLog:
        return TraceLog(self._trace, self._unexpected, self._facts | facts)

    def debug(self, event: str, /, **facts: Any) -> None:
        self._note("debug", event, facts)

    def info(self, event: str, /, **facts: Any) -> None:
        self._note("info", event, facts)

    def warning(self, event: str, /, **facts: Any) -> None:
        self._note("warning", event, facts)

    def error(self, event: str, /, **facts: Any) -> None:
        text = self._note("error", event, facts)
        if event not in DISK_EVENTS and not any(error in text for error in DISK_ERRORS):
            self._unexpected(text)

    def _note(self, level: str, event: str, facts: dict[str, Any]) -> str:
        words = [f"{name}={_text(value)}" for name, value in (self._facts | facts).items()]
        text = f"{level}: {event}" + (f" ({', '.join(words)})" if words else "")
        self._trace.add("log", text)
        return text


def _text(value: Any) -> str:
    return f"{type(value).__name__}: {value}" if isinstance(value, BaseException) else str(value)
