"""The computation of the job: pure functions from DataFrame to DataFrame, which read, write and start nothing.

A page view is a record whose value is a JSON object with at least

    {"page": "/start", "viewed_at": "2026-11-21T07:00:00.250Z"}

`viewed_at` is ISO 8601, in UTC if it names no zone. Every other record is rejected with a reason.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

NO_VALUE = "no value"
NOT_JSON = "not a JSON object"
NO_PAGE = "no page"
NO_TIME = "no readable viewed_at"
AHEAD = "viewed_at is ahead of the record's timestamp"

_MALFORMED = "_malformed"
_VIEW = T.StructType(
    [
        T.StructField("page", T.StringType()),
        T.StructField("viewed_at", T.StringType()),
        T.StructField(_MALFORMED, T.StringType()),
    ]
)


def classified(records: DataFrame, max_ahead_ms: int) -> DataFrame:
    """Add the columns `page`, `viewed_at` and `reason` (null for a view) to Kafka records with value and timestamp."""
    parsed = records.withColumn(
        "_view",
        F.from_json(F.col("value").cast("string"), _VIEW, {"columnNameOfCorruptRecord": _MALFORMED}),
    ).withColumn("_time", F.try_to_timestamp(F.col("_view.viewed_at")))
    return (
        parsed.withColumn("reason", _reason(max_ahead_ms))
        .withColumn("page", F.col("_view.page"))
        .withColumn("viewed_at", F.col("_time"))
        .drop("_view", "_time")
    )


def _reason(max_ahead_ms: int) -> Column:
    latest = F.col("timestamp") + F.expr(f"make_dt_interval(0, 0, 0, {max_ahead_ms / 1000:.3f})")
    return (
        F.when(F.col("value").isNull(), NO_VALUE)
        .when(F.col("_view").isNull() | F.col(f"_view.{_MALFORMED}").isNotNull(), NOT_JSON)
        .when(F.coalesce(F.trim(F.col("_view.page")), F.lit("")) == "", NO_PAGE)
        .when(F.col("_time").isNull(), NO_TIME)
        .when(F.col("_time") > latest, AHEAD)
    )


def views(classified_records: DataFrame) -> DataFrame:
    """Select the views from classified records: page, viewed_at."""
    return classified_records.where("reason IS NULL").select("page", "viewed_at")


def views_per_window(page_views: DataFrame, window_ms: int, lateness_ms: int) -> DataFrame:
    """Count the views of each page in each window that has any: page, window_start, window_end, views."""
    counted = (
        page_views.withWatermark("viewed_at", f"{lateness_ms} milliseconds")
        .groupBy(F.window("viewed_at", f"{window_ms} milliseconds"), F.col("page"))
        .count()
    )
    return counted.select(
        "page",
        F.col("window.start").alias("window_start"),
        F.col("window.end").alias("window_end"),
        F.col("count").alias("views"),
    )


def as_records(counts: DataFrame) -> DataFrame:
    """Make Kafka records of counts, keyed by page and window.

    A count that is written twice has the same key, so that a reader that keeps the last value of each key, or a
    compacted topic, has it once.
    """
    iso_8601 = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"
    start, end = F.date_format("window_start", iso_8601), F.date_format("window_end", iso_8601)
    value = F.struct("page", start.alias("window_start"), end.alias("window_end"), "views")
    return counts.select(F.concat_ws("@", "page", start).alias("key"), F.to_json(value).alias("value"))


def as_rejected_records(classified_records: DataFrame) -> DataFrame:
    """Make Kafka records of rejected records, with their key and value.

    Headers have the reason, and the topic, partition and offset, which identify a record that is written twice.
    """
    headers = [
        F.struct(F.lit(name).alias("key"), column.cast("string").cast("binary").alias("value"))
        for name, column in (
            ("rejected.reason", F.col("reason")),
            ("rejected.topic", F.col("topic")),
            ("rejected.partition", F.col("partition")),
            ("rejected.offset", F.col("offset")),
        )
    ]
    return classified_records.where("reason IS NOT NULL").select("key", "value", F.array(*headers).alias("headers"))
