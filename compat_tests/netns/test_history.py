"""Operations that are written to a history are read again."""

from __future__ import annotations

from pathlib import Path

from compat_tests.netns.history import Histories, Kind, Operation, Outcome, Recorder


def test_operations_are_read_in_the_order_of_their_ends(tmp_path: Path) -> None:
    histories = Histories(tmp_path)
    late = Operation("a", Kind.OWNS, 1, 9, Outcome.OK, "t", group="g", generation=3, partitions=(1, 2))
    early = Operation("b", Kind.PRODUCE, 2, 3, Outcome.INFO, "t", 0, values=("x",), idempotent=True, note="why")
    between = Operation("a", Kind.LATEST, 1, 5, Outcome.OK, "t", 0, 5)
    recorder = Recorder(tmp_path / "a.jsonl")
    recorder.write(late)
    Recorder(tmp_path / "b.jsonl").write(early)
    assert histories.read() == [early, late]
    recorder.write(between)
    assert histories.read() == [early, between, late]


def test_an_incomplete_line_of_a_history_is_not_read(tmp_path: Path) -> None:
    file, histories = tmp_path / "a.jsonl", Histories(tmp_path)
    Recorder(file).write(Operation("a", Kind.LATEST, 1, 2, Outcome.OK, "t", 0, 5))
    line = file.read_text()
    with file.open("a") as half:
        half.write(line[:20])
    assert len(histories.read()) == 1
    with file.open("a") as half:
        half.write(line[20:])
    assert len(histories.read()) == 2
