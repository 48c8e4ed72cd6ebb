"""`python -m simulation --seeds 1000`: run seeds on all processors; print nothing but what fails."""

from __future__ import annotations

import argparse
import os
import sys
import time
from multiprocessing import Pool

from simulation.simulation import Failure, simulate


def outcome(seed: int) -> tuple[int, str | None]:
    try:
        simulate(seed)
    except Failure as failure:
        return seed, str(failure)
    return seed, None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    if arguments.seed is not None:
        seeds = range(arguments.seed, arguments.seed + 1)
    failed: list[int] = []
    began = time.monotonic()
    with Pool(min(arguments.workers, len(seeds))) as pool:
        for seed, failure in pool.imap_unordered(outcome, seeds):
            if failure is not None:
                failed.append(seed)
                print(failure, file=sys.stderr)
    if failed:
        took_s = time.monotonic() - began
        print(f"{len(failed)} of {len(seeds)} seeds failed in {took_s:.0f} s: {sorted(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
