"""Memory that the machine has at hand, not its host.

A virtual machine gives free memory back to its host after a few seconds, and every page that is written for the first
time after that is fetched from there: writing a file was seen to cost five times as much processor time then. Whose
turn it is must not decide whether the page cache grows into such pages.
"""

from __future__ import annotations

import os
import subprocess
import sys

_BYTES_MAX = 3 << 30
_TOUCH = """
import mmap, sys
memory = mmap.mmap(-1, int(sys.argv[1]), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_HUGEPAGE)
for position in range(0, len(memory), mmap.PAGESIZE):
    memory[position] = 1
"""


def take_from_host() -> None:
    """Write to a few GB, at most a quarter of what is free, and give them back to the machine."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    subprocess.run([sys.executable, "-c", _TOUCH, str(min(_BYTES_MAX, free // 4))], check=True)
