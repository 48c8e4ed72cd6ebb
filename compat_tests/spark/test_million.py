"""A windowed aggregation over a million records, with every count compared."""

from collections import Counter
from collections.abc import Callable
from datetime import datetime

import pytest
from pyspark.sql import functions as F

from compat_tests.spark.job import Job, Sent

_RECORDS = 1_000_000
_PARTITIONS = 3
_START_MS = 1_750_000_020_000  # the beginning of a minute
_STEP_MS = 7  # a million steps are 116.7 minutes
_WINDOW_MS = 60_000
_PAGES = 11


def _page(number: int) -> str:
    return f"/page/{number * number % _PAGES}"


@pytest.mark.long
def test_a_million_records_are_counted_by_window(job: Job, make_topic: Callable[..., str]) -> None:
    topic = make_topic(partitions=_PARTITIONS, config={"retention.ms": "-1"})
    job.send(
        topic,
        (
            Sent(_page(number), partition=number % _PARTITIONS, timestamp_ms=_START_MS + number * _STEP_MS)
            for number in range(_RECORDS)
        ),
    )

    counts = (
        job.stream(subscribe=topic, maxOffsetsPerTrigger=400_000)
        .withWatermark("timestamp", "1 minute")
        .groupBy(F.window("timestamp", "1 minute"), F.col("value").cast("string").alias("page"))
        .count()
    )
    query = (
        counts.writeStream.format("memory")
        .queryName("million")
        .outputMode("complete")
        .option("checkpointLocation", job.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    found = {
        (row.start, row.page): row["count"]
        for row in job.spark.table("million").selectExpr("window.start", "page", "count").collect()
    }
    times = ((number, _START_MS + number * _STEP_MS) for number in range(_RECORDS))
    expected = Counter((ms - ms % _WINDOW_MS, _page(number)) for number, ms in times)
    assert found == {(datetime.fromtimestamp(ms / 1000), page): count for (ms, page), count in expected.items()}
