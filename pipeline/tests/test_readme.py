"""README.md: its Spark job runs."""

from __future__ import annotations

import re
from pathlib import Path

from pyspark.sql import SparkSession

README = Path(__file__).parents[2] / "README.md"


def test_the_spark_job_reads_the_topic_to_its_end(spark: SparkSession) -> None:
    (job,) = (
        block
        for block in re.findall(r"^```python\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)
        if "readStream" in block
    )
    # The session of the fixture has the connector, so that `getOrCreate` downloads nothing.
    exec(job, {})
