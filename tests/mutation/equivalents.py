"""Right conversions that look like wrong ones, by classes.

Outputs of tools are in `rewritten_by_tools`.
"""

from __future__ import annotations

from collections.abc import Callable

import bases
import bookkeeping
import damaged_values
import numpy as np
import rounded
import written_otherwise
from drawn import Equivalent
from nets import Rng

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
    return Equivalent(f"{key} {options}".strip(), base.model, model, base)


def _by_hand(rng: Rng, number: int) -> Equivalent:
    """Nodes that read the sizes of another value, and pads left to the runtime."""
    if number % 2:
        base, model = damaged_values.sized_by_input(number // 2)
        return Equivalent(f"{base.name}: sizes of the input", base.model, model, base)
    stride = (8, 16, 32)[number // 2 % 3]
    kernel = stride + 1 + number // 6 % 4
    base = bases.patched(stride, kernel, "SAME")
    model = damaged_values.by_hand(stride, kernel, "auto").wrong
    return Equivalent(f"{base.name}: SAME_UPPER", base.model, model, base)


#: Draws of each class: of a generator and a number, which takes its bases in turn.
CLASSES: dict[str, Callable[[Rng, int], Equivalent | None]] = {
    "converted": _converted,
    "converted by hand": _by_hand,
    **written_otherwise.CLASSES,
    **bookkeeping.CLASSES,
    **rounded.CLASSES,
}


def draw(kind: str, number: int, seed: int = 0) -> Equivalent | None:
    """Draw a right conversion of a class; None if the base has no place for it."""
    rng = np.random.default_rng([seed, number, *map(ord, kind)])
    return CLASSES[kind](rng, number)
