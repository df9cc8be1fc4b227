"""Whatever is in a file: a conversion that verifies, or one clear line; never a traceback or a crash.

The files are the models of `seeds`, damaged by `mutants`; what may come of it is said in `damaged`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import damaged
import pytest
import seeds

#: The zoo's models take longer each than the small ones that were made for this.
SMALL = [name for name in seeds.NAMES if name in seeds.BUILDERS]
ZOO = [name for name in seeds.NAMES if name not in seeds.BUILDERS]


def infos(outcomes: Sequence[damaged.Outcome]) -> str:
    """What should not have happened, with what is needed to reproduce it."""
    found = [o for o in outcomes if o.info]
    return "\n".join(f"{o.seed} {o.number} ({o.damage}): {o.info}" for o in found)


def test_damaged_files_are_converted_or_refused(tmp_path):
    cases = [(seed, number) for number in range(5) for seed in SMALL]
    cases += [(seed, number) for number in range(2) for seed in ZOO]
    outcomes = list(damaged.outcomes(cases, tmp_path))
    assert not infos(outcomes), infos(outcomes)
    assert len(outcomes) == len(cases)
    kinds = Counter(o.kind for o in outcomes)
    assert {"verified", "ModelFileError", "ConversionError"} <= kinds.keys(), kinds


@pytest.mark.slow
def test_damaged_files_at_length(tmp_path):
    cases = [(seed, number) for number in range(1000, 2700) for seed in SMALL]
    cases += [(seed, number) for number in range(1000, 1200) for seed in ZOO]
    outcomes = list(damaged.outcomes(cases, tmp_path, processes=2))
    print(len(outcomes), Counter(o.kind for o in outcomes))
    assert len(outcomes) >= 50_000
    assert not infos(outcomes), infos(outcomes)
