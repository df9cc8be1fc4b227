"""Say in words how two formulas differ: by the innermost expressions that do.

Add(Clip(x[i0, i1], 0, 6), b[i1])  and  Add(Relu(x[i0, i1]), b[i1])

"computes Clip(x, 0, 6), the original Relu(x)"
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_spatial.maps.compare import Difference
from onnx_spatial.maps.constants import CONSTANT, stored_in
from onnx_spatial.maps.elements import PRODUCTS
from onnx_spatial.maps.expressions import (
    ELEMENT,
    UNKNOWN,
    IndexKind,
    LiteralKey,
    Symbol,
    show,
    show_place,
)
from onnx_spatial.maps.polynomial import Atom, OperationKey, Polynomial

#: Characters of an expression, at most.
_LONGEST = 80


def difference(found: Difference) -> str:
    """Return how both sides differ, as the rest of a sentence about the converted one."""
    if found.index is None:
        return found.message
    left, right = innermost(found.left, found.right)
    arrays = [stored_in(p) for p in (left, right)]
    if all(a is not None and a.array.size > 1 for a in arrays):
        return f"reads another constant than the original, at {show_place(found.index)}"
    for indices in (False, True):
        ours, theirs = _Text(indices).of(right), _Text(indices).of(left)
        plain = not indices and all(_is_function(p) for p in (left, right))
        if ours != theirs and (indices or plain):
            where = f" at {show_place(found.index)}" if indices else ""
            return f"computes {_short(ours)}{where}, the original {_short(theirs)}"
    return (
        f"computes {_short(ours)} of other values than the original, at {show_place(found.index)}"
    )


def innermost(left: Polynomial, right: Polynomial) -> tuple[Polynomial, Polynomial]:
    """Return the innermost expressions that differ, if there is one such pair."""
    while True:
        one, other = _key(left), _key(right)
        if one is None or other is None or one.operator in (ELEMENT, CONSTANT):
            return left, right
        if (one.operator, one.details) != (other.operator, other.details):
            return left, right
        pairs = list(zip(one.operands, other.operands, strict=False))
        pairs = [(a, b) for a, b in pairs if a != b]
        if len(one.operands) != len(other.operands) or len(pairs) != 1:
            return left, right
        ((left, right),) = pairs


def _key(p: Polynomial) -> OperationKey | None:
    atom = p.lone_atom
    key = atom.key if atom is not None else None
    return key if isinstance(key, OperationKey) else None


def _is_function(p: Polynomial) -> bool:
    key = _key(p)
    return key is not None and key.operator.startswith(UNKNOWN)


class _Text:
    """The text of expressions, with or without the indices of elements."""

    def __init__(self, indices: bool) -> None:
        self._indices = indices

    def of(self, p: Polynomial) -> str:
        """Return the text of an expression."""
        if p.lone_atom is not None:
            return self._atom(p.lone_atom)
        return show(p)

    def _atom(self, atom: Atom) -> str:
        key = atom.key
        if isinstance(key, LiteralKey):
            stored = stored_in(Polynomial({(atom,): 1}))
            return "?" if stored is None else _number(stored.array[0])
        if not isinstance(key, OperationKey):
            return show(Polynomial({(atom,): 1}))
        operands = list(key.operands)
        if key.operator in (ELEMENT, CONSTANT):
            name = str(key.details[0]) if key.operator == ELEMENT else "constant"
            return f"{name}{show_place(operands)}" if self._indices else name
        if key.operator == PRODUCTS:
            return f"sum of {self.of(operands[1])} * {self.of(operands[0])}"
        if not key.operator.startswith(UNKNOWN):
            return show(Polynomial({(atom,): 1}))
        kept = [q for q in operands if self._indices or not _is_index(q)]
        named = [d for d in key.details if isinstance(d, tuple) and len(d) == 2]
        attributes = [f"{name}={_attribute(value)}" for name, value in named]
        arguments = ", ".join([*map(self.of, kept), *attributes])
        return f"{key.operator.removeprefix(UNKNOWN)}({arguments})"


def _attribute(value: object) -> object:
    """Return the text of an attribute; its reals are float32."""
    return _number(np.float32(value)) if isinstance(value, float) else value


def _number(value: np.floating[Any]) -> str:
    """Return the digits that tell a number from others of its type."""
    short = f"{float(value):.6g}"
    return short if value.dtype.type(short) == value else str(value)


def _is_index(p: Polynomial) -> bool:
    atom = p.lone_atom
    key = atom.key if atom is not None else None
    return isinstance(key, Symbol) and isinstance(key.kind, IndexKind)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]} ..."
