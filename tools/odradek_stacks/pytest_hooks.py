"""Add the stacks of all processes to the report of a test that has timed out.

A test that fails after a long time counts as timed out, whatever its exception is: `TimeoutError`, an assertion after a
deadline, pytest-timeout. The plugin collects stacks while a test runs long, when the test's own servers still run, and
again at the failure, when only the servers of fixtures run. The whole text is in `build/stacks/`, its beginning in the
report.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from odradek_stacks.collect import stacks_of_all
from odradek_stacks.process import DIRECTORY

TIMEOUT_MIN_S = 5.0
"""A test that fails earlier has not timed out: the shortest deadline in the tests is 10 s."""
FIRST_COLLECTION_S = 50.0
"""The plugin collects the stacks of a running test after this time, and then each time its age has doubled."""
_LINES_MAX = 500
_SITE = str(Path(__file__).parent / "site")


class _Watch:
    """A thread that collects the stacks of a phase of a test (setup, call, teardown) that runs long."""

    def __init__(self) -> None:
        self._phase: tuple[object, float, float] | None = None
        self._collected: tuple[object, str] | None = None
        threading.Thread(target=self._run, name="stacks of long tests", daemon=True).start()

    def begin(self) -> None:
        now = time.monotonic()
        self._phase = object(), now, now + FIRST_COLLECTION_S

    def end(self) -> str:
        """Return the last stacks of the phase, or an empty string."""
        phase, collected = self._phase, self._collected
        self._phase = self._collected = None
        return collected[1] if phase is not None and collected is not None and collected[0] is phase[0] else ""

    def _run(self) -> None:
        while True:
            time.sleep(1)
            phase = self._phase
            if phase is None or time.monotonic() < phase[2]:
                continue
            token, began, _ = phase
            ran_s = time.monotonic() - began
            self._collected = token, f"######## after {ran_s:.0f} s\n{_stacks()}"
            if self._phase is phase:
                self._phase = token, began, began + 2 * ran_s


class TimeoutStacks:
    """The plugin; `pytest_configure` registers one."""

    def __init__(self, kept: Path) -> None:
        self._kept = kept
        self._watch = _Watch()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None]:
        self._watch.begin()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self) -> Generator[None]:
        self._watch.begin()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Generator[None]:
        self._watch.begin()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        before = self._watch.end()
        if report.failed and call.duration >= TIMEOUT_MIN_S:
            text = f"{before}\n######## after the failure, {call.duration:.0f} s\n{_stacks()}\n"
            file = self._kept / f"{re.sub(r'[^A-Za-z0-9]+', '-', item.nodeid)[-150:]}-{report.when}.txt"
            self._kept.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            lines = text.splitlines()
            shown = [*lines[:_LINES_MAX], *([f"({len(lines)} lines in all)"] if len(lines) > _LINES_MAX else [])]
            report.sections.append((f"Timeout: stacks of all processes, also in {file}", "\n".join(shown)))
        return report


def _stacks() -> str:
    try:
        return stacks_of_all()
    except Exception as error:  # an error here must not replace the test's failure
        return f"(no stacks: {error!r})"


def pytest_configure(config: pytest.Config) -> None:
    """Install the signal handler in every Python process that the tests start."""
    if DIRECTORY not in os.environ:  # a worker of xdist has its parent's
        os.environ[DIRECTORY] = directory = tempfile.mkdtemp(prefix="odradek-stacks-")
        config.add_cleanup(lambda: shutil.rmtree(directory, ignore_errors=True))
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [_SITE, os.environ.get("PYTHONPATH", "")]))
    config.pluginmanager.register(TimeoutStacks(config.rootpath / "build" / "stacks"), "odradek-stacks")
