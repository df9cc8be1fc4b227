"""No wrong conversion is proven.

    pytest tests/mutation               models that were written by hand, and samples
    pytest -m slow tests/mutation       2,000 models that are wrong for rare sizes, with harmless twins;
                                        mutants of all models in all forms; many deceptions

The seed of the campaigns is the week, or SEED of the environment: every week draws other models.
"""

from __future__ import annotations

import os
from datetime import date
from itertools import count, islice

import deceptions
import grid
import mutating
import onnxruntime
import pytest
import refuting
import subjects
from adapter import prove
from mutating import Form
from refuting import Outcome
from wrong import Wrong
from wrong_models import WRONG

SEED = int(os.environ.get("SEED", date.today().strftime("%G%V")))

#: Models that fail before onnxruntime 1.32 only. The prover assumes the worst.
MENDED = {
    "sum of a table without rows, along a negative axis",
    "maximum of a table that has no rows once, along a negative axis",
}
NEW = tuple(map(int, onnxruntime.__version__.split(".")[:2])) >= (1, 32)


def check(found: list[Outcome], least: int) -> None:
    """No wrong model is proven, of at least so many."""
    print(refuting.table(found))
    assert refuting.offenders(found) == []
    assert len(found) >= least


@pytest.mark.parametrize("wrong", WRONG, ids=[wrong.name for wrong in WRONG])
def test_models_by_hand_are_not_proven(wrong: Wrong) -> None:
    models = wrong.models()
    assert wrong.shown(*models) is not None or (NEW and wrong.name in MENDED), "the model is right"
    assert not prove(*models).is_proven


@pytest.mark.parametrize("seed", [8, 17, 21, 25, 33, 37, 42, 45])
def test_models_wrong_for_rare_sizes_are_not_proven(seed: int) -> None:
    check(refuting.rare(seed), 2)


@pytest.mark.parametrize(
    "form",
    [
        Form("s2b_float", "slices", False),
        Form("b2s_int32", "transpose", False),
        Form("s2b_int64_dynamic_pads", None, True),
        Form("patches_uint8", "gather", False),
    ],
    ids=str,
)
def test_mutants_are_not_proven(form: Form) -> None:
    check(refuting.mutants(form, 1, 0), 5)


@pytest.mark.parametrize("kind", deceptions.CLASSES)
def test_deceptions_are_not_proven(kind: str) -> None:
    check(refuting.deceived(kind, range(3), 0), 1)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(40))
def test_2000_models_wrong_for_rare_sizes_are_not_proven(part: int) -> None:
    seeds = count(SEED * 10**6 + part * 1000)
    drawn = islice(filter(None, map(refuting.rare, seeds)), 50)
    check([outcome for outcomes in drawn for outcome in outcomes], 100)


@pytest.mark.slow
@pytest.mark.parametrize("subject", subjects.NAMES)
def test_all_mutants_are_not_proven(subject: str) -> None:
    forms = mutating.forms([subject])
    check([o for form in forms for o in refuting.mutants(form, 2, SEED)], 20)


@pytest.mark.slow
@pytest.mark.parametrize("row", [row.name for row in grid.ROWS])
def test_mutants_of_the_grid_are_not_proven(row: str) -> None:
    cells = [name for name in subjects.CELLS if name.startswith(f"{row}/")]
    check([o for form in mutating.forms(cells) for o in refuting.mutants(form, 1, SEED)], 20)


@pytest.mark.slow
@pytest.mark.parametrize("kind", deceptions.CLASSES)
def test_many_deceptions_are_not_proven(kind: str) -> None:
    check(refuting.deceived(kind, range(60), SEED), 20)
