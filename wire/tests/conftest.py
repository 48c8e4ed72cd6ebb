"""Makes the shared parts of these tests importable (`wire_samples`), and says how many examples to try."""

import os
import sys
from datetime import timedelta
from pathlib import Path

from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))

# `make soak` raises it.
EXAMPLES = int(os.environ.get("ODRADEK_EXAMPLES", "3"))

settings.register_profile(
    "wire",
    max_examples=EXAMPLES,
    deadline=timedelta(seconds=5),
    database=None,
    derandomize="ODRADEK_EXAMPLES" not in os.environ,
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("wire")
