"""Groups with members that join, leave and die while records arrive: every record is delivered."""

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from threading import Event, Thread
from typing import Any

import pytest
from confluent_kafka import Producer

from compat_tests.clients.members import MEMBERS, Member, RunningMember

_PARTITIONS = 6
_SECONDS = 90.0


class _Load:
    """A producer that writes to all partitions in turn until the test stops it."""

    def __init__(self, servers: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
        self._topic = topic
        self._stopped = Event()
        self._written: list[set[tuple[int, int]]] = [set()]
        self._thread = Thread(target=self._run, name="load")
        self._thread.start()

    def stop(self) -> set[tuple[int, int]]:
        """Stop the producer. Return partition and offset of every acknowledged record."""
        self._stopped.set()
        self._thread.join()
        return self._written[0]

    def _run(self) -> None:
        def acknowledged(error: object, message: Any) -> None:
            assert error is None, error
            self._written[0].add((message.partition(), message.offset()))

        number = 0
        # 100 records every 20 ms: the wait sets the rate of the load.
        while not self._stopped.wait(0.02):
            for _ in range(100):
                number += 1
                self._producer.produce(
                    self._topic, b"%d" % number, partition=number % _PARTITIONS, on_delivery=acknowledged
                )
            self._producer.poll(0)
        assert self._producer.flush(30) == 0


@pytest.fixture
def start_member(make_topic: Callable[..., str]) -> Iterator[Callable[..., RunningMember]]:
    """A function that starts members; the fixture ends those that the test leaves running."""
    with contextlib.ExitStack() as running:

        def start(kind: Member, servers: str, group: str, topic: str) -> RunningMember:
            member = kind.start(servers, group, topic)
            running.enter_context(member.process)
            return member

        yield start


def _read_reports_until(members: list[RunningMember], condition: Callable[[], bool]) -> None:
    """Read reports from the members in turn until the condition holds."""
    deadline = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < deadline, [(member.process.name, member.assigned) for member in members]
        for member in members:
            member.read_report(0.05)


def _assignment_is_complete(*members: RunningMember) -> bool:
    """Return whether every member has a partition, and all partitions have exactly one owner."""
    parts = [member.assigned for member in members]
    return all(parts) and sorted(each for part in parts for each in part) == list(range(_PARTITIONS))


def _all_delivered(records: set[tuple[int, int]], members: list[RunningMember]) -> bool:
    return records <= set().union(*(member.delivered for member in members))


@pytest.mark.parametrize(
    "kind", [pytest.param(each, marks=[pytest.mark.long] if each.name == "java-3.9.1" else []) for each in MEMBERS]
)
def test_every_record_is_delivered_while_members_join_leave_and_die(
    kind: Member, make_topic: Callable[..., str], start_member: Callable[..., RunningMember], servers: str
) -> None:
    topic = make_topic(partitions=_PARTITIONS)
    load = _Load(servers, topic)
    try:
        first = start_member(kind, servers, topic, topic)
        _read_reports_until([first], lambda: _assignment_is_complete(first) and bool(first.delivered))

        second = start_member(kind, servers, topic, topic)
        _read_reports_until([first, second], lambda: _assignment_is_complete(first, second) and bool(second.delivered))

        first.leave()
        _read_reports_until([second], lambda: _assignment_is_complete(second))

        third = start_member(kind, servers, topic, topic)
        _read_reports_until([second, third], lambda: _assignment_is_complete(second, third) and bool(third.delivered))

        second.kill()
        _read_reports_until([third], lambda: _assignment_is_complete(third))
    finally:
        written = load.stop()

    all_members = (first, second, third)
    _read_reports_until([third], lambda: written <= set().union(*(member.delivered for member in all_members)))
    third.leave()
    assert set().union(*(member.delivered for member in all_members)) == written


def test_members_of_different_libraries_share_one_group(
    make_topic: Callable[..., str], start_member: Callable[..., RunningMember], servers: str
) -> None:
    topic = make_topic(partitions=_PARTITIONS)
    load = _Load(servers, topic)
    try:
        members = [start_member(kind, servers, topic, topic) for kind in MEMBERS]
        _read_reports_until(members, lambda: _assignment_is_complete(*members))
        _read_reports_until(members, lambda: all(member.delivered for member in members))
    finally:
        written = load.stop()

    for member in members:
        # One by one: a member that has read its partition to the end reports nothing more.
        own = {record for record in written if record[0] in member.assigned}
        _read_reports_until([member], partial(_all_delivered, own, members))
    assert _all_delivered(written, members)
    assert all(len(member.assigned) == 1 for member in members)
