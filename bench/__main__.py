"""`python -m bench [ROW …]`: measure, and print the table as Markdown.

A whole run in which no row failed also replaces the runs in bench/results.md; its summary is written by hand. `--quick`
runs everything once with tiny sizes, to check that it works, and writes no file. PEER=name=host:port[,name=host:port …]
in the environment adds brokers that are running already.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

from bench.machine import description
from bench.measurement import Measurement
from bench.results import RESULTS, with_runs
from bench.rows import NAMES, measurements_of
from bench.session import Session
from bench.table import markdown, verdict


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"one of {', '.join(NAMES)}; default: all")
    parser.add_argument("--quick", action="store_true", help="run everything once with tiny sizes")
    parser.add_argument("--runs", type=int, default=5, help="the largest number of runs per broker; default: 5")
    parser.add_argument("--output", type=Path, help="a file for the table, in place of bench/results.md")
    options = parser.parse_args()
    unknown = sorted(set(options.rows) - set(NAMES))
    if unknown:
        parser.error(f"unknown rows: {', '.join(unknown)}; the rows are {', '.join(NAMES)}")
    # As Ctrl-C does, stop the brokers and delete their data.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    _raise_file_limit()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # the starts of brokers are measured with compiled modules
    command = "PEER=… " * ("PEER" in os.environ) + " ".join(["make bench", *sys.argv[1:]])
    machine = description(command, options.runs)
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
        session = Session(Path(folder), _peers(os.environ.get("PEER", "")), quick=options.quick, runs=options.runs)
        try:
            measurements, failed = _measure(session, options.rows or NAMES)
        finally:
            session.close()
    text = f"{markdown(measurements)}\n{machine}"
    if failed:
        text += f"\nRows without figures, because they failed or the run was interrupted: {', '.join(failed)}.\n"
    print(text)
    if options.output:
        options.output.write_text(text)
    elif not (options.quick or options.rows or failed):
        RESULTS.write_text(with_runs(RESULTS.read_text(), text))
    return 1 if failed else 0


def _measure(session: Session, rows: list[str] | tuple[str, ...]) -> tuple[list[Measurement], list[str]]:
    """Return the measurements, and the rows that failed or that Ctrl-C interrupted."""
    measurements: list[Measurement] = []
    failed: list[str] = []
    for row in rows:
        begun = time.monotonic()
        session.say(row)
        try:
            for measurement in measurements_of(row)(session):
                measurements.append(measurement)
                session.say(_progress(measurement))
        except KeyboardInterrupt:
            failed += rows[rows.index(row) :]
            break
        except Exception:
            traceback.print_exc()
            failed.append(row)
        session.say(f"{row} took {time.monotonic() - begun:.0f} s")
    return measurements, failed


def _progress(measurement: Measurement) -> str:
    figures = ", ".join(f"{column} {figure:.4g}" for column, figure in measurement.figures.items())
    verdicts = " ".join(verdict(target, measurement.figures) for target in measurement.targets)
    return f"  {measurement.work}: {figures} {measurement.unit} {verdicts} {measurement.note}"


def _peers(text: str) -> dict[str, str]:
    peers = {}
    for entry in filter(None, text.split(",")):
        name, separator, address = entry.partition("=")
        if not separator:
            raise SystemExit(f"PEER={entry} is not of the form name=host:port")
        peers[name] = address
    return peers


def _raise_file_limit() -> None:
    """Allow thousands of connections, here and in the servers, which inherit the limit of open files."""
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))


if __name__ == "__main__":
    sys.exit(main())
