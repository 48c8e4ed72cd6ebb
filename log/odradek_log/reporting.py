"""The port for log messages: any structlog logger fits, the standard library's is the default.

Configures no logging.
"""

from __future__ import annotations

from typing import Protocol


class Reporter(Protocol):
    """A structured logger: an event and its fields."""

    def info(self, event: str, /, **fields: object) -> object: ...

    def warning(self, event: str, /, **fields: object) -> object: ...

    def error(self, event: str, /, **fields: object) -> object: ...


class StandardReporter:
    """Writes `event key=value …` to the standard library's logger `odradek_log`."""

    def __init__(self) -> None:
        import logging  # only if the caller passes no logger

        self._logger = logging.getLogger("odradek_log")

    def info(self, event: str, /, **fields: object) -> None:
        self._logger.info(_line(event, fields))

    def warning(self, event: str, /, **fields: object) -> None:
        self._logger.warning(_line(event, fields))

    def error(self, event: str, /, **fields: object) -> None:
        self._logger.error(_line(event, fields))


def _line(event: str, fields: dict[str, object]) -> str:
    return " ".join([event, *(f"{name}={value}" for name, value in fields.items())])
