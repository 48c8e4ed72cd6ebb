"""Logging configurations for Kafka's JVMs: log4j 2 for 4.x, log4j 1's format (reload4j) for 3.x."""

from pathlib import Path

_LOG4J2 = """\
status=error
appender.a.type={kind}
appender.a.name=A
{target}
appender.a.layout.type=PatternLayout
appender.a.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level={level}
rootLogger.appenderRef.a.ref=A
"""

_LOG4J1 = """\
log4j.rootLogger={level}, A
log4j.appender.A=org.apache.log4j.{kind}Appender
{target}
log4j.appender.A.layout=org.apache.log4j.PatternLayout
log4j.appender.A.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


def log_to_file(version: str, folder: Path) -> str:
    """Write a configuration into `folder` that logs to server.log there. Return the JVM option that selects it."""
    name = "fileName" if version.startswith("4.") else "File"
    return _write(version, folder, kind="File", setting=f"{name}={folder / 'server.log'}", level="INFO")


def log_to_stderr(version: str, folder: Path) -> str:
    """Write a configuration into `folder` that logs warnings to stderr. Return the JVM option that selects it."""
    name, stderr = ("target", "SYSTEM_ERR") if version.startswith("4.") else ("Target", "System.err")
    return _write(version, folder, kind="Console", setting=f"{name}={stderr}", level="WARN")


def _write(version: str, folder: Path, *, kind: str, setting: str, level: str) -> str:
    if version.startswith("4."):
        text = _LOG4J2.format(kind=kind, target=f"appender.a.{setting}", level=level)
        option = "-Dlog4j2.configurationFile="
    else:
        text = _LOG4J1.format(kind=kind, target=f"log4j.appender.A.{setting}", level=level)
        option = "-Dlog4j.configuration=file:"
    file = folder / f"log-{kind.lower()}.properties"
    if not file.exists() or file.read_text() != text:
        partial = file.with_suffix(".partial")
        partial.write_text(text)
        partial.replace(file)
    return option + str(file)
