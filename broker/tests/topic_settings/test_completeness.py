"""No topic setting of Kafka is forgotten: a test shows what it does, or it is listed among those that do nothing."""

from __future__ import annotations

import json
from pathlib import Path

from broker.tests.topic_settings.effects import EFFECTS, EFFECTS_IN_3_9

from odradek_controller.configs.in_use import TOPIC_WITHOUT_EFFECT
from odradek_controller.configs.table import Release, Resource, definitions

FACTS = Path(__file__).parents[3] / "controller" / "tests" / "facts"

SHOWN_BY_ONE_BROKER = {effect.setting for effect in (*EFFECTS, *EFFECTS_IN_3_9)}
SHOWN_BY_SEVERAL = {
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    "min.insync.replicas",
    "unclean.leader.election.enable",
}
"""Settings with a test in `test_replicated.py`."""


def test_every_setting_that_kafka_describes_is_seen_to_work_or_listed_as_without_effect() -> None:
    for version, release in (("4.3.0", Release.KAFKA_4_3), ("3.9.1", Release.KAFKA_3_9)):
        facts = {row["name"] for row in json.loads((FACTS / f"configs-{version}.json").read_text())["topic"]}
        assert facts == {name for name, row in definitions(Resource.TOPIC, release).items() if not row.internal}
        assert facts - SHOWN_BY_ONE_BROKER - SHOWN_BY_SEVERAL - TOPIC_WITHOUT_EFFECT.keys() == set()


def test_what_is_listed_as_without_effect_exists_and_has_none() -> None:
    known = {name for release in Release for name in definitions(Resource.TOPIC, release)}
    assert TOPIC_WITHOUT_EFFECT.keys() - known == set()
    assert TOPIC_WITHOUT_EFFECT.keys() & (SHOWN_BY_ONE_BROKER | SHOWN_BY_SEVERAL) == set()


def test_no_effect_is_shown_twice() -> None:
    assert len(EFFECTS) == len({effect.setting for effect in EFFECTS})
    assert set() == SHOWN_BY_ONE_BROKER & SHOWN_BY_SEVERAL
