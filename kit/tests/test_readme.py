"""README.md: its code runs, and it has at most 700 words."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

README = Path(__file__).parents[2] / "README.md"
WORDS_MAX = 700
WAIT_S = 30


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)


def test_the_test_of_an_application_passes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(blocks("python")[0])
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_a_broker_of_a_cluster_is_killed_and_started() -> None:
    exec(blocks("python")[1], {})


def test_the_commands_for_ci_start_a_broker_and_wait_for_it() -> None:
    lines = [shlex.split(line, comments=True) for line in blocks("sh")[0].splitlines()]
    _, up, ready, _ = (line for line in lines if line)
    assert [up[:2], up[-1], ready] == [["odradek", "up"], "&", ["odradek", "ready"]]
    command = [sys.executable, "-c", "from odradek.cli import main; main()"]
    arguments = ["0" if before == "--port" else word for before, word in pairwise(up[:-1])]
    broker = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert broker.stdout is not None
        address = broker.stdout.readline().strip()
        assert subprocess.run([*command, *ready[1:], "--bootstrap", address], timeout=WAIT_S).returncode == 0
    finally:
        broker.terminate()
        assert broker.wait(WAIT_S) == 0


def test_it_has_at_most_700_words() -> None:
    assert len(README.read_text().split()) <= WORDS_MAX
