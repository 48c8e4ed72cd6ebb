"""The cluster that the tests of ZooKeeper mode share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from broker.tests.zookeeper.cluster import Connect, ThreeBrokers


@pytest.fixture
async def cluster(tmp_path: Path, connect: Connect) -> AsyncIterator[ThreeBrokers]:
    found = ThreeBrokers(tmp_path, connect)
    for broker in (1, 2, 3):
        await found.start(broker)
    yield found
    await found.end()
