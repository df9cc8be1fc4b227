"""The first value that differs, in the order of the original."""

from __future__ import annotations

import numpy as np
from hand_lowered import model

from onnx_spatial.model.io import reader
from onnx_spatial.verification.compare.exactness import of_outputs
from onnx_spatial.verification.diagnosis.bisect import Bisection, bisect
from onnx_spatial.verification.pair import ModelPair
from onnx_spatial.verification.runtime.program import Program

CHAIN = """
    g (float[N,4] x) => (float[N,4] y, float[N,4] z)
    { a = Neg(x)  [second] b = Abs(a)  c = Relu(b)  y = Neg(c)  z = Exp(x) }
"""
FEEDS = {"x": np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)}


def found(after: str) -> Bisection:
    sources = (reader.read(model(text)) for text in (CHAIN, after))
    result = bisect(ModelPair(*sources), (), FEEDS, optimised=False)
    assert result is not None
    return result


def test_the_first_of_many() -> None:
    first = found(CHAIN.replace("Abs(a)", "Sign(a)")).first
    assert first is not None
    assert (first.name, first.node, first.op_type, first.graph) == (
        "b",
        "second",
        "Abs",
        "main graph",
    )
    assert (first.dtype, first.shape) == ("float32", (2, 4))
    assert "differ" in first.reason
    assert {"x", "a"} <= first.before
    assert not first.before & {"b", "c", "y"}


def test_values_that_are_gone_are_passed_over() -> None:
    first = found(CHAIN.replace("[second] b = Abs(a)  c = Relu(b)", "c = Neg(a)")).first
    assert first is not None
    assert first.name == "c"


def test_nothing_differs() -> None:
    assert found(CHAIN).first is None


def test_what_cannot_be_run_cannot_be_told() -> None:
    sources = [reader.read(model(CHAIN)) for _ in range(2)]
    wrong = {"x": np.ones((2, 5), np.float64)}
    assert bisect(ModelPair(*sources), (), wrong, optimised=False) is None


def test_shapes_of_reals_are_not_steps() -> None:
    """A Cast of a shape is exact, whatever computed the numbers that have it."""
    text = """
        g (float[N,4] x) => (int32[2] s, float[N,4] y, int32[N,4] i)
        { a = Exp(x) t = Shape(a) s = Cast<to = 6>(t) k = Cast<to = 1>(s) l = ReduceMax(k)
          y = Mul(a, l) i = Cast<to = 6>(a) }
    """
    marks = of_outputs(Program(model(text), ()))
    assert not marks["s"].arithmetic and not marks["s"].discrete
    assert marks["y"].arithmetic and not marks["y"].discrete
    assert marks["i"].discrete
