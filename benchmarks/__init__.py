"""Measurements. They build models as the tests do."""

import sys
from pathlib import Path

# What pytest's `pythonpath` does.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
