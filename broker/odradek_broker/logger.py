"""The logger interface of a broker's parts; structlog's bound loggers have it.

Nothing here configures logging, because a broker must not change global state of the user's process.
"""

from __future__ import annotations

from typing import Any, Protocol

TEXT_MAX = 200
"""The limit of one fact in characters. Clients choose names of clients, groups and topics of up to 32,767 bytes."""


class Logger(Protocol):
    """An event is a fixed phrase, its facts are keywords."""

    def bind(self, **facts: Any) -> Logger: ...

    def debug(self, event: str, /, **facts: Any) -> object: ...

    def info(self, event: str, /, **facts: Any) -> object: ...

    def warning(self, event: str, /, **facts: Any) -> object: ...

    def error(self, event: str, /, **facts: Any) -> object: ...


class ShortLines:
    """A `Logger` that cuts the texts among the facts of each line at `TEXT_MAX` characters."""

    __slots__ = ("_log",)

    def __init__(self, log: Logger) -> None:
        self._log = log

    def bind(self, **facts: Any) -> Logger:
        return ShortLines(self._log.bind(**_cut(facts)))

    def debug(self, event: str, /, **facts: Any) -> object:
        return self._log.debug(event, **_cut(facts))

    def info(self, event: str, /, **facts: Any) -> object:
        return self._log.info(event, **_cut(facts))

    def warning(self, event: str, /, **facts: Any) -> object:
        return self._log.warning(event, **_cut(facts))

    def error(self, event: str, /, **facts: Any) -> object:
        return self._log.error(event, **_cut(facts))


def cut(text: str) -> str:
    """Return the text, or its first `TEXT_MAX` characters and its length."""
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}… ({len(text)} characters)"


def _cut(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: _cut_value(value) for name, value in facts.items()}


def _cut_value(value: Any) -> Any:
    if isinstance(value, str):
        return cut(value)
    if isinstance(value, list | tuple):
        return [_cut_value(each) for each in value]
    return value
