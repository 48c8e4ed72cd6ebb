"""Old clients can be imported by every Python that the project supports."""

from __future__ import annotations

import os
import subprocess
import sys

from odradek_peers.old_clients import kafka_python_2_0_2


def test_kafka_python_2_0_2_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import kafka; print(kafka.__version__, kafka.KafkaProducer.__name__)"],
        env={**os.environ, "PYTHONPATH": str(kafka_python_2_0_2())},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "2.0.2 KafkaProducer\n"), done.stderr
