"""Folders below ~/.cache/odradek/peers (or $ODRADEK_PEERS), each filled once, by the first process that needs it.

A lock, a temporary folder and a rename make this safe for concurrent processes. The caller provides the content.
"""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path


def peers_home() -> Path:
    """Return the folder of the peers: $ODRADEK_PEERS, else odradek/peers in the user's cache folder."""
    chosen = os.environ.get("ODRADEK_PEERS")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "odradek" / "peers"


def filled_once(name: str, fill: Callable[[Path], None]) -> Path:
    """Return the folder `name`, and call `fill` on an empty folder first if it does not exist.

    A folder that exists is complete, because it gets its name last. Other processes wait for the process that fills it.
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
