"""Kafka's command-line tools, run from the jars as their shell scripts would run them.

Owns the mapping from a script's name (`kafka-topics`) to its class in each release, and the short-lived JVMs.
"""

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Self

from odradek_peers.class_archive import archive_options
from odradek_peers.jars import KAFKA_4_3, libs
from odradek_peers.logconf import log_to_stderr

# The class of each script, or a tuple for 4.x and 3.x if 3.9 has the class in another package.
_CLASSES: dict[str, str | tuple[str, str]] = {
    "kafka-broker-api-versions": (
        "org.apache.kafka.tools.BrokerApiVersionsCommand",
        "kafka.admin.BrokerApiVersionsCommand",
    ),
    "kafka-cluster": ("org.apache.kafka.tools.ClusterTool", "kafka.tools.ClusterTool"),
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": ("org.apache.kafka.tools.ConsoleProducer", "kafka.tools.ConsoleProducer"),
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": ("org.apache.kafka.tools.DumpLogSegments", "kafka.tools.DumpLogSegments"),
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-replica-verification": "org.apache.kafka.tools.ReplicaVerificationTool",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}

_TOOL_SECONDS = 90.0


class ToolFailed(Exception):
    """A tool ended with an exit code other than 0, or not in time."""


@dataclass
class JavaTools:
    """The tools of one Kafka release: `JavaTools("4.3.0").run("kafka-topics", "--list", …)`.

    A name with dots is a class, for tools without a script. `options` are the JVM's.
    """

    version: str = KAFKA_4_3
    options: tuple[str, ...] = ("-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

    def command(self, tool: str, *arguments: str) -> list[str]:
        """Return the whole command line of a tool."""
        jars = libs(self.version)
        logging = log_to_stderr(self.version, jars.parent)
        java = ["java", *self.options, *archive_options(jars, self.options), logging]
        return [*java, "-cp", f"{jars}/*", self._class(tool), *arguments]

    def run(self, tool: str, *arguments: str, stdin: str = "", timeout: float = _TOOL_SECONDS) -> str:
        """Run a tool to its end and return its standard output. Raises ToolFailed with its whole output."""
        try:
            done = subprocess.run(
                self.command(tool, *arguments),
                input=stdin,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            raise ToolFailed(f"{tool} did not end within {timeout:.0f} s: {late.stdout!r} {late.stderr!r}") from late
        if done.returncode != 0:
            output = f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
            raise ToolFailed(f"{tool} {' '.join(arguments)} ended with {done.returncode}:\n{output}")
        return done.stdout

    def start(self, tool: str, *arguments: str) -> "RunningTool":
        """Start a tool that runs until the caller ends it."""
        return RunningTool(tool, self.command(tool, *arguments))

    def _class(self, tool: str) -> str:
        if "." in tool:
            return tool
        known = _CLASSES[tool]
        if isinstance(known, str):
            return known
        return known[0] if self.version.startswith("4.") else known[1]


@dataclass
class RunningTool:
    """A tool in the background: its input, its output lines and its end. The end of a `with` block kills it."""

    name: str
    command: list[str]
    environment: dict[str, str] | None = None
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
            env=self.environment,
        )
        self._queue: SimpleQueue[str | None] = SimpleQueue()
        self._errors: list[str] = []
        self._readers = [
            Thread(target=self._read_output, name=f"{self.name} stdout", daemon=True),
            Thread(target=self._read_errors, name=f"{self.name} stderr", daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def next_line(self, timeout: float = _TOOL_SECONDS) -> str:
        """Return the next line of standard output, and keep it in `lines`. Raises ToolFailed if none comes."""
        line = self.poll_line(timeout)
        if line is None:
            raise ToolFailed(
                f"{self.name} printed no line within {timeout:g} s after {self.lines[-5:]}\n{self.errors()}"
            )
        return line

    def poll_line(self, timeout: float) -> str | None:
        """Return the next line if one comes in time, else None. Raises ToolFailed if the tool has ended."""
        try:
            line = self._queue.get(timeout=timeout)
        except Empty:
            return None
        if line is None:
            raise ToolFailed(f"{self.name} has ended after {self.lines[-5:]}\n{self.errors()}")
        self.lines.append(line)
        return line

    def write(self, text: str) -> None:
        """Write text to the tool's standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.flush()

    def terminate(self, timeout: float = 30.0) -> int:
        """Send SIGTERM and wait; the rest of the output is in `lines` afterwards. Return the exit code."""
        self._process.terminate()
        return self._wait_for_end(timeout)

    def kill(self) -> None:
        """Send SIGKILL: a consumer then ends without leaving its group."""
        self._process.kill()
        self._wait_for_end(10.0)

    def errors(self) -> str:
        """Return the tool's standard error so far."""
        return "\n".join(self._errors[-60:])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.kill()

    def _wait_for_end(self, timeout: float) -> int:
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        for reader in self._readers:
            reader.join(10.0)
        while not self._queue.empty():
            line = self._queue.get()
            if line is not None:
                self.lines.append(line)
        return code

    def _read_output(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._queue.put(line.rstrip("\n"))
        self._queue.put(None)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors.append(line.rstrip("\n"))


def dump_log(tools: JavaTools, *files: Path, options: tuple[str, ...] = ()) -> str:
    """Return the output of DumpLogSegments for log, index, snapshot or metadata files."""
    return tools.run("kafka-dump-log", "--files", ",".join(map(str, files)), *options)
