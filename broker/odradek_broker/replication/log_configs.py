"""The configurations of logs. Topics with equal overrides share one `LogConfig`, because there may be thousands."""

from __future__ import annotations

from collections.abc import Mapping

from odradek_broker.config import BrokerConfig
from odradek_log.log_config import LogConfig


class LogConfigs:
    """The log configurations of one broker; call `use` before the first `of`."""

    def __init__(self) -> None:
        self.broker_config: BrokerConfig | None = None
        self._by_overrides: dict[tuple[tuple[str, str], ...], LogConfig] = {}

    def use(self, config: BrokerConfig) -> None:
        """Derive the configurations from this broker configuration."""
        self.broker_config = config
        self._by_overrides.clear()

    def of(self, overrides: Mapping[str, str]) -> LogConfig:
        """Return the configuration of a topic's logs; `overrides` are the topic's own settings."""
        assert self.broker_config is not None
        key = tuple(sorted(overrides.items()))
        config = self._by_overrides.get(key)
        if config is None:
            config = self._by_overrides[key] = self.broker_config.log_config(overrides)
        return config
