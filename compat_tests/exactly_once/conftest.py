"""The broker of these tests, which aborts timed-out transactions sooner than the broker of the other tests."""

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
    """The bootstrap address of this broker."""
    return broker.bootstrap_servers
