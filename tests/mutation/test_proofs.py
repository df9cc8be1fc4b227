"""No wrong conversion is proven.

pytest tests/mutation               all models that were written by hand, and samples
pytest -m slow tests/mutation       2,000 models that are wrong for rare sizes, with harmless twins, and
                                    mutants of all models, in all forms and strategies
"""

from __future__ import annotations

from itertools import count, islice

import grid
import onnxruntime
import pytest
import refuting
import subjects
from refuting import Outcome
from wrong_models import WRONG

#: Wrong models that are proven today, with the reason.
OPEN: dict[str, str] = {
    "BatchToSpace that fails where all is cropped": "proofs assume that results have elements",
}
#: Models that fail before onnxruntime 1.32 only. The prover assumes the worst.
MENDED = {
    "sum of a table without rows, along a negative axis",
    "maximum of a table that has no rows once, along a negative axis",
}
NEW = tuple(map(int, onnxruntime.__version__.split(".")[:2])) >= (1, 32)


def wrong_proofs(found: list[Outcome]) -> list[str]:
    """The wrong models that are proven or that the prover fails with."""
    return [
        f"{o.kind}: {o.what}\n  {o.crash or o.wrong}"
        for o in found
        if o.crash or (o.proven and o.wrong is not None)
    ]


def _written() -> list[object]:
    return [
        pytest.param(
            number,
            id=wrong.name,
            marks=[pytest.mark.xfail(strict=True, reason=OPEN[wrong.name])]
            if wrong.name in OPEN
            else [],
        )
        for number, wrong in enumerate(WRONG)
    ]


@pytest.mark.parametrize("number", _written())
def test_models_by_hand_are_not_proven(number: int) -> None:
    outcome = refuting.written(number)
    mended = NEW and outcome.what in MENDED
    assert outcome.wrong is not None or mended, "the model is right"
    assert not wrong_proofs([outcome]) and not outcome.proven


@pytest.mark.parametrize("seed", [8, 17, 21, 25, 33, 37, 42, 45])
def test_models_wrong_for_rare_sizes_are_not_proven(seed: int) -> None:
    mutant, twin = refuting.drawn(seed)
    assert mutant.wrong is not None, "the model is right"
    assert not wrong_proofs([mutant, twin])


@pytest.mark.parametrize(
    ("subject", "strategy", "fuse"),
    [
        ("s2b_float", "slices", False),
        ("b2s_int32", "transpose", False),
        ("s2b_int64_dynamic_pads", None, True),
        ("patches_uint8", "gather", False),
    ],
)
def test_mutants_are_not_proven(subject: str, strategy: str | None, fuse: bool) -> None:
    found = refuting.general(subject, strategy, fuse, share=1, seed=0)
    assert len(found) >= 5
    assert not wrong_proofs(found), "\n".join(wrong_proofs(found))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(40))
def test_2000_models_wrong_for_rare_sizes_are_not_proven(part: int) -> None:
    drawn = (outcomes for seed in count(part * 1000) if (outcomes := refuting.drawn(seed))[1:])
    found = [outcome for outcomes in islice(drawn, 50) for outcome in outcomes]
    assert not wrong_proofs(found), "\n".join(wrong_proofs(found))


@pytest.mark.slow
@pytest.mark.parametrize("subject", subjects.NAMES)
def test_all_mutants_are_not_proven(subject: str) -> None:
    found = [o for form in refuting.forms([subject]) for o in refuting.general(*form, 2, 0)]
    assert found
    assert not wrong_proofs(found), "\n".join(wrong_proofs(found))


@pytest.mark.slow
@pytest.mark.parametrize("row", [row.name for row in grid.ROWS])
def test_mutants_of_the_grid_are_not_proven(row: str) -> None:
    cells = [name for name in subjects.CELLS if name.startswith(f"{row}/")]
    found = [o for form in refuting.forms(cells) for o in refuting.general(*form, 1, 0)]
    assert found
    assert not wrong_proofs(found), "\n".join(wrong_proofs(found))
