"""The jars of Spark's Kafka connector, and the folder that caches them."""

from pathlib import Path

import pyspark
import pytest

from odradek_pipeline.connector_jars import cached_jars, connector_coordinates, fetch_jars, jars_folder
from odradek_pipeline.spark_session import connector_settings


def test_the_connector_has_the_versions_of_spark_and_its_scala() -> None:
    assert connector_coordinates("4.0.0") == "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"
    assert connector_coordinates("3.5.7") == "org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.7"


def test_the_connector_has_only_jars_that_spark_lacks() -> None:
    names = [jar.name.rsplit("-", 1)[0] for jar in fetch_jars(pyspark.__version__)]
    scala = connector_coordinates(pyspark.__version__).split(":")[1].rsplit("_", 1)[1]

    assert names == [
        "commons-pool2",
        "kafka-clients",
        f"spark-sql-kafka-0-10_{scala}",
        f"spark-token-provider-kafka-0-10_{scala}",
    ]


def test_an_environment_variable_chooses_the_folder_of_the_jars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODRADEK_SPARK_JARS", str(tmp_path))

    assert jars_folder("4.0.0") == tmp_path / "4.0.0"
    assert cached_jars("4.0.0") == []


def test_given_jars_are_used_as_they_are(tmp_path: Path) -> None:
    jars = (tmp_path / "a.jar", tmp_path / "b.jar")

    assert connector_settings(jars) == {"spark.jars": f"{jars[0]},{jars[1]}"}


def test_without_jars_and_maven_spark_fetches_the_connector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODRADEK_SPARK_JARS", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))

    assert connector_settings() == {"spark.jars.packages": connector_coordinates(pyspark.__version__)}
