"""The scenarios on a whole broker, over real connections, with a manual clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.tests.groups.scenario_sockets import Sockets

from odradek_wire.messages.create_topics import CreateTopicsRequest
from odradek_wire.messages.find_coordinator import FindCoordinatorRequest


def test_odradek_responds_as_written(scenario: str, play: Any, start_node: Callable[..., Any]) -> None:
    running = start_node(group_min_session_timeout_ms="1", group_max_size="3")

    def pass_time(ms: int) -> None:
        async def advance() -> None:
            running.node.broker.clock.advance_timeouts(ms)

        running.call(advance())

    sockets = Sockets(running.node.port, pass_time=pass_time)
    setup = Sockets(running.node.port)
    setup.ask("setup", CreateTopicsRequest([CreateTopicsRequest.CreatableTopic("t", 3, 1)], timeout_ms=10_000), 5)
    setup.ask("setup", FindCoordinatorRequest(key="g"), 3)
    try:
        play(sockets).play(scenario)
    finally:
        sockets.close()
        setup.close()
