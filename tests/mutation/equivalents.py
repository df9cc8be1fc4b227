"""Right conversions that look like wrong ones, by classes.

Outputs of tools are in `rewritten_by_tools`.
"""

from __future__ import annotations

from collections.abc import Callable

import bases
import bookkeeping
import numpy as np
from bases import Equivalent, converted, equivalent, tailed
from nets import Rng
from onnx import TensorProto

import onnx_spatial

_FORMS = ({}, {"fuse": False}, {"mode": "function"}, {"prefer": "gather", "fuse": False})


def _converted(rng: Rng, number: int) -> Equivalent:
    """The conversion itself, in several forms."""
    pool = sorted(bases.everything())
    key = pool[number % len(pool)]
    form = _FORMS[number // len(pool) % len(_FORMS)]
    base = bases.everything()[key]
    model = onnx_spatial.convert(base.model, verify=False, **form).model
    options = ", ".join(f"{k} = {v}" for k, v in form.items())
    return equivalent(base, f"{key} {options}".strip(), model)


#: Nodes behind a fused convolution, from z to y, that show how its sums round, and the type of y.
_ROUNDING = (
    ("q = QuantizeLinear (z, $0.02, ##u8:100); y = DequantizeLinear (q, $0.02, ##u8:100)", None),
    ("y = QuantizeLinear (z, $0.02, ##u8:100)", TensorProto.UINT8),
    ("a = Mul (z, $7); y = Round (a)", None),
    ("a = Mul (z, $7); y = Floor (a)", None),
    ("y = ArgMax <axis = 3> (z)", TensorProto.INT64),
    ("y = Greater (z, $0.1)", TensorProto.BOOL),
    ("a = Mul (z, $50); y = Cast <to = 6> (a)", TensorProto.INT32),
    ("a, y = TopK (z, #2)", TensorProto.INT64),
)


def _rounded(rng: Rng, number: int) -> Equivalent:
    """Sums that round otherwise, in front of nodes where that shows."""
    text, output = _ROUNDING[number % len(_ROUNDING)]
    base = tailed("dilated", text.split("(")[0], text, output=output, opset=18)
    return equivalent(base, f"{base.name} {number}", converted(base.model), rounds=True)


#: Draws of each class: of a generator and a number, which takes its bases in turn.
CLASSES: dict[str, Callable[[Rng, int], Equivalent | None]] = {
    "converted": _converted,
    "sums that round otherwise": _rounded,
    **bookkeeping.CLASSES,
}


def draw(kind: str, number: int, seed: int = 0) -> Equivalent | None:
    """Draw a right conversion of a class; None if the base has no place for it."""
    rng = np.random.default_rng([seed, number, *map(ord, kind)])
    return CLASSES[kind](rng, number)
