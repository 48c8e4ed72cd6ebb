"""A configuration is complete and possible, or it is refused with a sentence for the person who wrote it."""

from typing import Any

import pytest

from odradek_pipeline.config import ConfigError, PipelineConfig

_GIVEN: dict[str, Any] = {
    "bootstrap_servers": "127.0.0.1:9092",
    "input_topic": "views",
    "output_topic": "counts",
    "output_directory": "/tmp/counts",
    "checkpoint_directory": "/tmp/checkpoint",
}
_THREE_TOPICS = "the topics for input, output and rejected records must be three different ones"


def test_what_is_not_given_has_a_default() -> None:
    config = PipelineConfig(**_GIVEN)

    assert (config.rejected_topic, config.window_ms, config.lateness_ms) == ("views.rejected", 60_000, 30_000)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"input_topic": " "}, "input_topic is empty"),
        ({"bootstrap_servers": ""}, "bootstrap_servers is empty"),
        ({"output_topic": "views"}, "the topics for input, output and rejected records must be three different ones"),
        (
            {"rejected_topic": "counts"},
            "the topics for input, output and rejected records must be three different ones",
        ),
        ({"checkpoint_directory": "/tmp/counts/"}, "output and checkpoint need a directory each"),
        ({"window_ms": 0}, "window_ms must be positive, not 0"),
        ({"trigger_ms": -1}, "trigger_ms must be positive, not -1"),
        ({"lateness_ms": -1}, "lateness_ms must not be negative, but is -1"),
        ({"max_offsets_per_trigger": 0}, "max_offsets_per_trigger must be positive, not 0"),
        ({"starting_offsets": "yesterday"}, "starting_offsets is earliest or latest, not yesterday"),
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        PipelineConfig(**{**_GIVEN, **wrong})

    assert str(refused.value) == sentence
