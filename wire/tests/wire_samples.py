"""Random messages of every class and version, and their values in a form to compare with other implementations."""

import os
from importlib import import_module
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from odradek_wire.codec import definition
from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.notation import Field, StructType, definitions, load

MESSAGES: dict[str, type[Message]] = {
    message.name: getattr(import_module(f"odradek_wire.messages.{name}"), message.name)
    for name in definitions()
    for message in load(name)
}

# `make soak` raises it, and then the examples are new ones each time.
EXAMPLES = int(os.environ.get("ODRADEK_EXAMPLES", "3"))

few_examples = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize="ODRADEK_EXAMPLES" not in os.environ,
    suppress_health_check=list(HealthCheck),
)

YEAR_9999_MS = 253402300799000


def versions() -> list[Any]:
    """Return each class in each of its versions, as pytest parameters."""
    return [
        pytest.param(cls, version, id=f"{cls.__name__}-v{version}")
        for cls in MESSAGES.values()
        for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1)
    ]


_RANGES = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
}

_text = st.text(max_size=12) | st.sampled_from(["", "x" * 126, "x" * 127, "ß" * 64, "long" * 5000])
_bytes = st.binary(max_size=12) | st.sampled_from([b"", b"b" * 127, b"b" * 20000])
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "uuid": st.binary(min_size=16, max_size=16),
    "string": _text,
    "bytes": _bytes,
    "records": _bytes,
    **{name: st.integers(*limits) for name, limits in _RANGES.items()},
}
_CODES = st.sampled_from([code.value for code in ErrorCode if code <= 132])
_TIMES = st.integers(0, YEAR_9999_MS // 1000).map(lambda seconds: seconds * 1000)
_UNKNOWN_TAGS = st.just(()) | st.dictionaries(st.integers(900, 2**31 - 2), st.binary(max_size=200), max_size=2).map(
    lambda tags: tuple(sorted(tags.items()))
)


def messages(
    cls: type[Message], version: int, *, tame: bool = False, unknown_tags: bool = True
) -> st.SearchStrategy[Any]:
    """Return random messages whose fields are those of this version; others keep their defaults.

    Tame messages have only error codes that exist and times before the year 10000."""
    flexible = definition(cls).flexible(version)

    def scalar(field: Field) -> st.SearchStrategy[Any]:
        if field.struct is not None:
            return struct(field.struct, getattr(cls, field.struct.name))
        if tame and field.name.endswith("error_code"):
            return _CODES
        if tame and field.type == "int64" and ("time" in field.name or field.name.endswith("_ms")):
            return _TIMES
        return _VALUES[field.type]

    def value(field: Field) -> st.SearchStrategy[Any]:
        strategy = scalar(field)
        if field.array:
            one = strategy
            strategy = st.lists(one, max_size=3)
            if field.struct is None and field.type != "string":
                strategy |= st.integers(125, 140).flatmap(lambda n: one.map(lambda element: [element] * n))
        return st.none() | strategy if field.nullable(version) else strategy

    def struct(definition: StructType, cls: type[Any]) -> st.SearchStrategy[Any]:
        fields = definition.present(version) + definition.tagged(version)
        built = st.fixed_dictionaries({field.name: value(field) for field in fields})
        tags = _UNKNOWN_TAGS if flexible and unknown_tags else st.just(())

        def make(values: dict[str, Any], tags: tuple[tuple[int, bytes], ...]) -> Any:
            made = cls(**values)
            made.unknown_tags = tags
            return made

        return st.builds(make, built, tags)

    return struct(definition(cls).root, cls)


def values(message: Message, version: int) -> list[Any]:
    """Return the fields of that version in the order of the definition, structs as lists, records as bytes."""

    def of(field: Field, value: Any) -> Any:
        if value is None:
            return None
        if field.array:
            return [one(field, element) for element in value]
        return one(field, value)

    def one(field: Field, value: Any) -> Any:
        if field.struct is not None:
            return struct(field.struct, value)
        return bytes(value) if field.type in ("records", "bytes") else value

    def struct(definition: StructType, value: Any) -> list[Any]:
        return [of(f, getattr(value, f.name)) for f in definition.fields if f.since <= version <= f.until]

    return struct(definition(type(message)).root, message)
