"""Measurements. They build models as the tests do, whose folder pytest's `pythonpath` finds."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
