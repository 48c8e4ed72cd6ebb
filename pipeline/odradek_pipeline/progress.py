"""What Spark says about a finished micro-batch, as a value and as a line for a person.

Owns the meaning of the fields of Spark's StreamingQueryProgress that the job uses; leaves showing it to the caller.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """One micro-batch of one query. `rejected` is what the batch refused; `late` counts groups (page and window) that
    Spark dropped because their window was already final; `watermark` is ISO 8601, empty before the first view;
    `behind` is how many records were left in the topic when the batch was planned."""

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
        """One line, for a terminal or a log."""
        rate = f"{self.input_rows * 1000 / self.duration_ms:,.0f}/s" if self.duration_ms else "-"
        parts = [f"{self.query} #{self.batch_id}", f"{self.input_rows:,} records ({rate}, {self.duration_ms:,} ms)"]
        if self.watermark:
            parts.append(f"watermark {self.watermark}")
        if self.state_rows:
            parts.append(f"{self.state_rows:,} open counts")
        for count, what in ((self.rejected, "rejected"), (self.late, "too late"), (self.behind, "behind")):
            if count:
                parts.append(f"{count:,} {what}")
        return " · ".join(parts)


def executed(progress: Mapping[str, Any]) -> bool:
    """Spark also reports while it idles; only a report with a duration for the batch itself is about a batch."""
    return "addBatch" in progress.get("durationMs", {})


def read_progress(progress: Mapping[str, Any]) -> BatchProgress:
    """Spark's report (the JSON object) as ours. Missing fields count as nothing."""
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
    """The sum over all partitions of a Kafka source's position ({topic: {partition: offset}}, or that as text)."""
    if isinstance(position, str):
        position = json.loads(position)
    return sum(sum(partitions.values()) for partitions in (position or {}).values())
