"""`verify` notices every wrong version of a converted model, and none of the right ones.

pytest tests/mutation               a sample: one mutant of each class for some models
pytest -m slow tests/mutation       1,700 mutants of all models and forms, 2,000 runs of right ones, and
                                    some mutants of every cell of the grid
"""

from __future__ import annotations

import grid
import mutating
import pytest
import subjects
from mutating import Outcome

#: Small models that cover all classes between them.
SAMPLE = (
    ("wavenet", None, True),
    ("openvino_style", "transpose", False),
    ("leftover", None, True),
    ("video", "slices", False),
    ("wavenet_noncausal", None, True),
    ("s2b_float", "slices", False),
    ("patches_uint8", "gather", False),
    ("s2b_int64_dynamic_pads", None, True),
    ("openvino_space_to_batch/computed", None, True),
    ("tf_batch_to_space_nd/subgraph_loop", "transpose", False),
    ("tf_extract_volume_patches_same/function", None, True),
)


def missed(found: list[Outcome]) -> list[str]:
    """The mutants that differ on a legal input and are not said to."""
    return [
        f"{o.kind}: {o.subject}: {o.what}\n  {o.why}\n  {o.message}"
        for o in found
        if o.differs and o.status == "passed"
    ]


@pytest.mark.parametrize(("subject", "strategy", "fuse"), SAMPLE)
def test_mutants_are_noticed(subject: str, strategy: str | None, fuse: bool) -> None:
    found = mutating.run(subject, strategy, fuse, share=1, seed=0)
    assert sum(bool(o.differs) for o in found) >= 4
    assert not missed(found), "\n".join(missed(found))


@pytest.mark.parametrize(("subject", "strategy", "fuse"), SAMPLE)
def test_right_conversions_are_not(subject: str, strategy: str | None, fuse: bool) -> None:
    verdicts = mutating.flagged(subject, strategy, fuse, range(1, 4))
    assert [v for v in verdicts if v[0] != "passed"] == []


@pytest.mark.slow
@pytest.mark.parametrize("subject", subjects.NAMES)
def test_all_mutants_are_noticed(subject: str) -> None:
    forms = [form for form in mutating.forms() if form[0] == subject]
    found = [o for form in forms for o in mutating.run(*form, share=2, seed=0)]
    print(mutating.table(found))
    assert sum(bool(o.differs) for o in found) >= 20
    assert not missed(found), "\n".join(missed(found))


@pytest.mark.slow
@pytest.mark.parametrize("subject", subjects.NAMES)
def test_no_right_conversion_is_flagged(subject: str) -> None:
    forms = [form for form in mutating.forms() if form[0] == subject]
    each = -(-110 // len(forms))
    verdicts = [v for form in forms for v in mutating.flagged(*form, range(1, 1 + each))]
    assert len(verdicts) >= 110
    assert [v for v in verdicts if v[0] != "passed"] == []


@pytest.mark.slow
@pytest.mark.parametrize("row", [row.name for row in grid.ROWS])
def test_mutants_of_the_grid_are_noticed(row: str) -> None:
    made = [form for form in mutating.cells(len(grid.CELLS), 0) if form[0].startswith(f"{row}/")]
    found = [o for form in made for o in mutating.run(*form, share=1, seed=0)]
    assert sum(bool(o.differs) for o in found) >= 20
    assert not missed(found), "\n".join(missed(found))
    verdicts = [v for form in made for v in mutating.flagged(*form, range(1, 4))]
    assert [v for v in verdicts if v[0] != "passed"] == []
