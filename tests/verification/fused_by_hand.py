"""Convolutions between spatial operators, and what they are without these, written by hand.

The converted forms keep the names of nodes, of what goes in and of what BatchToSpace gives; all other
values have new names. Blocks are 2 and 3, so that swapped axes show.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np
import onnx
from hand_lowered import model

#: Weights that nodes may name, and their shapes.
SHAPES = {
    "w": (4, 3, 3, 3),
    "w_other": (4, 3, 3, 3),
    "b": (4,),
    "filter": (5, 3, 2),
    "gate": (5, 3, 2),
}
BLOCKS = """
    int32[2] block = {2, 3}, int32[2,2] pads = {2, 3, 1, 2}, int32[2,2] crops = {1, 0, 0, 2}
"""


def filled(text: str, dtype: type = np.float32) -> onnx.ModelProto:
    """A model from text; weights that it names are added to the main graph.

    Args:
        text: of the model.
        dtype: of the weights.
    """
    parsed = model(text)
    words = set(re.findall(r"\w+", text))
    for name, values in made_up().items():
        if name in words:
            tensor = onnx.numpy_helper.from_array(values.astype(dtype), name)
            parsed.graph.initializer.append(tensor)
    return parsed


def made_up() -> dict[str, np.ndarray]:
    """Values for the weights: all distinct, and of very different size for each output channel."""
    rng = np.random.default_rng(5)
    found = {}
    for name, shape in SHAPES.items():
        scale = 10.0 ** -np.arange(shape[0]).reshape(-1, *(1 for _ in shape[1:]))
        found[name] = rng.standard_normal(shape) * scale
    return found


@dataclass(frozen=True)
class Case:
    """A model, its conversion, and how the latter can be wrong.

    Attributes:
        original, converted: as ONNX text.
        wrong: pieces of the conversion and what stands in their place in wrong ones.
    """

    original: str
    converted: str
    wrong: list[tuple[str, str]] = field(default_factory=list)

    def mutants(self) -> list[str]:
        """The wrong conversions."""
        for right, _ in self.wrong:
            assert self.converted.count(right) == 1, right
        return [self.converted.replace(right, wrong) for right, wrong in self.wrong]


PLAIN = Case(
    f"""
    g (float[N,H,W,3] x) => (float[A,B,C,D] z) <{BLOCKS}>
    {{
        u = Neg(x)
        [in] s = tf.SpaceToBatchND(u, block, pads)
        t = Transpose<perm = [0, 3, 1, 2]>(s)
        [conv] c = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(t, w, b)
        r = Transpose<perm = [0, 2, 3, 1]>(c)
        [out] y = tf.BatchToSpaceND(r, block, crops)
        z = Neg(y)
    }}""",
    """
    g (float[N,H,W,3] x) => (float[A,B,C,D] z)
    {
        u = Neg(x)
        t1 = Transpose<perm = [0, 3, 1, 2]>(u)
        [conv] c1 = Conv<kernel_shape = [3, 3], pads = [3, 4, 5, 3], dilations = [2, 3]>(t1, w, b)
        y = Transpose<perm = [0, 2, 3, 1]>(c1)
        z = Neg(y)
    }""",
    [
        ("dilations = [2, 3]", "dilations = [3, 2]"),
        ("dilations = [2, 3]", "dilations = [2, 2]"),
        ("pads = [3, 4, 5, 3]", "pads = [4, 4, 4, 3]"),  # one off, of the right sum
        ("pads = [3, 4, 5, 3]", "pads = [3, 5, 5, 2]"),
        ("pads = [3, 4, 5, 3]", "pads = [3, 2, 5, 5]"),  # cropped on the wrong side
        ("pads = [3, 4, 5, 3]", "pads = [3, 4, 4, 3]"),
        ("(t1, w, b)", "(t1, w_other, b)"),
        ("(t1, w, b)", "(t1, w)"),
        ("[0, 2, 3, 1]", "[0, 3, 2, 1]"),
    ],
)


GATE = Case(
    """
    g (float[N,T,3] x) => (float[A,B,C] z)
      <int32[1] block = {4}, int32[1,2] pads = {4, 0}, int32[1,2] crops = {0, 0}>
    {
        u = Neg(x)
        [in] s = tf.SpaceToBatchND(u, block, pads)
        t = Transpose<perm = [0, 2, 1]>(s)
        [filter] f = Conv(t, filter)
        [gate] g0 = Conv(t, gate)
        ft = Tanh(f)
        gs = Sigmoid(g0)
        m = Mul(ft, gs)
        r = Transpose<perm = [0, 2, 1]>(m)
        [out] y = tf.BatchToSpaceND(r, block, crops)
        z = Neg(y)
    }""",
    """
    g (float[N,T,3] x) => (float[A,B,C] z)
    {
        u = Neg(x)
        t1 = Transpose<perm = [0, 2, 1]>(u)
        [filter] f1 = Conv<pads = [4, 0], dilations = [4]>(t1, filter)
        [gate] g1 = Conv<pads = [4, 0], dilations = [4]>(t1, gate)
        ft1 = Tanh(f1)
        gs1 = Sigmoid(g1)
        m1 = Mul(ft1, gs1)
        y = Transpose<perm = [0, 2, 1]>(m1)
        z = Neg(y)
    }""",
    [
        (
            "Conv<pads = [4, 0], dilations = [4]>(t1, filter)",
            "Conv<pads = [0, 4], dilations = [4]>(t1, filter)",
        ),
        ("(t1, gate)", "(t1, filter)"),
        ("Tanh(f1)", "Sigmoid(f1)"),
        ("Mul(ft1, gs1)", "Mul(ft1, ft1)"),
    ],
)


#: Pads that the run computes are proven in test_optimize.py.
CASES = {"plain": PLAIN, "gate": GATE}
