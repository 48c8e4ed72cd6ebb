"""`python -m simulation --seeds 1000`: run seeds of each kind of cluster on all processors and print the failures."""

from __future__ import annotations

import argparse
import os
import sys
import time
from multiprocessing import Pool

from simulation.simulation import KINDS, ClusterKind, Failure, simulate


def outcome(run: tuple[ClusterKind, int]) -> tuple[str, str | None]:
    kind, seed = run
    try:
        simulate(seed, kind)
    except Failure as failure:
        return f"{kind} {seed}", str(failure)
    return f"{kind} {seed}", None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", nargs="?", choices=(*KINDS, "all"), default="all", help="default: all")
    parser.add_argument("--seeds", type=int, default=200, help="the number of seeds per kind; default: 200")
    parser.add_argument("--first", type=int, default=0, help="the first seed; default: 0")
    parser.add_argument("--seed", type=int, help="run this seed only")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="default: one per processor")
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    if arguments.seed is not None:
        seeds = range(arguments.seed, arguments.seed + 1)
    kinds = [kind for kind in KINDS if arguments.kind in (kind, "all")]
    runs = [(kind, seed) for seed in seeds for kind in kinds]
    failed: list[str] = []
    began = time.monotonic()
    with Pool(min(arguments.workers, len(runs))) as pool:
        for name, failure in pool.imap_unordered(outcome, runs):
            if failure is not None:
                failed.append(name)
                print(failure, file=sys.stderr)
    if failed:
        took_s = time.monotonic() - began
        names = ", ".join(sorted(failed))
        print(f"{len(failed)} of {len(runs)} runs failed in {took_s:.0f} s: {names}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
