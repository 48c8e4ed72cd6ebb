"""One folder below ~/.cache/odradek/peers (or $ODRADEK_PEERS), filled once, by the first process.

Owns the lock, the temporary folder and the rename that make filling it safe for several processes at once; leaves to
the caller what goes in.
"""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path


def peers_home() -> Path:
    """Where peers live: $ODRADEK_PEERS, else odradek/peers in the user's cache folder."""
    chosen = os.environ.get("ODRADEK_PEERS")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "odradek" / "peers"


def filled_once(name: str, fill: Callable[[Path], None]) -> Path:
    """The folder `name`, complete: either it was there, or `fill` has just succeeded in an empty one.

    A folder that exists is complete, because it gets its name last. Other processes wait for the one that fills.
    """
    home = peers_home()
    folder = home / name
    if folder.is_dir():
        return folder
    home.mkdir(parents=True, exist_ok=True)
    with (home / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():
            return folder
        partial = home / f".{name}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        fill(partial)
        partial.rename(folder)
    return folder
