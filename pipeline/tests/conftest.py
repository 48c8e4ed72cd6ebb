"""One Spark for each test process, with the settings of the job's own sessions."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odradek_pipeline.session import SessionConfig, open_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Local Spark that can talk to Kafka."""
    warehouse: Path = tmp_path_factory.mktemp("warehouse")
    session = open_session(SessionConfig(master="local[2]", settings={"spark.sql.warehouse.dir": str(warehouse)}))
    yield session
    session.stop()
