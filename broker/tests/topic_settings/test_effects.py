"""Every setting that one broker alone can show takes effect, on whichever way the topic came by it."""

from __future__ import annotations

from typing import Any

import pytest
from broker.tests.manual_clock import ManualClock
from broker.tests.topic_settings.effects import EFFECTS, EFFECTS_IN_3_9, Effect
from broker.tests.topic_settings.world import World

from odradek_controller.configs.synonyms import TOPIC_SYNONYMS

ALL = [*EFFECTS, *EFFECTS_IN_3_9]
WITH_DEFAULTS_OF_BROKERS = [effect for effect in ALL if effect.setting in TOPIC_SYNONYMS]


@pytest.fixture
def make_world(start_node: Any, connect: Any) -> Any:
    async def make(effect: Effect, **static: str) -> World:
        settings = {name.replace(".", "_"): value for name, value in {**effect.static, **static}.items()}
        clock = ManualClock()
        node = await start_node(clock=clock, **settings)
        return World(node, await connect(node), clock)

    return make


def default_of(effect: Effect) -> str:
    """The setting of brokers that a topic falls back to first."""
    return TOPIC_SYNONYMS[effect.setting][0][0]


@pytest.mark.parametrize("effect", ALL, ids=str)
async def test_it_takes_effect_from_the_topics_creation(make_world: Any, effect: Effect) -> None:
    world = await make_world(effect)
    await world.create({**effect.besides, effect.setting: effect.value})
    assert await effect.experiment(world) == effect.seen


@pytest.mark.parametrize("effect", ALL, ids=str)
async def test_it_takes_effect_when_it_is_altered_and_none_when_that_is_taken_back(
    make_world: Any, effect: Effect
) -> None:
    world = await make_world(effect)
    await world.create(effect.besides)
    seen = [await effect.experiment(world)]
    for value in (effect.value, None):
        await world.alter_topic(effect.setting, value)
        seen.append(await effect.experiment(world))
    assert seen == [effect.without, effect.seen, effect.without]


@pytest.mark.parametrize("effect", WITH_DEFAULTS_OF_BROKERS, ids=str)
async def test_it_takes_effect_as_the_default_of_all_brokers_altered_while_they_run(
    make_world: Any, effect: Effect
) -> None:
    world = await make_world(effect)
    await world.create(effect.besides)
    seen = [await effect.experiment(world)]
    for value in (effect.value, None):
        await world.alter_all_brokers(default_of(effect), value)
        seen.append(await effect.experiment(world))
    assert seen == [effect.without, effect.seen, effect.without]


@pytest.mark.parametrize("effect", WITH_DEFAULTS_OF_BROKERS, ids=str)
async def test_it_takes_effect_as_the_default_of_the_brokers_file(make_world: Any, effect: Effect) -> None:
    world = await make_world(effect, **{default_of(effect): effect.value})
    await world.create(effect.besides)
    assert await effect.experiment(world) == effect.seen
