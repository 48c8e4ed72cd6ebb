"""Spark's report of a micro-batch, as a value and as a line."""

from typing import Any

from odradek_pipeline.progress import BatchProgress, executed, read_progress

_REPORT: dict[str, Any] = {
    "name": "views",
    "batchId": 7,
    "numInputRows": 1200,
    "durationMs": {"addBatch": 350, "triggerExecution": 400},
    "eventTime": {"watermark": "2026-11-21T07:00:00.000Z"},
    "stateOperators": [{"numRowsTotal": 18, "numRowsDroppedByWatermark": 2}],
    "sources": [{"endOffset": {"t": {"0": 600, "1": 600}}, "latestOffset": {"t": {"0": 700, "1": 600}}}],
    "observedMetrics": {"input": {"rejected": 5}},
}


def test_a_report_is_read_and_becomes_a_line() -> None:
    batch = read_progress(_REPORT)

    assert batch == BatchProgress("views", 7, 1200, 5, 2, 18, "2026-11-21T07:00:00.000Z", 400, 100)
    assert batch.line() == (
        "views #7 · 1,200 records (3,000/s, 400 ms) · watermark 2026-11-21T07:00:00.000Z · 18 open counts"
        " · 5 rejected · 2 too late · 100 behind"
    )


def test_a_first_report_without_state_or_watermark_is_short() -> None:
    report = {
        "name": "rejected",
        "batchId": 0,
        "durationMs": {"addBatch": 1},
        "eventTime": {"watermark": "1970-01-01T00:00:00.000Z"},
    }

    batch = read_progress(report)

    assert batch == BatchProgress("rejected", 0, 0, 0, 0, 0, "", 0, 0)
    assert batch.line() == "rejected #0 · 0 records (-, 0 ms)"


def test_offsets_may_be_text() -> None:
    sources = [{"endOffset": '{"t": {"0": 1}}', "latestOffset": '{"t": {"0": 4}}'}]

    assert read_progress({**_REPORT, "sources": sources}).behind == 3


def test_a_report_without_a_batch_is_ignored() -> None:
    assert executed(_REPORT)
    assert not executed({**_REPORT, "durationMs": {"latestOffset": 3, "triggerExecution": 3}})
