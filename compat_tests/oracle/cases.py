"""The versions of an API that a test runs for."""

import pytest

from compat_tests.oracle import schema


def versions_of(api: str, first: int = 0, last: int = 99) -> pytest.MarkDecorator:
    """Parametrize `version` with all versions of the API that either release supports."""
    spoken = set(schema.versions(api, schema.KAFKA_4_3)) | set(schema.versions(api, schema.KAFKA_3_9))
    chosen = sorted(version for version in spoken if first <= version <= last)
    return pytest.mark.parametrize("version", chosen, ids=lambda version: f"{api}-{version}")
