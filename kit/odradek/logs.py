"""Loggers for brokers: to a stream, as text or JSON, or in memory for a test.

Each logger has its own structlog processors. The configuration of structlog in the user's process stays as it is.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping
from datetime import UTC, datetime
from functools import cache
from traceback import TracebackException, format_exception, walk_tb
from typing import Any, TextIO, cast

from odradek_broker.logger import Logger

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_KEPT_ENTRIES_MAX = 10_000

Event = MutableMapping[str, Any]


def stream_logger(stream: TextIO, *, as_json: bool, level: str = "info") -> Logger:
    """Return a logger that writes a line per event: text, or a JSON document."""

    def make() -> Logger:
        import structlog

        return _logger(structlog.PrintLogger(stream), structlog.processors.JSONRenderer() if as_json else _readable)

    def write(event: Event) -> None:
        print(json.dumps(event, default=repr) if as_json else _readable(None, "", event), file=stream, flush=True)

    return _LazyLogger(cache(make), write, LEVELS[level])


class CapturedLog:
    """Keeps the last 10,000 log events, oldest first: the events of `logger`, and the arguments of `keep`."""

    def __init__(self, level: str = "info") -> None:
        self._entries: deque[Mapping[str, Any]] = deque(maxlen=_KEPT_ENTRIES_MAX)
        self.logger: Logger = _LazyLogger(cache(self._make), self.keep, LEVELS[level])

    @property
    def entries(self) -> list[Mapping[str, Any]]:
        return list(self._entries)

    def keep(self, entry: Mapping[str, Any]) -> None:
        self._entries.append(entry)

    def _make(self) -> Logger:
        import structlog

        def keep(logger: Any, method: str, event: Event) -> Event:
            self.keep(dict(event))
            raise structlog.DropEvent

        return _logger(structlog.PrintLogger(), keep)


class _LazyLogger:
    """Makes its logger when it logs the first event, because importing structlog takes longer than starting a broker,
    and a healthy broker logs little. Calls `write` while no file descriptor is left for that import.
    """

    def __init__(
        self,
        make: Callable[[], Logger],
        write: Callable[[Event], object],
        level: int,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        self._make = make
        self._write = write
        self._level = level
        self._facts = facts or {}

    def bind(self, **facts: Any) -> Logger:
        return _LazyLogger(self._make, self._write, self._level, {**self._facts, **facts})

    def debug(self, event: str, /, **facts: Any) -> object:
        return self._log("debug", event, facts) if self._level <= LEVELS["debug"] else None

    def info(self, event: str, /, **facts: Any) -> object:
        return self._log("info", event, facts) if self._level <= LEVELS["info"] else None

    def warning(self, event: str, /, **facts: Any) -> object:
        return self._log("warning", event, facts) if self._level <= LEVELS["warning"] else None

    def error(self, event: str, /, **facts: Any) -> object:
        return self._log("error", event, facts)

    def _log(self, level: str, event: str, facts: dict[str, Any]) -> object:
        all_facts = {**self._facts, **facts}
        try:
            logger = self._make()
        except (OSError, ImportError):
            return self._write(_without_structlog(level, event, all_facts))
        return getattr(logger, level)(event, **all_facts)


def _without_structlog(level: str, event: str, facts: dict[str, Any]) -> Event:
    """Return the event as structlog's processors would make it."""
    entry = {**facts, "event": event, "level": level}
    entry["timestamp"] = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    return _with_traceback(None, level, entry)


def _with_traceback(logger: Any, method: str, event: Event) -> Event:
    """Replace the exception `exc_info` of an event by its traceback, `exception`."""
    error = event.pop("exc_info", None)
    if isinstance(error, BaseException):
        event["exception"] = _traceback(error)
    return event


def _traceback(error: BaseException) -> str:
    try:
        return "".join(format_exception(error)).rstrip()
    except (OSError, ImportError):
        # Python 3.13 imports a module to read source lines, and no file descriptor may be left for it.
        frames = [
            f'  File "{f.f_code.co_filename}", line {n}, in {f.f_code.co_name}' for f, n in walk_tb(error.__traceback__)
        ]
        last = "".join(TracebackException(type(error), error, None).format_exception_only()).rstrip()
        return "\n".join(["Traceback (most recent call last):", *frames, last])


def _logger(sink: object, renderer: Callable[[Any, str, Event], Any]) -> Logger:
    import structlog

    logger = structlog.wrap_logger(
        sink,
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _with_traceback,
            renderer,
        ],
        wrapper_class=structlog.BoundLogger,
        context_class=dict,
    )
    return cast(Logger, logger.bind())


def _readable(logger: Any, method: str, event: Event) -> str:
    """Format an event as `2026-11-21T07:44:02Z warning  the event  name=value …`, with a traceback on its own lines."""
    time, level, text = event.pop("timestamp"), event.pop("level"), event.pop("event")
    traceback = event.pop("exception", None)
    line = "  ".join([time, f"{level:7}", str(text), *([_facts(event)] if event else [])])
    return line if traceback is None else f"{line}\n{traceback}"


def _facts(event: Event) -> str:
    return " ".join(f"{name}={value if _plain(value) else repr(value)}" for name, value in event.items())


def _plain(value: object) -> bool:
    return not isinstance(value, str) or (value.isprintable() and " " not in value and value != "")
