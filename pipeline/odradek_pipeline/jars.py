"""The jars of Spark's Kafka connector that Spark itself does not bring.

Owns which artifacts those are and the folder that keeps them, filled once by Maven. Where Maven gets them from is
Maven's configuration. `python -m odradek_pipeline.jars [SPARK_VERSION]` fills the folder and prints it.
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

# Of the connector's dependencies these are not in a Spark distribution; all others are, and must not come twice.
_NOT_IN_SPARK = (
    "spark-sql-kafka-0-10_{scala}",
    "spark-token-provider-kafka-0-10_{scala}",
    "kafka-clients",
    "commons-pool2",
)


class JarsUnavailable(Exception):
    """Maven is missing, or could not fetch them."""


def scala_version(spark_version: str) -> str:
    """The Scala that PySpark's own distribution of this release is built with: 2.12 before Spark 4, 2.13 since."""
    return "2.12" if int(spark_version.split(".")[0]) < 4 else "2.13"


def connector_coordinates(spark_version: str) -> str:
    """What `spark.jars.packages` wants to hear."""
    return f"org.apache.spark:spark-sql-kafka-0-10_{scala_version(spark_version)}:{spark_version}"


def jars_folder(spark_version: str) -> Path:
    """Where the jars for one release are kept: below $ODRADEK_SPARK_JARS, else in the user's cache folder."""
    chosen = os.environ.get("ODRADEK_SPARK_JARS")
    home = Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "odradek"
    return (home if chosen else home / "spark-jars") / spark_version


def cached_jars(spark_version: str) -> list[Path]:
    """The connector's jars, if they have been fetched; otherwise an empty list."""
    return sorted(jars_folder(spark_version).glob("*.jar"))


def fetch_jars(spark_version: str) -> list[Path]:
    """The connector's jars; the first call on a machine fetches them (seconds). Raises JarsUnavailable.

    A folder that exists is complete, because it gets its name last; a second process waits for the one that fills it.
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
        raise JarsUnavailable("Spark's Kafka connector is fetched by Maven, and there is no `mvn` here") from missing
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
