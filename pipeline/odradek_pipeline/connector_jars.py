"""The jars of Spark's Kafka connector, which are not part of a Spark distribution.

Owns the list of artifacts and the folder that caches them; Maven, with its own configuration, fills the folder once.
`python -m odradek_pipeline.connector_jars [SPARK_VERSION]` fills the folder and prints its path.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from importlib.metadata import version as installed_version
from pathlib import Path
from xml.sax.saxutils import escape

_COPY_DEPENDENCIES = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"

# The connector and its dependencies that a Spark distribution lacks; Spark must not find the others twice.
_NOT_IN_SPARK = (
    "spark-sql-kafka-0-10_{scala}",
    "spark-token-provider-kafka-0-10_{scala}",
    "kafka-clients",
    "commons-pool2",
)


class JarsUnavailable(Exception):
    """Maven is not installed, or it could not fetch the jars."""


def scala_version(spark_version: str) -> str:
    """Return the Scala version of PySpark's distribution of a release: 2.12 before Spark 4, 2.13 since."""
    return "2.12" if int(spark_version.split(".")[0]) < 4 else "2.13"


def connector_coordinates(spark_version: str) -> str:
    """Return the connector's Maven coordinates, for `spark.jars.packages`."""
    return f"org.apache.spark:spark-sql-kafka-0-10_{scala_version(spark_version)}:{spark_version}"


def jars_folder(spark_version: str) -> Path:
    """Return the folder of the jars for one release: below $ODRADEK_SPARK_JARS, or in the user's cache folder."""
    chosen = os.environ.get("ODRADEK_SPARK_JARS")
    home = Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "odradek"
    return (home if chosen else home / "spark-jars") / spark_version


def cached_jars(spark_version: str) -> list[Path]:
    """Return the connector's jars that are in the folder; an empty list before they are fetched."""
    return sorted(jars_folder(spark_version).glob("*.jar"))


def fetch_jars(spark_version: str) -> list[Path]:
    """Return the connector's jars; the first call on a machine fetches them. Raises JarsUnavailable.

    A folder gets its final name when it is complete. A lock makes other processes wait for the one that fetches.
    """
    folder = jars_folder(spark_version)
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (folder.parent / f".{spark_version}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.is_dir():
                partial = folder.parent / f".{spark_version}.partial"
                shutil.rmtree(partial, ignore_errors=True)
                _copy_dependencies(spark_version, partial)
                partial.rename(folder)
    return cached_jars(spark_version)


def _copy_dependencies(spark_version: str, folder: Path) -> None:
    folder.mkdir()
    pom = folder / "pom.xml"
    pom.write_text(_pom(spark_version))
    wanted = ",".join(_NOT_IN_SPARK).format(scala=scala_version(spark_version))
    command = [
        "mvn", "-q", "-B", "-f", str(pom), _COPY_DEPENDENCIES,
        f"-DoutputDirectory={folder}", "-DincludeScope=runtime", f"-DincludeArtifactIds={wanted}",
    ]  # fmt: skip
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    except FileNotFoundError as missing:
        raise JarsUnavailable("cannot fetch Spark's Kafka connector: install Maven, which provides `mvn`") from missing
    if done.returncode != 0:
        raise JarsUnavailable(f"Maven could not fetch {connector_coordinates(spark_version)}:\n{done.stdout[-3000:]}")


def _pom(spark_version: str) -> str:
    group, artifact, version = (escape(part) for part in connector_coordinates(spark_version).split(":"))
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>odradek</groupId><artifactId>spark-jars</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies><dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency></dependencies></project>\n"
    )


if __name__ == "__main__":
    wanted_version = sys.argv[1] if len(sys.argv) > 1 else installed_version("pyspark")
    fetch_jars(wanted_version)
    print(jars_folder(wanted_version))
