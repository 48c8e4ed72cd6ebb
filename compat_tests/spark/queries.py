"""The rows that a streaming query has read and written."""

import time
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from compat_tests.spark.job import Job


def wait_for_rows(query: StreamingQuery, job: Job, count: int) -> None:
    """Return when the sink holds that many rows; the query's own error if it fails first."""
    deadline = time.monotonic() + 60
    while query.isActive and time.monotonic() < deadline:
        query.processAllAvailable()
        if job.written().count() >= count:
            return
    cause = query.exception()
    if cause is not None:
        raise cause
    raise AssertionError(f"{job.written().count()} of {count} rows came: {query.status}")


def values(job: Job) -> list[str]:
    """All values in the sink, in the order of their numbers; each as often as it is there."""
    return sorted((row.value for row in job.written().collect()), key=lambda value: int(value[1:]))


def input_rows(query: StreamingQuery) -> list[int]:
    """How many records each micro-batch read."""
    reports: list[Any] = query.recentProgress
    return [report["numInputRows"] for report in reports if report["numInputRows"]]
