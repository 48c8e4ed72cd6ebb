"""The valid values of configurations: checks of parsed values, each with Kafka's message.

Owns one check for each kind of rule in Kafka's ConfigDef, such as `at_least(1)`, `one_of("a", "b")` and
`list_of("compact", "delete")`. Leaves the names of configurations to the tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from .definition import Check, InvalidConfigError, Value


def invalid(name: str, value: object, why: str | None = None) -> InvalidConfigError:
    """Return the error with the text of Kafka's ConfigException."""
    return InvalidConfigError(
        f"Invalid value {java_text(value)} for configuration {name}" + (f": {why}" if why else "")
    )


def java_text(value: object) -> str:
    """Return the value as Java prints it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(value) + "]"
    return _double(value) if isinstance(value, float) else str(value)


def _double(value: float) -> str:
    """Return the text of Java's Double.toString: scientific from 10^7 on and below 10^-3."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    mantissa, _, exponent = f"{value!r}e".rstrip("e").partition("e")
    if not exponent:
        mantissa, _, exponent = f"{value:.16e}".partition("e")
        mantissa = repr(float(mantissa))
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"


def between(low: float | None, high: float | None) -> Check:
    def check(name: str, value: Value) -> None:
        if not isinstance(value, int | float):
            raise invalid(name, value, "Value must be non-null")
        if low is not None and value < low:
            raise invalid(name, value, f"Value must be at least {low}")
        if high is not None and value > high:
            raise invalid(name, value, f"Value must be no more than {high}")

    return check


def at_least(low: float) -> Check:
    return between(low, None)


def one_of(*words: str) -> Check:
    def check(name: str, value: Value) -> None:
        if value not in words:
            raise invalid(name, value, "String must be one of: " + ", ".join(words))

    return check


def one_of_any_case(*words: str) -> Check:
    def check(name: str, value: Value) -> None:
        if not isinstance(value, str) or value.upper() not in {word.upper() for word in words}:
            raise invalid(name, value, "String must be one of (case insensitive): " + ", ".join(words))

    return check


def distinct(name: str, value: Value) -> None:
    """Check that a list has no duplicates; it may be empty."""
    if isinstance(value, list) and len(set(value)) < len(value):
        raise InvalidConfigError(f"Configuration '{name}' values must not be duplicated.")


def distinct_non_empty(name: str, value: Value) -> None:
    """Check that a list has no duplicates and at least one element."""
    if value == []:
        raise InvalidConfigError(f"Configuration '{name}' must not be empty. Valid values include: any non-empty value")
    distinct(name, value)
    _no_empty_words(name, value)


def list_of(*words: str, empty: bool = True) -> Check:
    """Return the check for a list of these words, each at most once (Kafka 4)."""

    def check(name: str, value: Value) -> None:
        if value == [] and not empty:
            raise InvalidConfigError(
                f"Configuration '{name}' must not be empty. Valid values include: [{', '.join(words)}]"
            )
        distinct(name, value)
        _only(words, name, value)

    return check


def repeatable_list_of(*words: str) -> Check:
    """Return the check for a list of these words, which may have duplicates (Kafka 3)."""

    def check(name: str, value: Value) -> None:
        _only(words, name, value)

    return check


def _only(words: Iterable[str], name: str, value: Value) -> None:
    if isinstance(value, list):
        for word in value:
            one_of(*words)(name, word)


def _no_empty_words(name: str, value: Value) -> None:
    if isinstance(value, list) and "" in value:
        raise InvalidConfigError(f"Configuration '{name}' values must not be empty.")


def non_empty(name: str, value: Value) -> None:
    if value == "":
        raise invalid(name, value, "String must be non-empty")


def non_null(name: str, value: Value) -> None:
    if value is None:
        raise invalid(name, "null", "entry must be non null")


def gzip_level(name: str, value: Value) -> None:
    if not isinstance(value, int) or not (1 <= value <= 9 or value == -1):
        raise invalid(name, value, "Value must be between 1 and 9 or equal to -1")


def pool_size(name: str, value: Value) -> None:
    """Check for at least 1, or -1 for the size of another pool (Kafka 3.9's remote log manager)."""
    if not isinstance(value, int) or value < -1 or value == 0:
        raise invalid(name, value, "Value can be -1 or greater than 0")


_THROTTLED = r"([0-9]+:[0-9]+)?"


def throttled_replicas(name: str, value: Value) -> None:
    """Check for `*`, or pairs of partition and broker."""
    words = value if isinstance(value, list) else []
    if words != ["*"] and not all(re.fullmatch(_THROTTLED, word.strip()) for word in words):
        raise invalid(
            name,
            words,
            f"{name} must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
        )


_DURATION = r"([-+]?)P(?:[-+]?[0-9]+D)?(T(?:[-+]?[0-9]+H)?(?:[-+]?[0-9]+M)?(?:[-+]?[0-9]+(?:[.,][0-9]{0,9})?S)?)?"


def offset_reset(name: str, value: Value) -> None:
    """Check for `earliest`, `latest` or `by_duration:` with an ISO-8601 duration that is not negative."""
    text = value if isinstance(value, str) else ""
    duration = text.removeprefix("by_duration:")
    good = text in ("earliest", "latest")
    if not good and duration != text:
        match = re.fullmatch(_DURATION, duration, re.IGNORECASE)
        good = match is not None and len(duration) > 2 and match[2] not in ("T", "t") and "-" not in duration
    if not good:
        why = "The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
        raise invalid(name, value, f"Invalid value `{text}` for configuration {name}. {why}")


_VOTER = r"[0-9]+@[^:]+:[0-9]+"
_BOOTSTRAP = r".+:[0-9]+|\[.+\]:[0-9]+"


def quorum_voters(name: str, value: Value) -> None:
    for word in value if isinstance(value, list) else []:
        if not re.fullmatch(_VOTER, word):
            raise InvalidConfigError(
                f"Invalid configuration value for {name}. Each entry should be in the form `{{id}}@{{host}}:{{port}}`."
            )


def bootstrap_servers(name: str, value: Value) -> None:
    for word in value if isinstance(value, list) else []:
        if not re.fullmatch(_BOOTSTRAP, word):
            raise InvalidConfigError(
                f"Failed to parse host name from {word} for the configuration {name}. "
                'Each entry should be in the form "{host}:{port}"'
            )


_VERSION = r"(0[.][0-9]+[.][0-9]+|[0-9]+[.][0-9]+)(?:-IV[0-9]+)?(?:[.].*)?"
_RELEASES = "0.8.0 0.8.1 0.8.2 0.9.0 0.10.0 0.10.1 0.10.2 0.11.0 1.0 1.1 2.0 2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8"
_KNOWN_RELEASES = frozenset((*_RELEASES.split(), *(f"3.{minor}" for minor in range(10)), "4.0"))


def metadata_version(name: str, value: Value) -> None:
    """Check for a release up to 4.0 or its metadata version, such as `3.9` or `3.9-IV0` (Kafka 3.9)."""
    match = re.fullmatch(_VERSION, value) if isinstance(value, str) else None
    if match is None or match[1] not in _KNOWN_RELEASES:
        raise invalid(name, value, f"Version {java_text(value)} is not a valid version")
