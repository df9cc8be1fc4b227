"""No wrong conversion is proven: a mistake that a user of `verify` could not notice.

    pytest tests/mutation               models that were written by hand, and samples
    pytest -m slow tests/mutation       2,000 models that are wrong for rare sizes, with harmless twins;
                                        mutants of all models in all forms; many deceptions

The seed of the campaigns is the week, or SEED of the environment: every week draws other models.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from datetime import date
from itertools import chain, count, islice

import corpora
import deceptions
import grid
import numpy as np
import onnxruntime
import pytest
import rewriting
import subjects
from adapter import prove, verify
from corpora import Form
from judging import Judge, Pair, apart
from wrong_models import WRONG

from onnx_spatial import SpatialError
from onnx_spatial.verification.match.matches import ChangedPart

SEED = int(os.environ.get("SEED", date.today().strftime("%G%V")))

#: Models that fail before onnxruntime 1.32 only. The prover assumes the worst.
MENDED = {
    "sum of a table without rows, along a negative axis",
    "maximum of a table that has no rows once, along a negative axis",
}
NEW = tuple(map(int, onnxruntime.__version__.split(".")[:2])) >= (1, 32)


def is_proven(pair: Pair, likes: dict[int, frozenset[bytes]]) -> bool:
    """Whether the prover says that a pair computes the same.

    Parts that are those of the right conversion do not count: one that is not proven hides no mistake
    elsewhere.
    """
    try:
        proofs = prove(pair.original, pair.changed)
    except SpatialError:
        return False
    if pair.right is not None and id(pair.right) not in likes:
        parts = prove(pair.original, pair.right).parts
        likes[id(pair.right)] = frozenset(content(part) for part, _ in parts)
    like = likes.get(id(pair.right), frozenset())
    others = (proof for part, proof in proofs.parts if content(part) not in like)
    return not proofs.rest and all(proof.found is None for proof in others)


def content(part: ChangedPart) -> bytes:
    return part.converted().SerializeToString(deterministic=True)


def check(pairs: Iterable[Pair], least: int) -> None:
    """No wrong model is proven, of at least so many."""
    likes: dict[int, frozenset[bytes]] = {}
    asked = [(pair, is_proven(pair, likes)) for pair in pairs]
    proven = [pair for pair, said in asked if said]
    print(f"{len(asked)} models, {len(proven)} proven")
    shown = {pair.name: pair.wrong() for pair in proven}
    assert {name: how for name, how in shown.items() if how is not None} == {}
    assert len(asked) >= least


def mutants(names: Iterable[Form], share: int, seed: int) -> Iterator[Pair]:
    """So many mutants of each class of each form."""
    for form in names:
        for kind in form.classes():
            yield from islice(form.mutants(kind, seed), share)


def deceived(kind: str, numbers: Iterable[int], seed: int) -> Iterator[Pair]:
    return chain.from_iterable(corpora.deception(kind, number, seed) for number in numbers)


@pytest.mark.parametrize("number", range(len(WRONG)), ids=[wrong.name for wrong in WRONG])
def test_models_by_hand_are_not_proven(number: int) -> None:
    (pair,) = corpora.written(number)
    mended = NEW and WRONG[number].name in MENDED
    assert pair.wrong() is not None or mended, "the model is right"
    assert not prove(pair.original, pair.changed).is_proven


@pytest.mark.parametrize("seed", [8, 17, 21, 25, 33, 37, 42, 45])
def test_models_wrong_for_rare_sizes_are_not_proven(seed: int) -> None:
    check(corpora.rare(seed, twin=True), 2)


@pytest.mark.parametrize(
    "form",
    [
        Form("s2b_float", "slices", False),
        Form("b2s_int32", "transpose", False),
        Form("s2b_int64_dynamic_pads", None, True),
        Form("patches_uint8", "gather", False),
        Form("foreign", None, True),
        Form("space_to_batch/LSTM", None, True),
        Form("dilated2d Add BatchNormalization Relu float", None, True),
    ],
    ids=str,
)
def test_mutants_are_not_proven(form: Form) -> None:
    check(mutants([form], 1, 0), 5)


@pytest.mark.parametrize("kind", deceptions.CLASSES)
def test_deceptions_are_not_proven(kind: str) -> None:
    check(deceived(kind, range(3), 0), 1)


@pytest.mark.parametrize("kind", rewriting.CLASSES)
def test_conversions_that_are_written_in_another_way_pass(kind: str) -> None:
    made = rewriting.draw(kind, 11)
    assert made is not None and made.wrong() is None
    result = verify(made.original, made.changed)
    assert result.status == "passed", f"{made.name}: {result.message}"


def test_a_judge_sees_what_differs() -> None:
    net = subjects.get("patches/relu")
    model = rewriting.converted(net.model)
    judge = Judge(net.model, model, [net.feeds(np.random.default_rng(0))])
    assert judge.difference(model) is None
    other = rewriting.converted(subjects.tailed("patches", "other", "y = Relu (z)").model)
    assert judge.difference(other)[0] == "silent"
    other.graph.output[0].name = "other"
    assert judge.difference(other)[0] == "loud"
    whole, broken = np.array([1.0, np.nan]), np.array([1.0, 0.0])
    assert apart(whole, whole) == 0
    assert apart(whole, broken) == float("inf")
    assert apart(np.array([2.0, 1.0]), np.array([2.0, 1.5])) == 0.25


@pytest.mark.slow
@pytest.mark.parametrize("part", range(40))
def test_2000_models_wrong_for_rare_sizes_are_not_proven(part: int) -> None:
    drawn = (corpora.rare(n, twin=True) for n in count(SEED * 10**6 + part * 1000))
    check(islice(chain.from_iterable(drawn), 100), 100)


@pytest.mark.slow
@pytest.mark.parametrize("subject", [*subjects.NAMES, *subjects.NETS])
def test_all_mutants_are_not_proven(subject: str) -> None:
    check(mutants(corpora.forms([subject]), 2, SEED), 20)


@pytest.mark.slow
@pytest.mark.parametrize("row", [row.name for row in grid.ROWS])
def test_mutants_of_the_grid_are_not_proven(row: str) -> None:
    cells = [name for name in subjects.CELLS if name.startswith(f"{row}/")]
    check(mutants(corpora.forms(cells), 1, SEED), 20)


@pytest.mark.slow
@pytest.mark.parametrize("kind", deceptions.CLASSES)
def test_many_deceptions_are_not_proven(kind: str) -> None:
    check(deceived(kind, range(60), SEED), 20)
