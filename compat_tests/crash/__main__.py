"""`python -m compat_tests.crash --seeds 100`: run seeds, print the crash points that were reached and the failures."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from compat_tests.crash.run import Failure, run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, help="run only this seed")
    parser.add_argument("--crashes", type=int, default=10, help="number of crashes in each run")
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    if arguments.seed is not None:
        seeds = range(arguments.seed, arguments.seed + 1)
    began, failed, reached = time.monotonic(), 0, 0
    for seed in seeds:
        with tempfile.TemporaryDirectory(prefix="odradek-crash-") as directory:
            try:
                reached += len(run(seed, Path(directory), arguments.crashes))
            except Failure as failure:
                failed += 1
                print(failure, file=sys.stderr)
    took_s = time.monotonic() - began
    crashes = len(seeds) * (arguments.crashes + 1)
    print(
        f"{crashes} crashes, {reached} at chosen operations, in {took_s:.0f} s; {failed} runs failed", file=sys.stderr
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
