"""Members of a consumer group, each in its own process; they differ only in their start command."""

import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from odradek_peers import KAFKA_3_9, KAFKA_4_3, JavaTools, RunningTool
from odradek_peers.old_clients import kafka_python_2_0_2

_DRIVER = Path(__file__).parents[1] / "drivers" / "group_member.py"


@dataclass(frozen=True)
class Member:
    """A kind of member; `start` runs one."""

    name: str

    def start(self, servers: str, group: str, topic: str) -> "RunningMember":
        return RunningMember(RunningTool(self.name, *self._command(servers, group, topic)))

    def _command(self, servers: str, group: str, topic: str) -> tuple[list[str], dict[str, str] | None]:
        if self.name.startswith("java-"):
            tools = JavaTools(self.name.removeprefix("java-"))
            return (
                tools.command(
                    "kafka-verifiable-consumer", "--bootstrap-server", servers, "--topic", topic, "--group-id", group,
                    "--session-timeout", "6000", "--reset-policy", "earliest",
                    "--assignment-strategy", "org.apache.kafka.clients.consumer.RangeAssignor",
                ),
                None,
            )  # fmt: skip
        library = self.name.removesuffix("-2.0.2")
        path = str(kafka_python_2_0_2()) if self.name.endswith("-2.0.2") else ""
        return [sys.executable, str(_DRIVER), library, servers, group, topic], {**os.environ, "PYTHONPATH": path}


MEMBERS = (
    Member("confluent"),
    Member("kafka-python"),
    Member("kafka-python-2.0.2"),
    Member("aiokafka"),
    Member(f"java-{KAFKA_4_3}"),
    Member(f"java-{KAFKA_3_9}"),
)


@dataclass
class RunningMember:
    """The reports of one running member."""

    process: RunningTool
    delivered: set[tuple[int, int]] = field(default_factory=set)
    """Partition and offset of every record that the member received."""
    assigned: set[int] = field(default_factory=set)
    assignments: int = 0

    def read_report(self, seconds: float) -> None:
        """Read the next report if one comes in time."""
        line = self.process.poll_line(seconds)
        if line is not None:
            self._take(line)

    def leave(self) -> None:
        """End the member with SIGTERM, so that it leaves the group, and read its last reports."""
        seen = len(self.process.lines)
        self.process.terminate()
        self._take_all(seen)

    def kill(self) -> None:
        """Kill the member with SIGKILL, and read its last reports."""
        seen = len(self.process.lines)
        self.process.kill()
        self._take_all(seen)

    def _take_all(self, seen: int) -> None:
        for line in self.process.lines[seen:]:
            self._take(line)

    def _take(self, line: str) -> None:
        if not line.startswith("{"):
            return
        try:
            report: dict[str, Any] = json.loads(line)
        except ValueError:
            return  # the last line of a killed process may be torn
        match report["name"]:
            case "partitions_assigned":
                self.assigned |= {each["partition"] for each in report["partitions"]}
                self.assignments += 1
            case "partitions_revoked":
                self.assigned -= {each["partition"] for each in report["partitions"]}
            case "records_consumed":
                for each in report["partitions"]:
                    self.delivered |= {
                        (each["partition"], offset) for offset in range(each["minOffset"], each["maxOffset"] + 1)
                    }
            case _:
                pass
