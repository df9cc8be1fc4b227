"""Compute with integers that are unknown until run time, as polynomials over atoms.

    Sub(Add(Mul(Div(h, 2), 2), 3), Mul(2, Div(h, 2)))      is      3

A `Polynomial` is an integer combination of products of atoms. An atom is an integer that sums and
products cannot express: a dim, a tensor element, a quotient. The key of an atom contains its
computation, so that equal computations anywhere in the model are the same atom, and the normal form
shows that a difference is constant.

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
from weakref import WeakValueDictionary

#: Most terms of a polynomial, and most pairs of terms that a multiplication expands.
MAX_TERMS = 128
_MAX_PAIRS = 1024
#: Most atoms in a product.
_MAX_DEGREE = 16


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

    def __repr__(self) -> str:
        name = self.key.operator if isinstance(self.key, OperationKey) else "atom"
        return f"{name}#{self.serial}"


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
        self._terms = {product: factor for product, factor in terms.items() if factor}
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
    def terms(self) -> Mapping[tuple[Atom, ...], int]:
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
            factor > 0 and all(atom.nonnegative for atom in product)
            for product, factor in self._terms.items()
        )

    @property
    def lone_atom(self) -> Atom | None:
        """Atom, if the polynomial is a single atom, else None."""
        if len(self._terms) != 1:
            return None
        ((product, factor),) = self._terms.items()
        return product[0] if len(product) == 1 and factor == 1 else None

    def _scale_by(self, factor: int) -> Polynomial:
        return Polynomial({product: f * factor for product, f in self._terms.items()})

    def __add__(self, other: Polynomial | int) -> Polynomial:
        if not isinstance(other, Polynomial):
            other = Polynomial.of(other)
        terms = dict(self._terms)
        for product, factor in other._terms.items():
            terms[product] = terms.get(product, 0) + factor
        result = Polynomial(terms)
        if len(result._terms) > MAX_TERMS:
            return _commutative_atom("Add", self, other)
        return result

    __radd__ = __add__

    def __neg__(self) -> Polynomial:
        return self._scale_by(-1)

    def __sub__(self, other: Polynomial | int) -> Polynomial:
        if not isinstance(other, Polynomial):
            return self + -other
        terms = dict(self._terms)
        for product, factor in other._terms.items():
            terms[product] = terms.get(product, 0) - factor
        return Polynomial(terms) if len(terms) <= MAX_TERMS else self + (-other)

    def __rsub__(self, other: int) -> Polynomial:
        return -self + other

    def __mul__(self, other: Polynomial | int) -> Polynomial:
        if not isinstance(other, Polynomial):
            return self._scale_by(int(other))
        for one, factor in ((self, other.constant), (other, self.constant)):
            if factor is not None:
                return one._scale_by(factor)
        degree = max(map(len, self._terms)) + max(map(len, other._terms))
        if len(self._terms) * len(other._terms) > _MAX_PAIRS or degree > _MAX_DEGREE:
            return _commutative_atom("Mul", self, other)
        terms: dict[_Product, int] = {}
        for (a, f), (b, g) in itertools.product(self._terms.items(), other._terms.items()):
            product = tuple(sorted((*a, *b), key=lambda atom: atom.serial))
            terms[product] = terms.get(product, 0) + f * g
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
        terms = [
            "*".join((*([str(factor)] if factor != 1 or not product else []), *map(repr, product)))
            for product, factor in self._terms.items()
        ]
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
    return computed("OneOf", rest, nonnegative=all(e.nonnegative for e in rest)) + least
