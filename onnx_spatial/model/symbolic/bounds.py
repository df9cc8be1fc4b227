"""Bound polynomials over sizes: the least and the most that they can be in any run.

    h >= 0      h - 4 * Div(h, 4)              is between 0 and 3
                4 - h + 4 * Div(h, 4)          is between 1 and 4

Div rounds toward zero, so `a - b * Div(a, b)` is the remainder of a, whose sign is that of a.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from onnx_spatial.model.symbolic.polynomial import Atom, OperationKey, Polynomial

#: Most quotients within quotients that are followed.
_DEEP = 12


class Bounds(NamedTuple):
    """The range of an integer; None where there is no bound."""

    least: int | None
    most: int | None

    def __and__(self, other: Bounds) -> Bounds:
        """Return the bounds of an integer that is within both."""
        return Bounds(_chosen(max, self.least, other.least), _chosen(min, self.most, other.most))

    def plus(self, other: Bounds) -> Bounds:
        """Return the bounds of a sum."""
        least, most = (
            None if a is None or b is None else a + b for a, b in zip(self, other, strict=True)
        )
        return Bounds(least, most)

    def times(self, factor: int) -> Bounds:
        """Return the bounds of a multiple."""
        least, most = (None if bound is None else bound * factor for bound in self)
        return Bounds(least, most) if factor >= 0 else Bounds(most, least)


ANY = Bounds(None, None)


def bounds(p: Polynomial) -> Bounds:
    """Return the least and the most that a polynomial can be."""
    return _bounds(p, _DEEP)


def _bounds(p: Polynomial, depth: int) -> Bounds:
    result, rest = _termwise(p, depth), Bounds(0, 0)
    # An outer quotient first: its dividend contains the inner ones.
    for atom in sorted(_quotients(p), key=lambda atom: -atom.serial) if depth else ():
        factor = p.terms.get((atom,), 0)
        dividend, divisor = _operands(atom)
        remainders, odd = divmod(-factor, divisor)
        without = p - (dividend - Polynomial({(atom,): divisor})) * remainders
        if odd or len(without.terms) >= len(p.terms):
            continue
        p, rest = without, rest.plus(_remainder(dividend, divisor, depth).times(remainders))
        result &= _termwise(p, depth).plus(rest)
    return result


def _quotients(p: Polynomial) -> list[Atom]:
    """List the atoms of a polynomial that are quotients by a positive number."""
    atoms = [product[0] for product in p.terms if len(product) == 1]
    return [atom for atom in atoms if _is("Div", atom) and _operands(atom)[1] > 0]


def _is(operator: str, atom: Atom) -> bool:
    return isinstance(atom.key, OperationKey) and atom.key.operator == operator


def _operands(atom: Atom) -> tuple[Polynomial, int]:
    """Return the dividend and the divisor of a Div or Mod; a divisor of 0 if it is unknown."""
    assert isinstance(atom.key, OperationKey) and isinstance(atom.key.operands, tuple)
    dividend, divisor = atom.key.operands
    return dividend, divisor.constant or 0


def _termwise(p: Polynomial, depth: int) -> Bounds:
    """Add the bounds of the terms."""
    result = Bounds(0, 0)
    for product, factor in p.terms.items():
        result = result.plus(_product(product, depth).times(factor))
        if result == ANY:
            return ANY
    return result


def _product(atoms: tuple[Atom, ...], depth: int) -> Bounds:
    if not atoms:
        return Bounds(1, 1)
    if len(atoms) == 1:
        return _atom(atoms[0], depth)
    return Bounds(0, None) if all(atom.nonnegative for atom in atoms) else ANY


def _atom(atom: Atom, depth: int) -> Bounds:
    result = Bounds(0 if atom.nonnegative else None, None)
    if not isinstance(atom.key, OperationKey) or not depth:
        return result
    rule = _RULES.get(atom.key.operator)
    return result if rule is None else result & rule(atom, atom.key, depth - 1)


def _remainder(dividend: Polynomial, divisor: int, depth: int) -> Bounds:
    """Bound what a division that rounds toward zero leaves of the dividend."""
    least, most = _bounds(dividend, depth - 1)
    return Bounds(
        0 if least is not None and least >= 0 else 1 - divisor,
        0 if most is not None and most <= 0 else divisor - 1,
    )


def _div(atom: Atom, _: OperationKey, depth: int) -> Bounds:
    dividend, divisor = _operands(atom)
    if divisor <= 0:
        return ANY
    least, most = (
        None if bound is None else abs(bound) // divisor * (-1 if bound < 0 else 1)
        for bound in _bounds(dividend, depth)
    )
    return Bounds(least, most)


def _mod(atom: Atom, key: OperationKey, depth: int) -> Bounds:
    dividend, divisor = _operands(atom)
    if divisor <= 0:
        return ANY
    (truncated,) = key.details
    return _remainder(dividend, divisor, depth) if truncated else Bounds(0, divisor - 1)


def _extreme(_: Atom, key: OperationKey, depth: int) -> Bounds:
    all_bounds = [_bounds(operand, depth) for operand in key.operands]
    leasts, mosts = zip(*all_bounds, strict=True)
    if key.operator == "Max":
        return Bounds(_chosen(max, *leasts), None if None in mosts else max(mosts))
    return Bounds(None if None in leasts else min(leasts), _chosen(min, *mosts))


def _one_of(_: Atom, key: OperationKey, depth: int) -> Bounds:
    leasts, mosts = zip(*(_bounds(operand, depth) for operand in key.operands), strict=True)
    return Bounds(None if None in leasts else min(leasts), None if None in mosts else max(mosts))


def _chosen(choose: Callable[..., int], *bounds: int | None) -> int | None:
    """Choose the tightest of several bounds."""
    return choose((b for b in bounds if b is not None), default=None)


_RULES: dict[str, Callable[[Atom, OperationKey, int], Bounds]] = {
    "Div": _div,
    "Max": _extreme,
    "Min": _extreme,
    "Mod": _mod,
    "OneOf": _one_of,
}
