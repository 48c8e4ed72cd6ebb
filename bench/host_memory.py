"""Make free memory of the virtual machine resident on its host before each run.

A virtual machine returns free memory to its host after a few seconds. The first write to such a page is slow: writing a
file took five times the processor time. Each run must find the same memory, so the bench touches it before each run.
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
    """Write to 3 GiB, at most a quarter of the free memory, and free it again."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    subprocess.run([sys.executable, "-c", _TOUCH, str(min(_BYTES_MAX, free // 4))], check=True)
