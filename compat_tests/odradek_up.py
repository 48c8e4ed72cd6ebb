"""`odradek up` in a process of its own, which ends with the tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from odradek_peers.processes import dying_with_us


def up(
    log: Path,
    arguments: Iterable[str],
    options: Mapping[str, str],
    *,
    prefix: tuple[str, ...] = (),
    program: tuple[str, ...] | None = None,
    may_end: bool = False,
) -> tuple[subprocess.Popen[str], str]:
    """The process and the address that it has printed: it listens there. What it logs is appended to `log`; `prefix`
    begins its command, `program` takes the place of `odradek up` in it. No address if it `may_end` before and did."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            [
                *prefix,
                *dying_with_us(),
                *(program or (str(Path(sys.executable).with_name("odradek")), "up")),
                *arguments,
                *(f"--option={name}={value}" for name, value in options.items()),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
        )
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    assert address or may_end, log.read_text()[-3000:]
    return process, address
