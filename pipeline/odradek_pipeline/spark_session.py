"""A SparkSession with the Kafka connector.

Owns the settings that the job needs: the connector, UTC, few shuffle partitions, little logging. Spark's own
configuration (spark-defaults.conf, spark-submit) owns everything else.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyspark
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]  # it ships no types
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from odradek_pipeline.connector_jars import cached_jars, connector_coordinates, fetch_jars


class SessionFailed(Exception):
    """Spark did not start: without Java, with an unknown master, or with a setting that it refuses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionConfig:
    """The settings of a session.

    `master` is Spark's; `jars` are the connector's, or empty for those that `connector_settings` finds; `settings` are
    Spark's and take precedence over the job's.
    """

    master: str = "local[*]"
    jars: tuple[Path, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    app_name: str = "odradek-pipeline"


_LOG4J_PROPERTIES = Path(__file__).with_name("log4j2.properties")

# For a streaming job on one machine. The time zone puts windows in UTC, whatever the driver's zone is.
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG4J_PROPERTIES.as_uri()}",
}


def connector_settings(jars: tuple[Path, ...] = ()) -> dict[str, str]:
    """Return the setting for the connector: `jars`, or the jars in the cache, into which Maven fetches them once.

    Without Maven, Spark fetches them at each start (`spark.jars.packages`). Raises JarsUnavailable.
    """
    found = list(jars) or cached_jars(pyspark.__version__)
    if not found and shutil.which("mvn"):
        found = fetch_jars(pyspark.__version__)
    if found:
        return {"spark.jars": ",".join(str(jar) for jar in found)}
    return {"spark.jars.packages": connector_coordinates(pyspark.__version__)}


def open_session(config: SessionConfig) -> SparkSession:
    """Return the session of this process. A local one listens on loopback only, unless SPARK_LOCAL_IP is set, and runs
    Python workers with this interpreter, unless PYSPARK_PYTHON is set: the python3 in PATH may be another version.

    Raises SessionFailed, and JarsUnavailable when Maven cannot fetch the connector.
    """
    if config.master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(config.master).appName(config.app_name)
    for name, value in {**_SETTINGS, **connector_settings(config.jars), **config.settings}.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except Py4JJavaError as failure:
        raise SessionFailed(str(failure.java_exception.getMessage()).splitlines()[0]) from failure
    except (PySparkException, Py4JError) as failure:
        raise SessionFailed(str(failure).splitlines()[0]) from failure
