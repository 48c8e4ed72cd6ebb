"""Spark's report of a finished micro-batch, as a value and as a line of text.

Owns the fields of Spark's StreamingQueryProgress that the job uses; the caller displays them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """One micro-batch of one query.

    `rejected` is the number of rejected records; `late` the number of groups (page and window) that Spark dropped
    because their window was already final; `watermark` is ISO 8601, empty before the first view; `behind` is the number
    of records that were left in the topic when Spark planned the batch.
    """

    query: str
    batch_id: int
    input_rows: int
    rejected: int
    late: int
    state_rows: int
    watermark: str
    duration_ms: int
    behind: int

    def line(self) -> str:
        """Format the batch as one line."""
        rate = f"{self.input_rows * 1000 / self.duration_ms:,.0f}/s" if self.duration_ms else "-"
        parts = [f"{self.query} #{self.batch_id}", f"{self.input_rows:,} records ({rate}, {self.duration_ms:,} ms)"]
        if self.watermark:
            parts.append(f"watermark {self.watermark}")
        if self.state_rows:
            parts.append(f"{self.state_rows:,} open counts")
        for count, label in ((self.rejected, "rejected"), (self.late, "too late"), (self.behind, "behind")):
            if count:
                parts.append(f"{count:,} {label}")
        return " · ".join(parts)


def executed(progress: Mapping[str, Any]) -> bool:
    """Return whether a report is about a micro-batch: a report from an idle query has no duration `addBatch`."""
    return "addBatch" in progress.get("durationMs", {})


def read_progress(progress: Mapping[str, Any]) -> BatchProgress:
    """Convert Spark's report, a JSON object. A missing field counts as 0."""
    operators = progress.get("stateOperators") or []
    sources = progress.get("sources") or []
    rejected = (progress.get("observedMetrics") or {}).get("input", {}).get("rejected")
    watermark = (progress.get("eventTime") or {}).get("watermark", "")
    return BatchProgress(
        query=progress.get("name") or "query",
        batch_id=progress["batchId"],
        input_rows=progress.get("numInputRows", 0),
        rejected=rejected or 0,
        late=sum(operator.get("numRowsDroppedByWatermark", 0) for operator in operators),
        state_rows=sum(operator.get("numRowsTotal", 0) for operator in operators),
        watermark="" if watermark.startswith("1970-01-01T00:00:00") else watermark,
        duration_ms=progress["durationMs"].get("triggerExecution", 0),
        behind=sum(
            _offsets(source.get("latestOffset")) - _offsets(source.get("endOffset"))
            for source in sources
            if source.get("latestOffset")
        ),
    )


def _offsets(position: Any) -> int:
    """Sum the offsets of a Kafka source's position: {topic: {partition: offset}}, or that as text."""
    if isinstance(position, str):
        position = json.loads(position)
    return sum(sum(partitions.values()) for partitions in (position or {}).values())
