"""One Spark for each test process, with the settings of the job's sessions, and the brokers for the job."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odradek_pipeline.spark_session import SessionConfig, open_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark session with the Kafka connector."""
    warehouse: Path = tmp_path_factory.mktemp("warehouse")
    session = open_session(SessionConfig(master="local[2]", settings={"spark.sql.warehouse.dir": str(warehouse)}))
    yield session
    session.stop()


@pytest.fixture(scope="module", params=["odradek", pytest.param("kafka-4.3.0", marks=pytest.mark.peers)])
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a broker: Odradek, or Kafka with the marker `peers`."""
    if request.param == "odradek":
        from odradek import Cluster

        with Cluster() as odradek:
            yield odradek.bootstrap_servers
    else:
        from odradek_peers import ApacheKafka

        with ApacheKafka() as kafka:
            yield kafka.bootstrap_servers
