"""Compute with integers that are unknown until run time, as polynomials over atoms, and show them.

    Sub(Add(Mul(Div(h, 2), 2), 3), Mul(2, Div(h, 2)))      is      3

A `Polynomial` is an integer combination of products of atoms. An atom is an integer that sums and
products cannot express. The key of an atom contains its computation, so that equal computations anywhere
in the model are the same atom, and the normal form shows that a difference is constant. A size, a
parameter or an index is an atom with a `Symbol` for its key; a quotient is an atom `Floor(a, b)`, which
is rounded down.

A sum or product that grows too large becomes an atom itself: it is still equal to itself, but its
terms no longer cancel.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from onnx import helper

#: Most terms of a polynomial; a multiplication expands eight times as many pairs of terms.
MAX_TERMS = 128
#: Most atoms in a product.
_MAX_DEGREE = 16
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


class Atom:
    """Integer of which only a key is known; use `Polynomial.atom` to make one.

    Each key has one atom: atoms are equal if they are the same object, so that polynomials over long
    chains of atoms compare fast.
    """

    __slots__ = ("__weakref__", "key", "nonnegative", "serial")

    def __init__(self, key: Hashable, nonnegative: bool, serial: int) -> None:
        self.key = key
        self.nonnegative = nonnegative
        self.serial = serial

    @property
    def operation(self) -> OperationKey:
        """Key of the result of an operator; that of no operator for other atoms."""
        return self.key if isinstance(self.key, OperationKey) else NO_OPERATION

    def __repr__(self) -> str:
        return f"{self.operation.operator or 'atom'}#{self.serial}"


@dataclass(frozen=True, slots=True)
class OperationKey:
    """Key of the atom for the result of an operator.

    Attributes:
        operator: ONNX operator type.
        details: attributes and element types that the result depends on.
        operands: operands in order; a frozenset for commutative operators.
    """

    operator: str
    details: tuple[Hashable, ...]
    operands: tuple[Polynomial, ...] | frozenset[Polynomial]


NO_OPERATION = OperationKey("", (), ())

_Product = tuple[Atom, ...]

_atoms: WeakValueDictionary[tuple[Hashable, bool], Atom] = WeakValueDictionary()
_serials = itertools.count(1)
_making = threading.Lock()


def _make_atom(key: Hashable, nonnegative: bool) -> Atom:
    with _making:
        atom = _atoms.get((key, nonnegative))
        if atom is None:
            atom = _atoms[key, nonnegative] = Atom(key, nonnegative, next(_serials))
        return atom


class Polynomial:
    """Integer combination of products of atoms, plus a constant."""

    __slots__ = ("_hash", "_terms")

    def __init__(self, terms: Mapping[_Product, int]) -> None:
        self._terms = {atoms: factor for atoms, factor in terms.items() if factor}
        self._hash: int | None = None  # most sums are never looked up

    @staticmethod
    @lru_cache(1024)
    def of(value: int) -> Polynomial:
        """Return the polynomial for a known integer."""
        return Polynomial({(): int(value)})

    @classmethod
    def atom(cls, key: Hashable, *, nonnegative: bool = False) -> Polynomial:
        """Make the polynomial for an atom; the same arguments make the same atom.

        Args:
            key: identifies the integer; it is kept while a polynomial refers to it.
            nonnegative: whether the integer is known to be 0 or more.
        """
        return cls({(_make_atom(key, nonnegative),): 1})

    @property
    def terms(self) -> Mapping[_Product, int]:
        """Factor of each product of atoms; the empty product has the constant."""
        return MappingProxyType(self._terms)

    @property
    def constant(self) -> int | None:
        """Value, if it is a known integer, else None."""
        if not self._terms:
            return 0
        return self._terms.get(()) if len(self._terms) == 1 else None

    @property
    def nonnegative(self) -> bool:
        """Whether the value is provably 0 or more."""
        return all(
            factor > 0 and all(atom.nonnegative for atom in atoms)
            for atoms, factor in self._terms.items()
        )

    @property
    def lone_atom(self) -> Atom | None:
        """Atom, if the polynomial is a single atom, else None."""
        if len(self._terms) != 1:
            return None
        ((atoms, factor),) = self._terms.items()
        return atoms[0] if len(atoms) == 1 and factor == 1 else None

    @property
    def operation(self) -> OperationKey:
        """Key, if the polynomial is the result of an operator, else that of no operator."""
        atom = self.lone_atom
        return NO_OPERATION if atom is None else atom.operation

    def _scale_by(self, factor: int) -> Polynomial:
        return Polynomial({atoms: f * factor for atoms, f in self._terms.items()})

    def _plus(self, other: Polynomial, sign: int) -> Polynomial:
        terms = dict(self._terms)
        for atoms, factor in other._terms.items():
            terms[atoms] = terms.get(atoms, 0) + sign * factor
        result = Polynomial(terms)
        if len(result._terms) > MAX_TERMS:
            return _commutative_atom("Add", self, other._scale_by(sign))
        return result

    def __add__(self, other: Polynomial | int) -> Polynomial:
        if not isinstance(other, Polynomial):
            other = Polynomial.of(other)
        return self._plus(other, 1)

    __radd__ = __add__

    def __neg__(self) -> Polynomial:
        return self._scale_by(-1)

    def __sub__(self, other: Polynomial | int) -> Polynomial:
        if not isinstance(other, Polynomial):
            return self + -other
        return self._plus(other, -1)

    def __rsub__(self, other: int) -> Polynomial:
        return -self + other

    def __mul__(self, other: Polynomial | int) -> Polynomial:
        if not isinstance(other, Polynomial):
            return self._scale_by(int(other))
        if other.constant is not None:
            return self._scale_by(other.constant)
        if self.constant is not None:
            return other._scale_by(self.constant)
        degree = max(map(len, self._terms)) + max(map(len, other._terms))
        if len(self._terms) * len(other._terms) > 8 * MAX_TERMS or degree > _MAX_DEGREE:
            return _commutative_atom("Mul", self, other)
        terms: dict[_Product, int] = {}
        for (a, f), (b, g) in itertools.product(self._terms.items(), other._terms.items()):
            atoms = tuple(sorted((*a, *b), key=lambda atom: atom.serial))
            terms[atoms] = terms.get(atoms, 0) + f * g
        result = Polynomial(terms)
        return result if len(result._terms) <= MAX_TERMS else _commutative_atom("Mul", self, other)

    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Polynomial):
            return NotImplemented
        return self is other or self._terms == other._terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._terms.items()))
        return self._hash

    def __repr__(self) -> str:
        terms = []
        for atoms, factor in self._terms.items():
            factors = [str(factor)] if factor != 1 or not atoms else []
            terms.append("*".join([*factors, *map(repr, atoms)]))
        return f"<{' + '.join(terms) or '0'}>"


def computed(
    operator: str,
    operands: Iterable[Polynomial],
    details: tuple[Hashable, ...] = (),
    *,
    nonnegative: bool = False,
) -> Polynomial:
    """Return the atom for the result of an operator that is not a sum or product."""
    return Polynomial.atom(
        OperationKey(operator, details, tuple(operands)), nonnegative=nonnegative
    )


def _commutative_atom(operator: str, a: Polynomial, b: Polynomial) -> Polynomial:
    # The set {a, a} would be {a}, the key of another atom.
    operands = frozenset((a, b)) if a != b else (a, b)
    return Polynomial.atom(
        OperationKey(operator, (), operands), nonnegative=a.nonnegative and b.nonnegative
    )


def one_of(operands: Sequence[Polynomial]) -> Polynomial:
    """Return an integer that is the first of `operands` in some runs, the second in others, and so on.

    Two that differ by the same constant in all runs differ by that constant.
    """
    first, *others = operands
    if all(other == first for other in others):
        return first
    least = min(operand.terms.get((), 0) for operand in operands)
    rest = [operand - least for operand in operands]
    return computed("OneOf", rest, nonnegative=all(r.nonnegative for r in rest)) + least


ZERO, ONE = Polynomial.of(0), Polynomial.of(1)
Index = tuple[Polynomial, ...]


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
    return computed(f"{UNKNOWN_PREFIX}{op_type}", operands, details)


def product(sizes: Sequence[Polynomial]) -> Polynomial:
    """Return the product of sizes."""
    total = sizes[0] if sizes else ONE
    for size in sizes[1:]:
        total = total * size
    return total


def flat(digits: Sequence[Polynomial], extents: Sequence[Polynomial]) -> Polynomial:
    """Return the index along an axis whose digits have these extents; see `Case.digits_of`."""
    place = ZERO
    for digit, extent in zip(digits, extents, strict=True):
        place = place * extent + digit
    return place


def bases_of(p: Polynomial) -> set[Atom]:
    """Return all atoms of a polynomial that do not follow from others, those inside atoms included."""
    return {atom for atom in atoms_of(p) if atom.operation.operator not in COMPUTED}


def atoms_of(p: Polynomial) -> set[Atom]:
    """Return all atoms of a polynomial, those inside other atoms included."""
    found: set[Atom] = set()
    todo = [p]
    while todo:
        for atoms in todo.pop().terms:
            for atom in atoms:
                if atom not in found:
                    found.add(atom)
                    todo += atom.operation.operands
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
    for atoms, factor in p.terms.items():
        term = Polynomial.of(factor)
        for atom in atoms:
            term = term * replaced.get(atom, Polynomial({(atom,): 1}))
        total = total + term
    return total


def top_atoms(p: Polynomial) -> set[Atom]:
    """Return the atoms of a polynomial, without those inside other atoms."""
    return {atom for atoms in p.terms for atom in atoms}


def _substitute_atom(atom: Atom, values: Mapping[Atom, Polynomial]) -> Polynomial | None:
    if atom in values:
        return values[atom]
    key = atom.operation
    operands: Sequence[Polynomial] = tuple(key.operands)
    new = [substitute(q, values) for q in operands]
    if all(a is b or a == b for a, b in zip(operands, new, strict=True)):
        return None
    new_key = OperationKey(key.operator, key.details, type(key.operands)(new))
    return Polynomial.atom(new_key, nonnegative=atom.nonnegative)


def show(p: Polynomial) -> str:
    """Format a polynomial for messages: "2*H + W - 1"."""
    parts = []
    for atoms, factor in sorted(p.terms.items(), key=lambda term: -len(term[0])):
        names = [_atom_name(atom) for atom in atoms]
        if abs(factor) != 1 or not names:
            names.insert(0, str(abs(factor)))
        sign = "-" if factor < 0 else "+"
        parts.append(f"{sign} {'*'.join(names)}")
    text = " ".join(parts).removeprefix("+ ") or "0"
    return text if len(text) <= _MAX_LETTERS else f"{text[: _MAX_LETTERS - 4]} ..."


def show_place(index: Sequence[Polynomial]) -> str:
    """Format an index for messages: "[n, 2*h + 1]"."""
    return f"[{', '.join(map(show, index))}]"


def _atom_name(atom: Atom) -> str:
    key = atom.key
    if isinstance(key, Symbol):
        return key.name
    if isinstance(key, OperationKey):
        operands = tuple(key.operands)
        if key.operator == ELEMENT:
            return f"{key.details[0]}{show_place(operands)}"
        if key.operator == FLOOR:
            a, b = (f"({t})" if {" ", "*"} & {*t} else t for t in map(show, operands))
            return f"floor({a} / {b})"
        name = key.operator.removeprefix(UNKNOWN_PREFIX)
        return f"{name}({', '.join(map(show, operands))})"
    if isinstance(key, LiteralKey) and key.element_type:
        dtype = helper.tensor_dtype_to_np_dtype(key.element_type)
        return str(np.frombuffer(key.data, dtype)[0])
    return "?"


def factor_of(p: Polynomial, atom: Atom) -> tuple[Polynomial | None, Polynomial]:
    """Return the factor of an atom, None if it occurs in a higher power, and the terms without it."""
    factor, rest = dict[_Product, int](), dict[_Product, int]()
    for atoms, f in p.terms.items():
        if atom in atoms:
            others = list(atoms)
            others.remove(atom)
            if atom in others:
                return None, p
            factor[tuple(others)] = f
        else:
            rest[atoms] = f
    return Polynomial(factor), Polynomial(rest)


def apart(product: Sequence[Atom], other: Sequence[Atom]) -> tuple[list[Atom], list[Atom]]:
    """Return the atoms of each product that the other lacks."""
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
    for atoms in products[1:]:
        lacking, _ = apart(shared, atoms)
        shared, _ = apart(shared, lacking)
    return shared
