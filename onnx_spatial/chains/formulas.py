"""Write polynomials of sizes down by names, so that they can be computed anywhere.

The symbols of a proof live as long as the proof. A `Formula` refers to a size by the name of a value and
the axis; it can be computed as a polynomial of another proof, or as nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from onnx_spatial.maps.polynomial import FLOOR, Atom, OperationKey, Polynomial
from onnx_spatial.operators import Arithmetic
from onnx_spatial.operators.operator import Size


@dataclass(frozen=True)
class ValueDim:
    """One dim of a value: its name, and the axis."""

    value: str
    axis: int


@dataclass(frozen=True)
class Quotient:
    """A quotient that is rounded down; the dividend is not negative, the divisor is 1 or more."""

    dividend: Formula
    divisor: Formula


@dataclass(frozen=True)
class Formula:
    """A sum of products of dims and quotients.

    Attributes:
        terms: each product and its factor; the empty product has the constant.
    """

    terms: tuple[tuple[tuple[ValueDim | Quotient, ...], int], ...] = ()

    @property
    def constant(self) -> int | None:
        """The value, if it is known, else None."""
        if not self.terms:
            return 0
        ((factors, value), *others) = self.terms
        return None if factors or others else value

    def compute(self, sizes: Arithmetic, dim: Callable[[ValueDim], Size]) -> Size:
        """Compute it with the arithmetic `sizes`, from the dims that `dim` returns."""
        total: Size = 0
        # What is added first makes that less is subtracted from: no sum in between is negative.
        for factors, count in sorted(self.terms, key=lambda term: term[1] < 0):
            term: Size = abs(count)
            for factor in factors:
                value = (
                    dim(factor)
                    if isinstance(factor, ValueDim)
                    else sizes.div(
                        factor.dividend.compute(sizes, dim), factor.divisor.compute(sizes, dim)
                    )
                )
                term = sizes.mul(term, value)
            total = sizes.sub(total, term) if count < 0 else sizes.add(total, term)
        return total


class UnnamedError(Exception):
    """A polynomial holds a number that is no dim of a value."""


def write_formula(p: Polynomial, dims: Mapping[Atom, ValueDim]) -> Formula:
    """Write a polynomial of the symbols of a proof as a formula of the dims that they stand for.

    Raises:
        UnnamedError: it holds another symbol, or a quotient that may be negative.
    """
    terms = [
        (tuple(_write_factor(atom, dims) for atom in product), factor)
        for product, factor in p.terms.items()
    ]
    return Formula(tuple(sorted(terms, key=repr)))


def _write_factor(atom: Atom, dims: Mapping[Atom, ValueDim]) -> ValueDim | Quotient:
    if atom in dims:
        return dims[atom]
    key = atom.key
    if not isinstance(key, OperationKey) or key.operator != FLOOR or not atom.nonnegative:
        raise UnnamedError
    dividend, divisor = key.operands
    return Quotient(write_formula(dividend, dims), write_formula(divisor, dims))
