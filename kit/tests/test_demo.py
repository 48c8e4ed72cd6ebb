"""`make demo`, with two seconds of page views."""

import subprocess
import sys


def test_the_demo_ends_with_correct_counts() -> None:
    done = subprocess.run([sys.executable, "-m", "odradek.demo", "2"], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    verdict = [line.strip() for line in done.stdout.splitlines()[-6:]]
    assert verdict[:2] == ["right  1,001 records sent and acknowledged", "right  the job read each record once"]
    assert [line.split()[0] for line in verdict] == ["right"] * 6
