"""`python -m bench [ROW …]`: measure, print the table as Markdown, and write it to bench/results.md.

`--quick` runs everything once with tiny sizes, to see that it works; it and runs of single rows write no file.
PEER=name=host:port in the environment adds a broker that is running already (several: separated by commas).
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
import traceback
from pathlib import Path

from bench.line import Line
from bench.machine import description
from bench.rows import NAMES, lines_of
from bench.session import Session
from bench.table import markdown, verdict

_RESULTS = Path(__file__).with_name("results.md")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(NAMES)}; default: all")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--runs", type=int, default=5, help="how often each broker has its turn, at most; default: 5")
    parser.add_argument(
        "--output", type=Path, help="write the table here too; default: bench/results.md for a whole run"
    )
    options = parser.parse_args()
    unknown = sorted(set(options.rows) - set(NAMES))
    if unknown:
        parser.error(f"no such row: {', '.join(unknown)}; there are {', '.join(NAMES)}")
    _raise_file_limit()
    command = "PEER=… " * ("PEER" in os.environ) + " ".join(["make bench", *sys.argv[1:]])
    machine = description(command, options.runs)
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
        session = Session(Path(folder), _peers(os.environ.get("PEER", "")), quick=options.quick, runs=options.runs)
        try:
            lines, failed = _measure(session, options.rows or NAMES)
        finally:
            session.close()
    text = f"{markdown(lines)}\n{machine}"
    if failed:
        text += f"\nNot measured, because they failed or the run was ended: {', '.join(failed)}.\n"
    print(text)
    output = options.output or (None if options.quick or options.rows else _RESULTS)
    if output:
        output.write_text(text)
    return 1 if failed else 0


def _measure(session: Session, rows: list[str] | tuple[str, ...]) -> tuple[list[Line], list[str]]:
    """The lines, and the rows that failed or were cut short by Ctrl-C: what others have measured is not lost."""
    lines: list[Line] = []
    failed: list[str] = []
    for row in rows:
        begun = time.monotonic()
        session.say(row)
        try:
            for line in lines_of(row)(session):
                lines.append(line)
                session.say(_progress(line))
        except KeyboardInterrupt:
            failed += rows[rows.index(row) :]
            break
        except Exception:
            traceback.print_exc()
            failed.append(row)
        session.say(f"{row} took {time.monotonic() - begun:.0f} s")
    return lines, failed


def _progress(line: Line) -> str:
    figures = ", ".join(f"{column} {figure:.4g}" for column, figure in line.figures.items())
    verdicts = " ".join(verdict(target, line.figures) for target in line.targets)
    return f"  {line.work}: {figures} {line.unit} {verdicts} {line.note}"


def _peers(text: str) -> dict[str, str]:
    peers = {}
    for entry in filter(None, text.split(",")):
        name, separator, address = entry.partition("=")
        if not separator:
            raise SystemExit(f"PEER={entry}: name=host:port is wanted")
        peers[name] = address
    return peers


def _raise_file_limit() -> None:
    """Thousands of connections are as many files, here and in the servers, which inherit the limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    sys.exit(main())
