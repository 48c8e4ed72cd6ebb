"""The operator's ear: what a broker's parts log to. structlog's bound loggers fit; the kit passes its own.

Nothing here configures logging: in a user's process nothing global is touched.
"""

from __future__ import annotations

from typing import Any, Protocol


class Logger(Protocol):
    """An event in a few words, and facts as keywords."""

    def bind(self, **facts: Any) -> Logger: ...

    def debug(self, event: str, /, **facts: Any) -> object: ...

    def info(self, event: str, /, **facts: Any) -> object: ...

    def warning(self, event: str, /, **facts: Any) -> object: ...

    def error(self, event: str, /, **facts: Any) -> object: ...
