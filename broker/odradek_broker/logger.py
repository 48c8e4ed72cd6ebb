"""The operator's ear: what a broker's parts log to. structlog's bound loggers fit; the kit passes its own.

Nothing here configures logging: in a user's process nothing global is touched.
"""

from __future__ import annotations

from typing import Any, Protocol

TEXT_MAX = 200
"""Characters of one fact. Clients choose the names of clients, groups and topics, of up to 32,767 bytes."""


class Logger(Protocol):
    """An event in a few words, and facts as keywords."""

    def bind(self, **facts: Any) -> Logger: ...

    def debug(self, event: str, /, **facts: Any) -> object: ...

    def info(self, event: str, /, **facts: Any) -> object: ...

    def warning(self, event: str, /, **facts: Any) -> object: ...

    def error(self, event: str, /, **facts: Any) -> object: ...


class ShortLines:
    """A `Logger` that passes every line on with the texts among its facts cut at `TEXT_MAX` characters."""

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
    """The text, or its first `TEXT_MAX` characters and how many it has."""
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}… ({len(text)} characters)"


def _cut(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: _cut_value(value) for name, value in facts.items()}


def _cut_value(value: Any) -> Any:
    if isinstance(value, str):
        return cut(value)
    if isinstance(value, list | tuple):
        return [_cut_value(each) for each in value]
    return value
