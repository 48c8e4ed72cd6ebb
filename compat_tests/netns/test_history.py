"""What is written down is read again."""

from __future__ import annotations

from pathlib import Path

from compat_tests.netns.history import Operation, Outcome, Recorder, What, read_history


def test_operations_are_read_as_they_were_written_by_their_ends(tmp_path: Path) -> None:
    late = Operation("a", What.OWNS, 1, 9, Outcome.OK, "t", group="g", generation=3, partitions=(1, 2))
    early = Operation("b", What.PRODUCE, 2, 3, Outcome.INFO, "t", 0, values=("x",), idempotent=True, note="why")
    for operation in (late, early):
        Recorder(tmp_path / operation.process).write(operation)
    assert read_history(sorted(tmp_path.iterdir())) == [early, late]


def test_the_half_line_of_a_killed_process_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "a"
    operation = Operation("a", What.LATEST, 1, 2, Outcome.OK, "t", 0, 5)
    Recorder(file).write(operation)
    with file.open("a") as half:
        half.write('{"process": "a", "wh')
    assert read_history([file]) == [operation]
