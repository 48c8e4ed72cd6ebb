"""The settings of the job: their defaults, and the errors for invalid ones."""

from typing import Any

import pytest

from odradek_pipeline.pipeline_config import PipelineConfig, PipelineConfigError

_REQUIRED: dict[str, Any] = {
    "bootstrap_servers": "127.0.0.1:9092",
    "input_topic": "views",
    "output_topic": "counts",
    "output_directory": "/tmp/counts",
    "checkpoint_directory": "/tmp/checkpoint",
}
_TOPICS = "input, output and rejected topic must differ, got"


def test_a_missing_setting_has_its_default() -> None:
    config = PipelineConfig(**_REQUIRED)

    assert (config.rejected_topic, config.window_ms, config.lateness_ms) == ("views.rejected", 60_000, 30_000)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"input_topic": " "}, "input_topic must not be empty"),
        ({"bootstrap_servers": ""}, "bootstrap_servers must not be empty"),
        ({"output_topic": "views"}, f"{_TOPICS} views, views and views.rejected"),
        ({"rejected_topic": "counts"}, f"{_TOPICS} views, counts and counts"),
        (
            {"checkpoint_directory": "/tmp/counts/"},
            "output and checkpoint directory must differ, got /tmp/counts for both",
        ),
        ({"window_ms": 0}, "window_ms must be at least 1, got 0"),
        ({"trigger_ms": -1}, "trigger_ms must be at least 1, got -1"),
        ({"lateness_ms": -1}, "lateness_ms must be at least 0, got -1"),
        ({"max_offsets_per_trigger": 0}, "max_offsets_per_trigger must be at least 1, got 0"),
        ({"starting_offsets": "yesterday"}, "starting_offsets must be earliest or latest, got yesterday"),
    ],
)
def test_an_invalid_setting_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(PipelineConfigError) as refused:
        PipelineConfig(**{**_REQUIRED, **wrong})

    assert str(refused.value) == message
