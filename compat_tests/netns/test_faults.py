"""Three brokers and ZooKeeper as processes on hosts of their own; whatever befalls one of them, nothing is lost,
reordered, repeated or unseen, and writing goes on soon."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from compat_tests.netns.checks import acknowledged_by_another, broken_rules
from compat_tests.netns.history import Place
from compat_tests.netns.hosts import missing
from compat_tests.netns.system import SESSION_S, System, Workload

pytestmark = pytest.mark.netns

ROUNDS = int(os.environ.get("ODRADEK_ROUNDS", "1"))
WRITES_AGAIN_S = 2.0
HELD_S = 3.0
Fault = Callable[[System, int], AbstractContextManager[None]]


@pytest.fixture(scope="module", params=range(ROUNDS), ids=lambda seed: f"round-{seed}")
def system(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    if reason := missing():
        pytest.fail(reason)
    seed: int = request.param
    with System(tmp_path_factory.mktemp("system"), seed) as system:
        yield system


@pytest.fixture
def workload(system: System, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Workload]:
    workload = Workload(system, tmp_path / "history", f"t{time.monotonic_ns()}")
    yield workload
    workload.close()


FAULTS: list[Fault] = [
    System.killed,
    System.stopped,
    System.isolated,
    System.mute,
    System.deaf,
    System.without_zookeeper,
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_writing_goes_on_without_a_leader(system: System, workload: Workload, fault: Fault) -> None:
    probed, busy = workload.topic("probed", 3), workload.topic("busy", 3)
    workload.start("probe", probed)
    for kind in ("produce", "produce", "read", "watch", "begin-anew"):
        workload.start(kind, busy)
    workload.until(lambda history: len(history) > 500, "everybody is at work")
    for partition in range(2):
        took_s = writing_goes_on(system, workload, fault, (probed, partition))
        print(f"{fault.__name__}: {took_s:.2f} s beyond the session's timeout without writes")
        assert took_s < WRITES_AGAIN_S
    assert_nothing_broken(workload)


def writing_goes_on(system: System, workload: Workload, fault: Fault, place: Place) -> float:
    """Something befalls the leader of a partition, until a while after another one leads. Returns how long it took
    until that one had acknowledged a record, less the session's timeout."""
    topic, partition = place
    leader = system.members.leaders(topic)[partition]
    led, begin = workload.led_by(leader), time.monotonic()
    with fault(system, leader):
        workload.until(
            lambda history: acknowledged_by_another(history, place, leader, begin) is not None, "another leads"
        )
        time.sleep(HELD_S)
    system.members.until(workload.is_whole, "all are in sync")
    if fault is not System.killed:
        workload.deposed(fault.__name__, leader, led, begin)
    acknowledged = acknowledged_by_another(workload.history(), place, leader, begin)
    assert acknowledged is not None
    return acknowledged - begin - SESSION_S


def assert_nothing_broken(workload: Workload) -> None:
    workload.stop_all()
    workload.read_final_logs()
    broken = broken_rules(workload.history())
    assert not broken, "\n".join([f"{len(broken)} broken rules:", *broken[:20]])
