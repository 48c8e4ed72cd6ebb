"""What a user decides about the job, checked before anything starts.

Owns defaults and limits; leaves to `session` what concerns Spark itself (master, jars, memory).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

_NOTHING: Mapping[str, str] = MappingProxyType({})


class ConfigError(ValueError):
    """A setting that cannot be; the message is for the person who wrote it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineConfig:
    """Where the job reads and writes, and how it cuts time. Directories are any path that Spark's file systems know.

    `window_ms`            length of a window of event time; windows begin at multiples of it since the epoch (UTC)
    `lateness_ms`          how much older than the newest view a view may be and still be counted; a window's counts
                           are final, and written, when the newest view is this much past the window's end
    `ahead_ms`             how far a view's own time may be ahead of its Kafka record's timestamp: one clock that runs
                           wild would otherwise close every window; such records are rejected
    `trigger_ms`           how often a micro-batch is begun while the job runs on
    `max_offsets_per_trigger`  bounds a micro-batch, over all partitions
    `until_caught_up`      end when everything that was in the topic at the start has been processed
    `kafka_options`        further options of the Kafka clients (security, timeouts), under Kafka's names
    """

    bootstrap_servers: str
    input_topic: str
    output_topic: str
    output_directory: str
    checkpoint_directory: str
    rejected_topic: str = ""
    window_ms: int = 60_000
    lateness_ms: int = 30_000
    ahead_ms: int = 3_600_000
    trigger_ms: int = 2_000
    max_offsets_per_trigger: int | None = None
    starting_offsets: Literal["earliest", "latest"] = "earliest"
    fail_on_data_loss: bool = True
    until_caught_up: bool = False
    kafka_options: Mapping[str, str] = field(default_factory=lambda: _NOTHING)

    def __post_init__(self) -> None:
        if not self.rejected_topic:
            object.__setattr__(self, "rejected_topic", f"{self.input_topic}.rejected")
        for name in ("bootstrap_servers", "input_topic", "output_topic", "output_directory", "checkpoint_directory"):
            if not getattr(self, name).strip():
                raise ConfigError(f"{name} is empty")
        if len({self.input_topic, self.output_topic, self.rejected_topic}) != 3:
            raise ConfigError("the topics for input, output and rejected records must be three different ones")
        if self.output_directory.rstrip("/") == self.checkpoint_directory.rstrip("/"):
            raise ConfigError("output and checkpoint need a directory each")
        for name in ("window_ms", "trigger_ms"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} must be positive, not {getattr(self, name)}")
        for name in ("lateness_ms", "ahead_ms"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must not be negative, but is {getattr(self, name)}")
        if self.max_offsets_per_trigger is not None and self.max_offsets_per_trigger <= 0:
            raise ConfigError(f"max_offsets_per_trigger must be positive, not {self.max_offsets_per_trigger}")
        if self.starting_offsets not in ("earliest", "latest"):
            raise ConfigError(f"starting_offsets is earliest or latest, not {self.starting_offsets}")
