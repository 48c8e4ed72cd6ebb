"""A broker's settings from a properties file, the environment, the command line and Python.

Owns their precedence (file < environment < overrides), refusals and warnings. Names, types and valid values are Kafka's
and come from `odradek_controller.configs`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from odradek.exceptions import SettingsError
from odradek_broker.config import OUR_INTEGERS, OUR_SETTINGS
from odradek_broker.logger import Logger
from odradek_controller.configs.definition import InvalidConfigError
from odradek_controller.configs.in_use import has_effect
from odradek_controller.configs.removed import why_removed
from odradek_controller.configs.table import Resource, definitions, nearest, parse

# Variables of the apache/kafka image for its JVM and its scripts, not for the broker.
_NOT_SETTINGS = re.compile(r"KAFKA_(VERSION|HEAP_OPTS|OPTS|JMX_|GC_LOG|LOG4J_|JVM_|CLUSTER_ID$)")
# The one variable of that image without the prefix KAFKA_: its start script formats the storage with this id.
_CLUSTER_ID = "CLUSTER_ID"
# Our setting for that id. Kafka has no such setting: it reads the cluster id from meta.properties.
_CLUSTER_ID_SETTING = "cluster.id"
# Prefixes of settings whose names are not in the table, such as those of one listener.
_OPEN_PREFIXES = ("listener.name.", "metric.", "metrics.", "config.providers.")


class SettingWarning(NamedTuple):
    """A warning of a setting that the broker does not follow; `event` and the other fields are for the log."""

    event: str
    setting: str
    reason: str | None = None

    def log(self, logger: Logger) -> None:
        facts = {} if self.reason is None else {"reason": self.reason}
        logger.warning(self.event, setting=self.setting, **facts)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a broker, and warnings for its log."""

    values: Mapping[str, str]
    warnings: tuple[SettingWarning, ...] = ()


def gather(
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Settings:
    """Merge the settings of all sources.

    Raises SettingsError for an invalid value, and for an unknown name in `overrides`. An unknown name in the file or
    the environment is a warning, as in Kafka, and so is a setting that has no effect in Odradek.
    """
    found: dict[str, str] = {}
    warnings: list[SettingWarning] = []
    if file is not None:
        found.update(read_properties(file))
    if environment is not None:
        found.update(from_environment(environment))
    for name in sorted(found):
        if not _known(name):
            reason = why_removed(name)
            reason = f"Kafka removed it: {reason}" if reason else f"Kafka does not have it{_did_you_mean(name)}"
            warnings.append(SettingWarning("setting is ignored", name, reason))
            del found[name]
    for name, value in (overrides or {}).items():
        if not _known(name):
            reason = why_removed(name)
            raise SettingsError(
                f"Kafka removed {name}: {reason}" if reason else f"unknown setting {name}{_did_you_mean(name)}"
            )
        found[name] = as_text(value)
    _refuse_several_controllers(found.get("controller.quorum.voters", ""))
    for name, value in found.items():
        _check(name, value)
        if (
            name not in OUR_SETTINGS
            and name not in OUR_INTEGERS
            and not has_effect(name)
            and not name.startswith(_OPEN_PREFIXES)
        ):
            warnings.append(SettingWarning("setting has no effect", name))
    return Settings(found, tuple(warnings))


def as_text(value: object) -> str:
    """Format a Python value as in a properties file: true, 3, a,b."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(as_text(item) for item in value)
    return str(value)


def from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Read `KAFKA_*` variables as the apache/kafka image does: `_` is a dot, `__` an underscore, `___` a dash."""
    found = {}
    for variable in sorted(environment):
        if variable.startswith("KAFKA_") and not _NOT_SETTINGS.match(variable):
            name = variable.removeprefix("KAFKA_").lower()
            name = re.sub("_{1,3}", lambda run: {1: ".", 2: "_", 3: "-"}[len(run[0])], name)
            found[name] = environment[variable]
    if environment.get(_CLUSTER_ID):
        found[_CLUSTER_ID_SETTING] = environment[_CLUSTER_ID]
    return found


def environment_variable(name: str) -> str:
    """Return the variable that `from_environment` reads as `name`."""
    return "KAFKA_" + name.upper().replace("_", "__").replace("-", "___").replace(".", "_")


def read_properties(file: Path) -> dict[str, str]:
    """Read a Java properties file. Raises SettingsError for a file or a line that cannot be read."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SettingsError(f"cannot read {file}: {reason}") from error
    found = {}
    for number, line in _logical_lines(text):
        match = re.match(r"((?:\\.|[^\\=:\s])+)\s*[=:\s]\s*(.*)", line, re.DOTALL)
        if match is None:
            raise SettingsError(f"{file}, line {number}: {line!r} is not of the form name=value")
        found[_unescape(match[1])] = _unescape(match[2])
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines without comments, continued lines joined, each with the number of its first line."""
    lines = enumerate(text.splitlines(), 1)
    for number, line in lines:
        line = line.lstrip()
        if not line or line[0] in "#!":
            continue
        while _continues(line):
            line = line[:-1] + next(lines, (0, ""))[1].lstrip()
        yield number, line


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _unescape(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        escaped = match[1]
        return chr(int(escaped[1:], 16)) if len(escaped) == 5 else _ESCAPES.get(escaped, escaped)

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", one, text).strip()


def _known(name: str) -> bool:
    return (
        name in definitions(Resource.BROKER)
        or name in OUR_SETTINGS
        or name in OUR_INTEGERS
        or name == _CLUSTER_ID_SETTING
        or name.startswith(_OPEN_PREFIXES)
    )


def _did_you_mean(name: str) -> str:
    near = nearest(Resource.BROKER, name)
    return f"; did you mean {near}?" if near else ""


def _check(name: str, value: str) -> None:
    definition = definitions(Resource.BROKER).get(name)
    own_values = OUR_SETTINGS.get(name)
    try:
        if definition is not None:
            parse(definition, value)
        elif own_values is not None and value not in own_values:
            raise SettingsError(f"{name} must be {' or '.join(own_values)}, got {value!r}")
        elif name in OUR_INTEGERS and not (value.isdecimal() and int(value)):
            raise SettingsError(f"{name} must be an integer of at least 1, got {value!r}")
    except InvalidConfigError as error:
        raise SettingsError(str(error)) from error


def _refuse_several_controllers(voters: str) -> None:
    """Refuse a quorum of controllers: each broker would become a cluster of its own, with a part of the records."""
    if voters.count("@") > 1:
        raise SettingsError(
            f"controller.quorum.voters must name one controller, got {voters}: Odradek has no KRaft quorum"
        )
