"""A SparkSession that can talk to Kafka.

Owns what a session of ours needs of Spark: the connector, UTC, few shuffle partitions, silence. Leaves to Spark's own
configuration (spark-defaults.conf, spark-submit) everything that a user has set there, the master included.
"""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyspark
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]  # it ships no types
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from odradek_pipeline.jars import cached_jars, connector_coordinates, fetch_jars


class SessionFailed(Exception):
    """Spark did not start: no Java, no such master, a setting that it refuses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionConfig:
    """`master` as Spark takes it; `jars` are the connector's (empty: found by `connector_settings`); `settings` are
    Spark's own and win over ours."""

    master: str = "local[*]"
    jars: tuple[Path, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    app_name: str = "odradek-pipeline"


_LOGGING = Path(__file__).with_name("log4j2.properties")

# For a streaming job on one machine. Time zone: windows are computed and rendered in UTC wherever the driver runs.
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
}


def connector_settings(jars: tuple[Path, ...] = ()) -> dict[str, str]:
    """The setting that brings the connector: jars that are given, else cached ones, else fetched by Maven where there
    is one, else left to Spark (`spark.jars.packages`), which fetches them at each start."""
    found = list(jars) or cached_jars(pyspark.__version__)
    if not found and shutil.which("mvn"):
        found = fetch_jars(pyspark.__version__)
    if found:
        return {"spark.jars": ",".join(str(jar) for jar in found)}
    return {"spark.jars.packages": connector_coordinates(pyspark.__version__)}


def open_session(config: SessionConfig) -> SparkSession:
    """The session of this process. A local one binds to loopback only, unless SPARK_LOCAL_IP says otherwise.

    Raises SessionFailed, and JarsUnavailable when Maven cannot fetch the connector.
    """
    if config.master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(config.master).appName(config.app_name)
    for name, value in {**_SETTINGS, **connector_settings(config.jars), **config.settings}.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except Py4JJavaError as failure:
        raise SessionFailed(str(failure.java_exception.getMessage()).splitlines()[0]) from failure
    except (PySparkException, Py4JError) as failure:
        raise SessionFailed(str(failure).splitlines()[0]) from failure
