"""Topics of the bench: created before a run and deleted after it, so that the disk has the data of one run only."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.ready import wait_for_metadata
from odradek.client import Client
from odradek.client.client import parse_address
from odradek_wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from odradek_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

PARTITIONS = 3
_DELETE_FILES_S = 0.5
_TIMEOUT_MS = 120_000
_numbers = itertools.count()


@contextmanager
def topic(address: str, *, replicas: int = 1) -> Iterator[str]:
    """Create a topic of three partitions; the end of the block deletes it.

    Waits until its files are deleted, so that the next run has the memory of their page cache.
    """
    name = f"bench-{os.getpid()}-{next(_numbers)}"
    create(address, [name], replicas=replicas)
    wait_for_metadata(parse_address(address))
    try:
        yield name
    finally:
        delete(address, [name])
        time.sleep(_DELETE_FILES_S)


def create(address: str, names: list[str], *, partitions: int = PARTITIONS, replicas: int = 1) -> None:
    """Create topics with one request."""
    send([CreateTopicsRequest.CreatableTopic(name, partitions, replicas) for name in names], address)


def create_on(address: str, name: str, partitions: int, brokers: list[int]) -> None:
    """Create a topic with all partitions on these brokers, the leader first."""
    assigned = [CreateTopicsRequest.CreatableReplicaAssignment(index, list(brokers)) for index in range(partitions)]
    send([CreateTopicsRequest.CreatableTopic(name, -1, -1, assigned)], address)


def send(wanted: list[CreateTopicsRequest.CreatableTopic], address: str) -> None:
    """Send CreateTopics, and assert that every topic was created."""
    with Client(address, timeout_s=_TIMEOUT_MS / 1000) as client:
        response = client.call_controller(CreateTopicsRequest(wanted, _TIMEOUT_MS), CreateTopicsResponse)
    refused = [result for result in response.topics if result.error_code]
    assert not refused, refused[0]


def delete(address: str, names: list[str]) -> None:
    """Delete topics with one request, by name."""
    states = [DeleteTopicsRequest.DeleteTopicState(name) for name in names]
    with Client(address, timeout_s=_TIMEOUT_MS / 1000) as client:
        request = DeleteTopicsRequest(states, topic_names=list(names), timeout_ms=_TIMEOUT_MS)
        client.call_controller(request, DeleteTopicsResponse)
