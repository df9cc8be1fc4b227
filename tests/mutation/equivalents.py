"""Right conversions that look like wrong ones, by classes.

Outputs of tools are in `rewritten_by_tools`.
"""

from __future__ import annotations

from collections.abc import Callable

import bases
import bookkeeping
import damaged_values
import numpy as np
import written_otherwise
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


def _by_hand(rng: Rng, number: int) -> Equivalent:
    """Nodes that read the sizes of another value, and pads left to the runtime."""
    if number % 2:
        base, model = damaged_values.sized_by_input(number // 2)
        return equivalent(base, f"{base.name}: sizes of the input", model)
    stride = (8, 16, 32)[number // 2 % 3]
    kernel = stride + 1 + number // 6 % 4
    base, model = damaged_values.by_hand(stride, kernel, 'auto_pad = "SAME_UPPER"')
    return equivalent(base, f"{base.name}: SAME_UPPER", model)


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
    "converted by hand": _by_hand,
    "sums that round otherwise": _rounded,
    **written_otherwise.CLASSES,
    **bookkeeping.CLASSES,
}


def draw(kind: str, number: int, seed: int = 0) -> Equivalent | None:
    """Draw a right conversion of a class; None if the base has no place for it."""
    rng = np.random.default_rng([seed, number, *map(ord, kind)])
    return CLASSES[kind](rng, number)
