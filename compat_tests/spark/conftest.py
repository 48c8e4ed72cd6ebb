"""One small Spark per test process, and the fixtures of these tests."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from compat_tests.spark.job import Job

Jobs = Callable[..., Job]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark on two threads of this machine, on loopback, with the connector's jars."""
    found = subprocess.run(
        [sys.executable, "-m", "odradek_pipeline.connector_jars", pyspark.__version__],
        check=True,
        capture_output=True,
        text=True,
    )
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    settings = {
        "spark.jars": ",".join(map(str, sorted(Path(found.stdout.strip()).glob("*.jar")))),
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.sql.streaming.stopTimeout": "60s",
    }
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # `python3` in PATH may be another version
    builder = SparkSession.builder.master("local[2]").appName("odradek-compat")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("FATAL")
    yield session
    session.stop()


@pytest.fixture(params=["admin-client", "consumer-group"])
def offset_fetching(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    """Both ways in which Spark's driver gets offsets: by the admin client (default), or as a member of a group."""
    setting = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
    spark.conf.set(setting, str(request.param == "consumer-group").lower())
    yield request.param
    spark.conf.unset(setting)


@pytest.fixture
def job_on(spark: SparkSession, tmp_path: Path) -> Callable[[str], Job]:
    """A function that returns a job's environment for a broker address."""
    return partial(Job, spark, tmp_path)


@pytest.fixture
def job(job_on: Callable[[str], Job], servers: str) -> Job:
    """A job's environment on the shared broker."""
    return job_on(servers)
