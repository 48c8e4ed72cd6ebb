"""The rows that a streaming query has read and written."""

import time
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from compat_tests.spark.job import Job


def wait_for_rows(query: StreamingQuery, job: Job, count: int) -> None:
    """Wait until the sink has `count` rows. Raises the query's error if it fails first."""
    deadline = time.monotonic() + 60
    while query.isActive and time.monotonic() < deadline:
        query.processAllAvailable()
        if job.written().count() >= count:
            return
    cause = query.exception()
    if cause is not None:
        raise cause
    raise AssertionError(f"the sink has {job.written().count()} of {count} rows: {query.status}")


def values(job: Job) -> list[str]:
    """Return all values in the sink, duplicates included, in the order of their numbers."""
    return sorted((row.value for row in job.written().collect()), key=lambda value: int(value[1:]))


def input_rows(query: StreamingQuery) -> list[int]:
    """Return the number of records of each micro-batch."""
    reports: list[Any] = query.recentProgress
    return [report["numInputRows"] for report in reports if report["numInputRows"]]
