"""`odradek up` in its own process, which ends with the tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from odradek_peers.processes import killed_with_parent


def up(
    log: Path,
    arguments: Iterable[str],
    options: Mapping[str, str],
    *,
    prefix: tuple[str, ...] = (),
    program: tuple[str, ...] | None = None,
    may_end: bool = False,
) -> tuple[subprocess.Popen[str], str]:
    """Start the process and return it with the address that it prints when it listens. Its log is appended to `log`;
    `prefix` begins the command, and `program` replaces `odradek up`. With `may_end` the process may end before it
    listens; the address is then empty."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            [
                *prefix,
                *killed_with_parent(),
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
