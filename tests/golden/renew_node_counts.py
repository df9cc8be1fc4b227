"""Write node_counts.json anew, and say what changed; a wrong result stops it.

python tests/golden/renew_node_counts.py
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

TESTS = Path(__file__).parents[1]
# What pytest's `pythonpath` does.
sys.path[:0] = [str(TESTS), str(TESTS / "fusion"), str(TESTS.parent)]

from golden.checking import COUNTS, check, recorded_counts  # noqa: E402
from golden.subjects import subjects  # noqa: E402

SUBJECTS = subjects()


def main() -> int:
    old = recorded_counts() if COUNTS.exists() else {}
    with ProcessPoolExecutor() as pool:
        counts = pool.map(check_number, range(len(SUBJECTS)), chunksize=8)
        new = {subject.name: count for subject, count in zip(SUBJECTS, counts, strict=True)}
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            print(f"{name}: {old.get(name)} -> {new.get(name)}")
    COUNTS.write_text(json.dumps(new, indent=0) + "\n", "utf-8")
    shared = old.keys() & new.keys()
    before, after = (sum(counts[name] for name in shared) for counts in (old, new))
    print(
        f"{len(new)} subjects, {len(new.keys() - old.keys())} of them new; {before} -> {after} nodes"
    )
    return 0


def check_number(number: int) -> int:
    return check(SUBJECTS[number])


if __name__ == "__main__":
    sys.exit(main())
