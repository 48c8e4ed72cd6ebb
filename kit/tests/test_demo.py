"""`make demo`, with visitors for two seconds only."""

import subprocess
import sys


def test_the_demo_ends_by_itself_and_every_count_is_right() -> None:
    done = subprocess.run([sys.executable, "-m", "odradek.demo", "2"], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    verdict = [line.strip() for line in done.stdout.splitlines()[-6:]]
    assert verdict[:2] == ["right  1,001 records sent and acknowledged", "right  the job read each record once"]
    assert [line.split()[0] for line in verdict] == ["right"] * 6
