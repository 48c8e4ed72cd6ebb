"""Old releases of clients, each in its own folder, because the newer release has the same package name.

A test runs such a client in a process with that folder on PYTHONPATH.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from odradek_peers.cache import filled_once

_KAFKA_PYTHON_2_0_2 = ["kafka-python==2.0.2", "crc32c", "python-snappy", "lz4", "zstandard", "six"]


def kafka_python_2_0_2() -> Path:
    """Return a folder for PYTHONPATH with kafka-python 2.0.2 and the libraries of its codecs."""
    python = f"py{sys.version_info.major}{sys.version_info.minor}"
    return filled_once(f"kafka-python-2.0.2-six-{python}", _install_kafka_python)


def _install_kafka_python(folder: Path) -> None:
    _install(_KAFKA_PYTHON_2_0_2, folder)
    # Python 3.12 cannot import from the bundled copy of six, because the importer of that copy lacks find_spec.
    shutil.copy(folder / "six.py", folder / "kafka" / "vendor" / "six.py")


def _install(requirements: list[str], folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", str(folder)]
    done = subprocess.run([*command, *requirements], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"pip could not install {requirements}:\n{done.stderr[-3000:]}")
