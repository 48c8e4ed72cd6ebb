"""The definition of a configuration: its name, type, default, valid values and update mode.

Leaves the tables to the other modules of this package, and layers to `effective`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, IntEnum
from typing import NamedTuple


class InvalidConfigError(ValueError):
    """A value that Kafka refuses, with Kafka's message (ConfigException)."""


class Type(IntEnum):
    """The types of ConfigDef under the numbers that DescribeConfigs sends."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Mode(Enum):
    """The update mode of a broker configuration (DynamicBrokerConfig)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


Value = bool | int | float | str | list[str] | None
Check = Callable[[str, Value], None]


class Definition(NamedTuple):
    """One configuration. `default` is the text that DescribeConfigs returns; `check` raises InvalidConfigError.

    An `internal` configuration is accepted but never described; a `required` one has no default.
    """

    name: str
    type: Type
    default: str | None
    check: Check | None = None
    mode: Mode = Mode.READ_ONLY
    internal: bool = False
    required: bool = False

    @property
    def sensitive(self) -> bool:
        """Whether responses must not contain the value: as in Kafka, the passwords."""
        return self.type is Type.PASSWORD


BOOLEAN, STRING, INT, SHORT, LONG = Type.BOOLEAN, Type.STRING, Type.INT, Type.SHORT, Type.LONG
DOUBLE, LIST, CLASS, PASSWORD = Type.DOUBLE, Type.LIST, Type.CLASS, Type.PASSWORD
READ_ONLY, PER_BROKER, CLUSTER_WIDE = Mode.READ_ONLY, Mode.PER_BROKER, Mode.CLUSTER_WIDE
