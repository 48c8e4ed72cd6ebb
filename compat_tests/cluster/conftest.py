"""The clusters that the tests share, and Kafka's tools of both releases."""

from collections.abc import Iterator

import pytest
from odradek_peers import KAFKA_3_9, KAFKA_4_3, JavaTools

from compat_tests.cluster.clusters import BrokerCluster, running


@pytest.fixture(scope="module", params=["odradek", pytest.param("kafka", marks=pytest.mark.peers)])
def cluster(request: pytest.FixtureRequest) -> Iterator[BrokerCluster]:
    """Three brokers; a test leaves them all running. The runs with Kafka's cluster check the tests themselves."""
    with running(request.param) as made:
        yield made


@pytest.fixture(params=[KAFKA_4_3, pytest.param(KAFKA_3_9, marks=pytest.mark.long)])
def tools(request: pytest.FixtureRequest) -> JavaTools:
    """The tools of one release."""
    return JavaTools(request.param)
