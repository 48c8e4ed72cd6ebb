"""Where the log's few sentences to the operator go: any structlog logger fits, the standard library is the default.

Nothing here configures logging; a user's process is left as it is.
"""

from __future__ import annotations

from typing import Protocol


class Reporter(Protocol):
    """Structured sentences: an event and its fields."""

    def info(self, event: str, /, **fields: object) -> object: ...

    def warning(self, event: str, /, **fields: object) -> object: ...

    def error(self, event: str, /, **fields: object) -> object: ...


class StandardReporter:
    """Writes `event key=value …` to the standard library's logger `odradek_log`."""

    def __init__(self) -> None:
        import logging  # for those only who bring no logger of their own

        self._logger = logging.getLogger("odradek_log")

    def info(self, event: str, /, **fields: object) -> None:
        self._logger.info(_sentence(event, fields))

    def warning(self, event: str, /, **fields: object) -> None:
        self._logger.warning(_sentence(event, fields))

    def error(self, event: str, /, **fields: object) -> None:
        self._logger.error(_sentence(event, fields))


def _sentence(event: str, fields: dict[str, object]) -> str:
    return " ".join([event, *(f"{name}={value}" for name, value in fields.items())])
