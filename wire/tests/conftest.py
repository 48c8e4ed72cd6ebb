"""Makes the shared parts of these tests importable (`wire_samples`, `wire_facts`)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
