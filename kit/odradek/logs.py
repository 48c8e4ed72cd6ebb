"""The broker's log: a structlog logger of its own, readable or JSON, or kept in memory for a test.

structlog is used unconfigured: a logger carries its processors with it, so nothing in the user's process changes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, MutableMapping
from typing import Any, TextIO, cast

import structlog
from structlog.typing import Processor, WrappedLogger

from odradek_broker.report import Logger

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_KEPT_ENTRIES_MAX = 10_000


def stream_logger(stream: TextIO, *, as_json: bool, level: str = "info") -> Logger:
    """A line per event: for a person, or one JSON document for a program."""
    renderer: Processor = (
        structlog.processors.JSONRenderer()
        if as_json
        else structlog.dev.ConsoleRenderer(colors=stream.isatty(), pad_event_to=0)
    )
    return _logger(structlog.PrintLogger(stream), level, renderer)


class CapturedLog:
    """The last 10,000 events of a broker, oldest first."""

    def __init__(self, level: str = "info") -> None:
        self._entries: deque[Mapping[str, Any]] = deque(maxlen=_KEPT_ENTRIES_MAX)
        self.logger = _logger(structlog.PrintLogger(), level, self._keep)

    @property
    def entries(self) -> list[Mapping[str, Any]]:
        return list(self._entries)

    def _keep(self, logger: WrappedLogger, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        self._entries.append(dict(event))
        raise structlog.DropEvent


def _logger(sink: WrappedLogger, level: str, renderer: Processor) -> Logger:
    processors: list[Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if not isinstance(renderer, structlog.dev.ConsoleRenderer):
        processors.append(structlog.processors.format_exc_info)
    logger = structlog.wrap_logger(
        sink,
        processors=[*processors, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        context_class=dict,
        cache_logger_on_first_use=True,
    )
    return cast(Logger, logger)
