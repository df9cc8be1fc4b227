"""Inspect and format polynomials: their atoms, symbols and quotients.

A size, a parameter or an index is an atom with a `Symbol` for its key; a quotient is an atom
`Floor(a, b)`, which is rounded down.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from onnx import helper

from onnx_spatial.maps.polynomial import Atom, OperationKey, Polynomial

ZERO, ONE = Polynomial.of(0), Polynomial.of(1)
Index = tuple[Polynomial, ...]

#: The operator of the atoms for quotients, rounded down.
FLOOR = "Floor"

#: The operator of the atoms for integers of a constant, whose index is computed.
LOOKUP = "Lookup"

#: Operators of the atoms for integers that follow from others.
COMPUTED = frozenset({FLOOR, LOOKUP})

#: The operator of the atoms for elements of given values, whose name is the only detail.
ELEMENT = "Element"

#: Prefix of the operator of the atoms for unknown functions of elements: ONNX has a Floor, too.
UNKNOWN_PREFIX = "op:"

#: Characters of a polynomial in messages, at most.
_MAX_LETTERS = 160

#: Kind of the symbols for elements of parameters of operators.
PARAMETER = "parameter"

#: Kind of the symbols for integers of any value.
INTEGER = "integer"


class IndexKind(NamedTuple):
    """Kind of the symbol for an index: its extent, and the definition of its axis if facts need it."""

    extent: Polynomial
    axis: Hashable


@dataclass(frozen=True, slots=True)
class Symbol:
    """Key of the atom for a size, an element of a parameter, or an index.

    Attributes:
        case: number of the `Case`: symbols of different comparisons are different.
        kind: symbols of the same name and different kinds are different; `IndexKind` of an index.
        name: in messages.
    """

    case: int
    kind: Hashable
    name: str


@dataclass(frozen=True, slots=True)
class LiteralKey:
    """Key of the atom for a known number that is not an integer.

    Attributes:
        element_type: its ONNX element type.
        data: its bytes, because -0.0 == 0.0 and a NaN does not equal itself.
    """

    element_type: int
    data: bytes


def literal(element_type: int, value: np.generic) -> Polynomial:
    """Return the atom for a known number that is not an integer."""
    return Polynomial.atom(LiteralKey(element_type, value.tobytes()))


def unknown(
    op_type: str, details: tuple[Hashable, ...], operands: Sequence[Polynomial]
) -> Polynomial:
    """Return an unknown function of elements; equal functions of equal elements are equal."""
    return Polynomial.atom(OperationKey(f"{UNKNOWN_PREFIX}{op_type}", details, tuple(operands)))


def product(sizes: Sequence[Polynomial]) -> Polynomial:
    """Return the product of sizes."""
    total = sizes[0] if sizes else ONE
    for size in sizes[1:]:
        total = total * size
    return total


def bases_of(p: Polynomial) -> set[Atom]:
    """Return all atoms of a polynomial that do not follow from others, those inside atoms included."""
    return {
        atom
        for atom in atoms_of(p)
        if not isinstance(atom.key, OperationKey) or atom.key.operator not in COMPUTED
    }


def atoms_of(p: Polynomial) -> set[Atom]:
    """Return all atoms of a polynomial, those inside other atoms included."""
    found: set[Atom] = set()
    todo = [p]
    while todo:
        for product in todo.pop().terms:
            for atom in product:
                if atom not in found:
                    found.add(atom)
                    if isinstance(atom.key, OperationKey):
                        todo.extend(q for q in atom.key.operands if isinstance(q, Polynomial))
    return found


def is_inside_of(atom: Atom, p: Polynomial) -> bool:
    """Tell whether an atom is inside another atom of a polynomial."""
    return any(atom in atoms_of(Polynomial({(a,): 1})) for a in top_atoms(p) if a is not atom)


def substitute(p: Polynomial, values: Mapping[Atom, Polynomial]) -> Polynomial:
    """Return a polynomial with atoms replaced, also inside other atoms."""
    replaced = {a: q for a in top_atoms(p) if (q := _substitute_atom(a, values)) is not None}
    if not replaced:
        return p
    total = ZERO
    for product, factor in p.terms.items():
        term = Polynomial.of(factor)
        for atom in product:
            term = term * replaced.get(atom, Polynomial({(atom,): 1}))
        total = total + term
    return total


def top_atoms(p: Polynomial) -> set[Atom]:
    """Return the atoms of a polynomial, without those inside other atoms."""
    return {atom for product in p.terms for atom in product}


def _substitute_atom(atom: Atom, values: Mapping[Atom, Polynomial]) -> Polynomial | None:
    if atom in values:
        return values[atom]
    key = atom.key
    if not isinstance(key, OperationKey):
        return None
    operands: Sequence[Polynomial] = tuple(key.operands)
    new = [substitute(q, values) for q in operands]
    if all(a is b or a == b for a, b in zip(operands, new, strict=True)):
        return None
    made = type(key.operands)(new)
    return Polynomial.atom(
        OperationKey(key.operator, key.details, made), nonnegative=atom.nonnegative
    )


def show(p: Polynomial) -> str:
    """Format a polynomial for messages: "2*H + W - 1"."""
    parts = []
    for product, factor in sorted(p.terms.items(), key=lambda term: -len(term[0])):
        names = [_atom_name(atom) for atom in product]
        if abs(factor) != 1 or not names:
            names.insert(0, str(abs(factor)))
        sign = "-" if factor < 0 else "+"
        parts.append(f"{sign} {'*'.join(names)}")
    text = " ".join(parts) or "0"
    text = text.removeprefix("+ ") if text.startswith("+") else text
    return text if len(text) <= _MAX_LETTERS else f"{text[: _MAX_LETTERS - 4]} ..."


def show_place(index: Sequence[Polynomial]) -> str:
    """Format an index for messages: "[n, 2*h + 1]"."""
    return f"[{', '.join(map(show, index))}]"


def _atom_name(atom: Atom) -> str:
    key = atom.key
    if isinstance(key, Symbol):
        return key.name
    if isinstance(key, OperationKey):
        operands = [q for q in key.operands if isinstance(q, Polynomial)]
        if key.operator == ELEMENT:
            return f"{key.details[0]}{show_place(operands)}"
        if key.operator == FLOOR:
            return f"floor(({show(operands[0])}) / ({show(operands[1])}))"
        name = key.operator.removeprefix(UNKNOWN_PREFIX)
        return f"{name}({', '.join(map(show, operands))})"
    if isinstance(key, LiteralKey) and key.element_type:
        dtype = helper.tensor_dtype_to_np_dtype(key.element_type)
        return str(np.frombuffer(key.data, dtype)[0])
    return "?"


def factor_of(p: Polynomial, atom: Atom) -> tuple[Polynomial | None, Polynomial]:
    """Return the factor of an atom, None if it occurs in a higher power, and the terms without it."""
    factor, rest = dict[tuple[Atom, ...], int](), dict[tuple[Atom, ...], int]()
    for product, f in p.terms.items():
        if atom in product:
            others = list(product)
            others.remove(atom)
            if atom in others:
                return None, p
            factor[tuple(others)] = f
        else:
            rest[product] = f
    return Polynomial(factor), Polynomial(rest)


def apart(product: Sequence[Atom], other: Sequence[Atom]) -> tuple[list[Atom], list[Atom]]:
    """Return the factors of each product that the other lacks."""
    missing = list(other)
    left = []
    for atom in product:
        if atom in missing:
            missing.remove(atom)
        else:
            left.append(atom)
    return left, missing


def shared_atoms(p: Polynomial) -> list[Atom]:
    """Return the atoms that are factors of all terms of a polynomial."""
    products = list(p.terms)
    shared = list(products[0]) if products else []
    for product in products[1:]:
        lacking, _ = apart(shared, product)
        shared, _ = apart(shared, lacking)
    return shared
