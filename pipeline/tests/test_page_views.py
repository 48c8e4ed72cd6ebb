"""The computation of the job on small frames: views and rejected records, counts, and the records to write."""

import json
from datetime import UTC, datetime

import pytest
from pyspark.sql import DataFrame, SparkSession

from odradek_pipeline.page_views import (
    AHEAD,
    NO_PAGE,
    NO_TIME,
    NO_VALUE,
    NOT_JSON,
    as_records,
    as_rejected_records,
    classified,
    views,
    views_per_window,
)

_HOUR_MS = 3_600_000
_RECORD = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
_SEVEN = datetime(2026, 11, 21, 7, 0, 0, tzinfo=UTC)


def records(spark: SparkSession, *values: str | bytes | None) -> DataFrame:
    """Kafka records with these values and the time 07:00, with the columns of Spark's source."""
    rows = [
        (b"k%d" % offset, value.encode() if isinstance(value, str) else value, "views", 1, offset, _SEVEN)
        for offset, value in enumerate(values)
    ]
    return spark.createDataFrame(rows, _RECORD)


def reasons(spark: SparkSession, *values: str | bytes | None) -> list[str | None]:
    frame = classified(records(spark, *values), max_ahead_ms=_HOUR_MS)
    return [row.reason for row in frame.orderBy("offset").collect()]


def seconds(moment: str) -> str:
    return f"CAST({moment} AS BIGINT)"


def test_every_record_is_a_view_or_rejected_with_its_reason(spark: SparkSession) -> None:
    cases: dict[str | bytes | None, str | None] = {
        '{"page": "/a", "viewed_at": "2026-11-21T07:00:00Z"}': None,
        '{"page": "/a", "viewed_at": "2026-11-21T08:00:00.000Z"}': None,
        '{"viewed_at": "2026-11-21T08:00:00+01:00", "user": {"id": [1]}, "page": "/ü"}': None,
        None: NO_VALUE,
        "": NOT_JSON,
        "page=/a": NOT_JSON,
        '{"page": "/a", "viewed_at": "2026-11-21T07:00:00Z"': NOT_JSON,
        '["/a", "2026-11-21T07:00:00Z"]': NOT_JSON,
        "17": NOT_JSON,
        b"\xff\xfe\x00": NOT_JSON,
        '{"viewed_at": "2026-11-21T07:00:00Z"}': NO_PAGE,
        '{"page": null, "viewed_at": "2026-11-21T07:00:00Z"}': NO_PAGE,
        '{"page": "  ", "viewed_at": "2026-11-21T07:00:00Z"}': NO_PAGE,
        '{"page": "/a"}': NO_TIME,
        '{"page": "/a", "viewed_at": "yesterday"}': NO_TIME,
        '{"page": "/a", "viewed_at": "2026-13-21T07:00:00Z"}': NO_TIME,
        '{"page": "/a", "viewed_at": "2026-11-21T08:00:00.001Z"}': AHEAD,
        '{"page": "/a", "viewed_at": "9999-01-01T00:00:00Z"}': AHEAD,
    }

    assert reasons(spark, *cases) == list(cases.values())


def test_a_view_keeps_its_time_zone_and_microseconds(spark: SparkSession) -> None:
    frame = classified(
        records(spark, '{"page": "/a", "viewed_at": "2026-11-21T08:30:00.000125+02:00"}', "nonsense"), _HOUR_MS
    )

    found = [tuple(row) for row in views(frame).selectExpr("page", "unix_micros(viewed_at)").collect()]

    assert found == [("/a", int(_SEVEN.timestamp() - 1800) * 1_000_000 + 125)]


def test_views_are_counted_by_page_and_window_with_exclusive_ends(spark: SparkSession) -> None:
    start = int(_SEVEN.timestamp())
    moments = [("/a", 0.0), ("/a", 59.999), ("/a", 60.0), ("/b", 59.0), ("/a", 180.0)]
    rows = [(page, datetime.fromtimestamp(start + after, UTC)) for page, after in moments]
    frame = spark.createDataFrame(rows, "page STRING, viewed_at TIMESTAMP")

    counts = views_per_window(frame, window_ms=60_000, lateness_ms=0)

    found = counts.selectExpr("page", seconds("window_start"), seconds("window_end"), "views").collect()
    assert sorted(map(tuple, found)) == [
        ("/a", start, start + 60, 2),
        ("/a", start + 60, start + 120, 1),
        ("/a", start + 180, start + 240, 1),
        ("/b", start, start + 60, 1),
    ]


def test_a_count_becomes_a_record_whose_key_is_page_and_window(spark: SparkSession) -> None:
    counts = spark.createDataFrame(
        [("/a@b", _SEVEN, datetime(2026, 11, 21, 7, 1, 0, tzinfo=UTC), 3)],
        "page STRING, window_start TIMESTAMP, window_end TIMESTAMP, views BIGINT",
    )

    [row] = as_records(counts).collect()

    assert row.key == "/a@b@2026-11-21T07:00:00.000Z"
    assert json.loads(row.value) == {
        "page": "/a@b",
        "window_start": "2026-11-21T07:00:00.000Z",
        "window_end": "2026-11-21T07:01:00.000Z",
        "views": 3,
    }


def test_a_rejected_record_keeps_its_bytes_and_has_reason_and_source(spark: SparkSession) -> None:
    frame = classified(records(spark, '{"page": "/a", "viewed_at": "2026-11-21T07:00:00Z"}', b"\xff", None), _HOUR_MS)

    found = [
        (bytes(row.key), row.value and bytes(row.value), [(header.key, bytes(header.value)) for header in row.headers])
        for row in as_rejected_records(frame).collect()
    ]

    def headers(reason: str, offset: int) -> list[tuple[str, bytes]]:
        return [
            ("rejected.reason", reason.encode()),
            ("rejected.topic", b"views"),
            ("rejected.partition", b"1"),
            ("rejected.offset", b"%d" % offset),
        ]

    assert found == [(b"k1", b"\xff", headers(NOT_JSON, 1)), (b"k2", None, headers(NO_VALUE, 2))]


@pytest.mark.parametrize("max_ahead_ms", [0, 1, 1500])
def test_the_limit_for_times_ahead_is_inclusive(spark: SparkSession, max_ahead_ms: int) -> None:
    values = [
        f'{{"page": "/a", "viewed_at": "2026-11-21T07:00:{ms / 1000:06.3f}Z"}}'
        for ms in (max_ahead_ms, max_ahead_ms + 1)
    ]

    frame = classified(records(spark, *values), max_ahead_ms=max_ahead_ms).orderBy("offset")

    assert [row.reason for row in frame.collect()] == [None, AHEAD]
