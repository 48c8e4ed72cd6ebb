"""The broker of these tests, which checks for timed-out transactions very often, unlike that of the other tests."""

from collections.abc import Iterator

import pytest

from compat_tests.brokers import Broker, new_broker

CONFIG = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}


@pytest.fixture(scope="package")
def broker(broker_name: str) -> Iterator[Broker]:
    """The broker that these tests share."""
    shared = new_broker(broker_name, CONFIG)
    try:
        shared.start()
        yield shared
    finally:
        shared.close()


@pytest.fixture(scope="package")
def servers(broker: Broker) -> str:
    """Its bootstrap address."""
    return broker.bootstrap_servers
