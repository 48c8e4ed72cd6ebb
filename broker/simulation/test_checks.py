"""The checks at the end of a simulation: lost records, compacted keys, gaps."""

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


def test_a_record_that_delete_records_may_remove_is_not_missed() -> None:
    checks_of(b"p:3", b"plain:9", deleted=5).final(PLACE, {5: b"p:4", 6: b"plain:1"}, {1: b""})


@pytest.mark.parametrize(
    ("lost", "deleted"),
    [(b"p:5", 5), (b"p:3", 0), (b"plain:9", 0)],
    ids=["after-a-stored-one", "nothing-deleted", "plain"],
)
def test_a_lost_record_is_found(lost: bytes, deleted: int) -> None:
    with pytest.raises(Violation, match="acknowledged and are lost"):
        checks_of(lost, deleted=deleted).final(PLACE, {5: b"p:4", 6: b"plain:1"}, {1: b""})


def checks_of_keys(*acknowledged: bytes) -> Checks:
    checks = Checks(lambda violation: None, compacted=PLACE[0])
    checks.idempotent[b"p"] = 1
    checks.sending(PLACE, acknowledged)
    checks.acknowledged_at(PLACE, 0, list(acknowledged))
    return checks


OF_ONE_KEY = (b"p:3", b"p:7")
OF_ANOTHER = b"p:8"


def test_a_compacted_key_may_have_a_later_value() -> None:
    checks = checks_of_keys(*OF_ONE_KEY, OF_ANOTHER)
    assert checks.read(PLACE, 0, [(1, b"p:7"), (2, b"p:8")], 3, 3) == 3
    checks.final_keys(PLACE, {"one": {1: b"p:7", 2: b"p:8"}, "another": {1: b"p:7", 2: b"p:8", 5: b"p:11"}})


@pytest.mark.parametrize(
    ("log", "rule"),
    [
        ({0: b"p:3", 2: b"p:8"}, "b'p:7' was acknowledged, the last of its key is 3"),
        ({1: b"p:7"}, "b'p:8' was acknowledged, the last of its key is None"),
        ({0: b"p:3", 1: b"p:8"}, "the last of its key is 3|b'p:7' was acknowledged, b'p:8' is stored"),
        ({1: b"p:7", 2: b"p:8", 3: b"p:7"}, "repeated|reordered"),
    ],
    ids=["older", "none", "elsewhere", "again"],
)
def test_a_compacted_key_must_not_end_with_an_older_value(log: dict[int, bytes], rule: str) -> None:
    with pytest.raises(Violation, match=rule):
        checks_of_keys(*OF_ONE_KEY, OF_ANOTHER).final_keys(PLACE, {"one": log})


@pytest.mark.parametrize(
    ("records", "end"), [([(0, b"p:3"), (2, b"p:8")], 3), ([], 3)], ids=["between-records", "at-the-end-of-a-batch"]
)
def test_a_fetch_without_the_last_value_of_a_key_is_found(records: list[tuple[int, bytes]], end: int) -> None:
    checks = checks_of_keys(*OF_ONE_KEY, OF_ANOTHER)
    with pytest.raises(Violation, match="its key has no later value"):
        checks.read(PLACE, 0, records, end, end)


def test_a_gap_in_a_topic_without_compaction_is_found() -> None:
    for records in ([(1, b"p:1")], []):
        with pytest.raises(Violation, match="records are missing"):
            Checks(lambda violation: None).read(PLACE, 0, records, 2, 2)


def test_a_repeated_offset_is_found() -> None:
    with pytest.raises(Violation, match="returned offset 4 after offset 4"):
        Checks(lambda violation: None).read(PLACE, 4, [(4, b"p:1"), (4, b"p:1")], 5, 5)
