"""What the end of a simulation tells of records whose offsets nobody was told."""

from __future__ import annotations

import pytest

from simulation.checks import Checks, Violation

PLACE = ("t", 0)


def checks_of(*acknowledged: bytes, deleted: int) -> Checks:
    checks = Checks(lambda violation: None)
    checks.idempotent[b"p"] = 1
    checks.acknowledged_at(PLACE, -1, list(acknowledged))
    checks.deleting(PLACE, deleted)
    return checks


def test_a_record_that_may_have_been_deleted_is_not_missed() -> None:
    checks_of(b"p:3", b"plain:9", deleted=5).final(PLACE, {5: b"p:4", 6: b"plain:1"}, {1: b""})


@pytest.mark.parametrize(
    ("lost", "deleted"), [(b"p:5", 5), (b"p:3", 0), (b"plain:9", 0)], ids=["behind-one-that-stays", "none", "plain"]
)
def test_a_record_that_was_not_deleted_is_missed(lost: bytes, deleted: int) -> None:
    with pytest.raises(Violation, match="acknowledged and lost"):
        checks_of(lost, deleted=deleted).final(PLACE, {5: b"p:4", 6: b"plain:1"}, {1: b""})
