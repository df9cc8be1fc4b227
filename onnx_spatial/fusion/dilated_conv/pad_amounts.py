"""Calculate with pads and crops that are known numbers, or elements of run-time parameters.

A `PadAmount` is an integer combination of elements of run-time parameters, plus a number. Each element
is also a polynomial (`model.symbolic.symbolic_values`): where that is a number, so is the amount, and
needs no parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from itertools import chain
from typing import NamedTuple

from onnx_spatial.model.symbolic.bounds import ANY, Bounds, bounds
from onnx_spatial.model.symbolic.symbolic_values import Polynomial


class Element(NamedTuple):
    """An element of a run-time parameter: name of the value, place in it, and the polynomial."""

    name: str
    place: int
    expression: Polynomial


@dataclass(frozen=True)
class PadAmount:
    """The pad or crop at one end of an axis.

    Attributes:
        expression: the amount as a polynomial.
        elements: factor of each element of a parameter; none if it is a number.
        plus: the number that is added to them.
        legal: its bounds in every legal run, as far as they do not follow from `expression`.
        is_known: whether it is a number.
    """

    expression: Polynomial
    elements: tuple[tuple[Element, int], ...] = ()
    plus: int = 0
    legal: Bounds = ANY
    is_known: bool = False

    @classmethod
    def known(cls, number: int) -> PadAmount:
        """Make an amount of a number."""
        return _known(number)

    @classmethod
    def read(cls, element: Element) -> PadAmount:
        """Read an element of a parameter: pads and crops are never negative."""
        return cls._of(element.expression, ((element, 1),), 0, Bounds(0, None))

    @classmethod
    def _of(
        cls,
        expression: Polynomial,
        elements: Sequence[tuple[Element, int]],
        plus: int,
        legal: Bounds,
    ) -> PadAmount:
        if expression.constant is not None:
            return cls.known(expression.constant)
        return cls(expression, tuple(elements), plus, legal)

    @property
    def constant(self) -> int | None:
        """The number; None if only the run knows it."""
        return self.plus if self.is_known else None

    @property
    def bounds(self) -> Bounds:
        """The least and the most that it can be in a legal run."""
        if self.is_known:
            return self.legal
        # Elements are never negative.
        least = self.plus if all(factor > 0 for _, factor in self.elements) else None
        most = self.plus if all(factor < 0 for _, factor in self.elements) else None
        return self.legal & bounds(self.expression) & Bounds(least, most)

    def is_at_least(self, other: PadAmount) -> bool:
        """Return whether it is provably no less than another."""
        least = (self - other).bounds.least
        return least is not None and least >= 0

    def is_below(self, number: int) -> bool:
        """Return whether it is provably less than a number."""
        most = self.bounds.most
        return most is not None and most < number

    def equals(self, other: PadAmount) -> bool:
        """Return whether the two are provably equal."""
        if self.is_known and other.is_known:
            return self.plus == other.plus
        return (self.expression - other.expression).constant == 0

    def __add__(self, other: PadAmount) -> PadAmount:
        if self.is_known and other.is_known:
            return _known(self.plus + other.plus)
        elements = dict(self.elements)
        for element, count in other.elements:
            elements[element] = elements.get(element, 0) + count
        left = [(element, count) for element, count in elements.items() if count]
        legal = self.legal.plus(other.legal)
        return self._of(self.expression + other.expression, left, self.plus + other.plus, legal)

    def __sub__(self, other: PadAmount) -> PadAmount:
        return self + other.times(-1)

    def times(self, factor: int) -> PadAmount:
        """Multiply it."""
        if self.is_known:
            return _known(self.plus * factor)
        elements = [(element, count * factor) for element, count in self.elements if factor]
        legal = self.legal.times(factor)
        return self._of(self.expression * factor, elements, self.plus * factor, legal)

    def split(self) -> tuple[PadAmount, PadAmount]:
        """Return what to pad by and what to crop by then; neither is negative in a legal run."""
        least, most = self.bounds
        if least is not None:
            crop = self.known(max(-least, 0)) if most is None or most > 0 else self.times(-1)
            return self + crop, crop
        if most is not None:
            pad = self.known(max(most, 0))
            return pad, pad - self
        pad = self.known(max(self.plus, 0))
        for element, factor in self.elements:
            if factor > 0:
                pad += self.read(element).times(factor)
        return pad, pad - self

    def in_terms_of(self, *others: PadAmount) -> PadAmount:
        """Write it as another amount plus a number, if their difference is known."""
        for other in others if not self.is_known else ():
            difference = (self - other).constant
            if difference is not None:
                sum_ = other + self.known(difference)
                return replace(sum_, legal=sum_.legal & self.legal)
        return self


@cache
def _known(number: int) -> PadAmount:
    return PadAmount(Polynomial.of(number), (), number, Bounds(number, number), is_known=True)


#: (begin, end) of one axis.
PadPair = tuple[PadAmount, PadAmount]

#: Pads or crops at the two ends of each blocked axis.
PadPairs = tuple[PadPair, ...]

NOTHING = PadAmount.known(0)


def whole(axes: int) -> PadPairs:
    """Crop nothing."""
    return ((NOTHING, NOTHING),) * axes


def reordered(pairs: PadPairs, axes: Sequence[int], others: Sequence[int]) -> PadPairs:
    """List the pairs of some axes for others; there is nothing at axes that have none."""
    pair_of = dict(zip(axes, pairs, strict=True))
    return tuple(pair_of.get(axis, (NOTHING, NOTHING)) for axis in others)


def flat(pairs: PadPairs) -> tuple[PadAmount, ...]:
    """List the amounts at all ends."""
    return tuple(chain.from_iterable(pairs))


def combined(function: Callable[..., PadAmount], *pads: PadPairs) -> PadPairs:
    """Apply a function to the amounts of several pads or crops at each end."""
    return tuple(
        (function(*begins), function(*ends))
        for begins, ends in (zip(*pairs, strict=True) for pairs in zip(*pads, strict=True))
    )


def same(a: PadPairs, b: PadPairs) -> bool:
    """Return whether two crops are provably equal."""
    return all(map(PadAmount.equals, flat(a), flat(b)))


def common(crops: Sequence[PadPairs]) -> PadPairs:
    """Find the largest crop that provably keeps what each of `crops` keeps."""
    return combined(lambda *amounts: reduce(_smaller, amounts), *crops)


def _smaller(a: PadAmount, b: PadAmount) -> PadAmount:
    if b.is_at_least(a):
        return a
    return b if a.is_at_least(b) else NOTHING
