"""The settings of the job, checked before it starts.

Owns their defaults and limits; `spark_session` owns the settings of Spark (master, jars, memory).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

_NO_OPTIONS: Mapping[str, str] = MappingProxyType({})


class PipelineConfigError(ValueError):
    """A setting of the job that is invalid; the message is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineConfig:
    """The topics, directories and windows of the job. A directory is any path that Spark's file systems have.

    `window_ms`            length of a window of event time; windows begin at multiples of it since the epoch (UTC)
    `lateness_ms`          how much older than the newest view a view may be and still count; the counts of a window
                           are final, and written, when the newest view is this much later than the window's end
    `max_ahead_ms`         how far a view's time may be ahead of its record's timestamp; views that are further ahead
                           are rejected, because a single wrong clock would make every window final
    `trigger_ms`           time between two micro-batches
    `max_offsets_per_trigger`  maximum number of records in a micro-batch, over all partitions
    `until_caught_up`      end when the records that were in the topic at the start are processed
    `kafka_options`        further settings of the Kafka clients (security, timeouts), with Kafka's names
    """

    bootstrap_servers: str
    input_topic: str
    output_topic: str
    output_directory: str
    checkpoint_directory: str
    rejected_topic: str = ""
    window_ms: int = 60_000
    lateness_ms: int = 30_000
    max_ahead_ms: int = 3_600_000
    trigger_ms: int = 2_000
    max_offsets_per_trigger: int | None = None
    starting_offsets: Literal["earliest", "latest"] = "earliest"
    fail_on_data_loss: bool = True
    until_caught_up: bool = False
    kafka_options: Mapping[str, str] = field(default_factory=lambda: _NO_OPTIONS)

    def __post_init__(self) -> None:
        if not self.rejected_topic:
            object.__setattr__(self, "rejected_topic", f"{self.input_topic}.rejected")
        for name in ("bootstrap_servers", "input_topic", "output_topic", "output_directory", "checkpoint_directory"):
            if not getattr(self, name).strip():
                raise PipelineConfigError(f"{name} must not be empty")
        if len({self.input_topic, self.output_topic, self.rejected_topic}) != 3:
            raise PipelineConfigError(
                f"input, output and rejected topic must differ, got {self.input_topic}, {self.output_topic} and"
                f" {self.rejected_topic}"
            )
        if self.output_directory.rstrip("/") == self.checkpoint_directory.rstrip("/"):
            raise PipelineConfigError(
                f"output and checkpoint directory must differ, got {self.output_directory} for both"
            )
        for name in ("window_ms", "trigger_ms"):
            if getattr(self, name) <= 0:
                raise PipelineConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("lateness_ms", "max_ahead_ms"):
            if getattr(self, name) < 0:
                raise PipelineConfigError(f"{name} must be at least 0, got {getattr(self, name)}")
        if self.max_offsets_per_trigger is not None and self.max_offsets_per_trigger <= 0:
            raise PipelineConfigError(f"max_offsets_per_trigger must be at least 1, got {self.max_offsets_per_trigger}")
        if self.starting_offsets not in ("earliest", "latest"):
            raise PipelineConfigError(f"starting_offsets must be earliest or latest, got {self.starting_offsets}")
