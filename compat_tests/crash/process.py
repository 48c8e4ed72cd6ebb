"""`odradek up`, which kills itself at a crash point: `python -m compat_tests.crash.process POINT SEED FILE ARGUMENTS`.

`POINT` is JSON: the kind of a disk operation (or null for any) and its number. At the crash the process appends the
operation to `FILE`.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys

from odradek.cli import main
from odradek_broker import environment as environment
from odradek_log.disk import Disk, RealDisk
from simulation.crash_points import CrashingDisk


def crash_at(point: str, seed: str, file: str) -> None:
    """Make every disk of this process end the process at the crash point."""
    kind, number = json.loads(point)

    def make(*, sync: bool) -> Disk:
        disk = CrashingDisk(RealDisk(sync=sync), random.Random(seed), lambda: end(disk))
        disk.crash_at(None if kind is None else tuple(kind), number)
        return disk.as_disk()

    def end(disk: CrashingDisk) -> None:
        with open(file, "a") as stream:
            stream.write(json.dumps(disk.reached[-1]) + "\n")
        os.kill(os.getpid(), signal.SIGKILL)

    vars(environment)["RealDisk"] = make


if __name__ == "__main__":
    crash_at(*sys.argv[1:4])
    sys.argv[1:] = sys.argv[4:]
    main()
