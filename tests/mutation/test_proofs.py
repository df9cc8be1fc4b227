"""No wrong conversion is proven: a mistake that a user of `verify` could not notice.

These are models that were written by hand, and samples of what `benchmarks/verdicts.py` asks `verify`
about every week: other models each time.
"""

from collections.abc import Iterable
from itertools import islice

import numpy as np
import onnxruntime
import pytest
from adapter import prove
from mutation import corpora, subjects
from mutation.corpora import Form
from mutation.subjects import Judge, Pair, apart
from mutation.wrong_models import WRONG

from onnx_spatial import SpatialError
from onnx_spatial.verification.match.matches import ChangedPart

#: Models that fail before onnxruntime 1.32 only. The prover assumes the worst.
MENDED = {"maximum of a table that has no rows once, along a negative axis"}
NEW = tuple(map(int, onnxruntime.__version__.split(".")[:2])) >= (1, 32)


def content(part: ChangedPart) -> bytes:
    return part.converted().SerializeToString(deterministic=True)


def is_proven(pair: Pair) -> bool:
    """Whether the prover says that a pair computes the same.

    Parts that are those of the right conversion do not count: one that is not proven hides no mistake
    elsewhere.
    """
    try:
        proofs = prove(pair.original, pair.changed)
    except SpatialError:
        return False
    right = [] if pair.right is None else prove(pair.original, pair.right).parts
    like = {content(part) for part, _ in right}
    others = (proof for part, proof in proofs.parts if content(part) not in like)
    return not proofs.rest and all(proof.found is None for proof in others)


def check(pairs: Iterable[Pair], least: int) -> None:
    """No model is proven that runs and gives other numbers, of at least so many."""
    asked = [(pair, is_proven(pair)) for pair in pairs]
    shown = {pair.name: pair.wrong() or "" for pair, said in asked if said}
    assert {name: how for name, how in shown.items() if how.startswith("silent")} == {}
    assert len(asked) >= least


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.name)
def test_models_by_hand_are_not_proven(wrong) -> None:
    pair = wrong.pair()
    mended = NEW and wrong.name in MENDED
    assert pair.wrong() is not None or mended, "the model is right"
    assert not prove(pair.original, pair.changed).is_proven


@pytest.mark.parametrize("number", range(12))
def test_mistakes_by_a_number_are_not_proven(number: int) -> None:
    (pair,) = corpora.rare(number)
    mended = NEW and any(name in pair.name for name in MENDED)
    assert pair.wrong() is not None or mended, pair.name
    assert not is_proven(pair), pair.name


@pytest.mark.parametrize(
    "form",
    [
        Form("tf_space_to_batch_nd/dynamic", "slices", False),
        Form("tf_space_to_batch_nd/computed", None, True),
        Form("tf_extract_image_patches_same/dynamic", "row-gather", False),
        Form("dilated2d Add BatchNormalization Relu float", None, True),
    ],
    ids=str,
)
def test_mutants_are_not_proven(form: Form) -> None:
    check((pair for kind in corpora.MISTAKES for pair in islice(form.mutants(kind, 0), 1)), 5)


def test_a_judge_sees_what_differs() -> None:
    net = subjects.get("dilated2d Relu float")
    model = corpora.converted(net.model)
    judge = Judge(net.model, [net.feeds(np.random.default_rng(0))])
    assert judge.difference(model) is None
    other = corpora.converted(subjects.get("dilated2d LeakyRelu float").model)
    assert judge.difference(other)[0] == "silent"
    other.graph.output[0].name = "other"
    assert judge.difference(other)[0] == "loud"
    whole, broken = np.array([1.0, np.nan]), np.array([1.0, 0.0])
    assert apart(whole, whole) == 0
    assert apart(whole, broken) == float("inf")
    assert apart(np.array([2.0, 1.0]), np.array([2.0, 1.5])) == 0.25
