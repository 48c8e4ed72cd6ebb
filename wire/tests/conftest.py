"""Make the shared modules of these tests importable (`wire_samples`, `wire_facts`, `release_differences`)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
