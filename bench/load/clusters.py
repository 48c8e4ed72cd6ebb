"""The time from `Cluster()` to its first Metadata response, in one process: `python -m bench.load.clusters`."""

from __future__ import annotations

import argparse
import json
import statistics
import time

from bench.ready import wait_for_metadata
from odradek import Cluster
from odradek.client.client import parse_address


def milliseconds(brokers: int) -> float:
    """Make and start one cluster. Return the time to its Metadata response."""
    begun = time.perf_counter()
    with Cluster(brokers=brokers) as cluster:
        wait_for_metadata(parse_address(cluster.bootstrap_servers.split(",")[0]), brokers=brokers)
        return (time.perf_counter() - begun) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clusters", type=int, default=9)
    parser.add_argument("--brokers", type=int, default=1)
    options = parser.parse_args()
    first = milliseconds(options.brokers)
    others = [milliseconds(options.brokers) for _ in range(options.clusters)]
    print(json.dumps({"first_ms": first, "ms": statistics.median(others)}))


if __name__ == "__main__":
    main()
