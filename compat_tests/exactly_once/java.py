"""Java programs of these tests: ours, compiled once, and those in Kafka's jars, each in a small JVM."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from odradek_peers import KAFKA_4_3, RunningTool
from odradek_peers.logconf import log_to_stderr
from odradek_peers.processes import killed_with_parent

_JVM = ("-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class JavaProgram:
    """A main class and its class path; warnings go to standard error."""

    main: str
    classpath: str
    version: str = KAFKA_4_3
    """The release whose logging library is among the jars."""

    def start(self, *arguments: str) -> RunningTool:
        """Start the program; the caller may end it."""
        logging = log_to_stderr(self.version, Path(self.classpath.rpartition(":")[2]).parent.parent)
        command = ["java", *_JVM, logging, "-cp", self.classpath, self.main, *arguments]
        return RunningTool(self.main, [*killed_with_parent(), *command])


def compiled(name: str, jars: Path, classes: Path, version: str = KAFKA_4_3) -> JavaProgram:
    """Compile `name`.java of this folder, with the sources that it needs, into the directory `classes`."""
    command = [
        "javac", "-J-XX:TieredStopAtLevel=1", "-nowarn", "-Xlint:-removal", "-proc:none", "-d", str(classes),
        "-sourcepath", str(_FOLDER), "-cp", f"{jars}/*", str(_FOLDER / f"{name}.java"),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return JavaProgram(name, f"{classes}:{jars}/*", version)
