"""Prove that a polynomial is 0 or more from facts: polynomials that are.

    0 <= n < N, 0 <= w < W            is  n*W + w < N*W  ?
    N*W - 1 - n*W - w  =  W*(N - 1 - n) + (W - 1 - w)          yes: a sum of known ones

Linear programming finds the factors of such a sum, with products of atoms as unknowns of their own. It
does so in floating point, and they are checked exactly:

    p = sum of c_i * fact_i + terms that are 0 or more + a number above -1      p is an integer

It tries the facts first, and then more polynomials that are 0 or more: facts times atoms, as W above,
where they have a term that `p` lacks; and the bounds of quotients. Sizes count from their least values,
so that products of sizes outweigh their factors:

    n*w - n  with  w >= 1       is      n*w'  with  w' = w - 1 >= 0

The search is bounded: "not proven" does not mean that the polynomial may be negative. A `Budget` counts
its steps. They are the same on every machine, and so is what is proven within a number of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from fractions import Fraction
from time import thread_time

import numpy as np
import numpy.typing as npt

from onnx_spatial.maps.polynomial import (
    FLOOR,
    ONE,
    Atom,
    Polynomial,
    apart,
    shared_atoms,
    top_atoms,
)
from onnx_spatial.maps.values import Samples, is_far


class Budget:
    """Steps and processor seconds that are left for a computation, see `within` for parts of it."""

    def __init__(
        self, steps: float = math.inf, seconds: float = math.inf, *, within: Budget | None = None
    ) -> None:
        """Begin now.

        Args:
            steps: number of steps.
            seconds: of processor time of this thread.
            within: a budget that this one is a part of: what is spent of one is spent of both.
        """
        self._spent: list[int] = [0] if within is None else within._spent
        self._last = self._spent[0] + steps
        self._deadline = thread_time() + seconds
        if within is not None:
            self._last = min(self._last, within._last)
            self._deadline = min(self._deadline, within._deadline)

    def spend(self, steps: int = 1) -> None:
        """Count some steps."""
        self._spent[0] += steps

    @property
    def spent(self) -> int:
        """Steps that were counted, of all budgets that it is a part of too."""
        return self._spent[0]

    @property
    def is_exhausted(self) -> bool:
        """Whether no steps or no time are left."""
        return self._spent[0] >= self._last or self.is_timed_out

    @property
    def is_timed_out(self) -> bool:
        """Whether no time is left: another machine may have had enough."""
        return self._deadline < math.inf and thread_time() >= self._deadline


_Product = tuple[Atom, ...]

#: The most facts, and products of atoms, that are combined; and steps of the simplex method.
_MAX_FACTS = 160
_MAX_SIMPLEX_STEPS = 120

_EPSILON = 1e-9
#: How far above -1 the number that is left must be at least.
_MIN_REMAINDER = 1 / 64
_MAX_DENOMINATOR = 4096


def follows_from(p: Polynomial, facts: Sequence[Polynomial]) -> bool:
    """Tell whether `p` is provably 0 or more as a sum of multiples of facts."""
    if not facts or len(facts) > _MAX_FACTS:
        return False
    products = list(dict.fromkeys(m for q in (p, *facts) for m in q.terms if m))
    if len(products) > _MAX_FACTS:
        return False
    # One row for each product: its factor in the sum is at most its factor in p.
    rows = [[float(f.terms.get(m, 0)) for f in facts] for m in products]
    bounds = [float(p.terms.get(m, 0)) for m in products]
    for m, row, bound in zip(products, rows[: len(products)], list(bounds), strict=True):
        if not _is_sure(m):
            rows.append([-value for value in row])
            bounds.append(-bound)
    rows.append([float(f.terms.get((), 0)) for f in facts])
    bounds.append(p.terms.get((), 0) + 1 - _MIN_REMAINDER)
    factors = _feasible_point(np.array(rows), np.array(bounds))
    if factors is None:
        return False
    exact = [Fraction(float(c)).limit_denominator(_MAX_DENOMINATOR) for c in factors]
    return all(c >= 0 for c in exact) and _is_sum(p, facts, exact)


def _is_sum(p: Polynomial, facts: Sequence[Polynomial], factors: Sequence[Fraction]) -> bool:
    """Tell whether `p` minus multiples of facts is above -1, term by term and exactly."""
    rest: dict[_Product, Fraction] = {m: Fraction(f) for m, f in p.terms.items()}
    for fact, factor in zip(facts, factors, strict=True):
        if factor:
            for m, f in fact.terms.items():
                rest[m] = rest.get(m, Fraction(0)) - factor * f
    number = rest.pop((), Fraction(0))
    return number > -1 and all(not f or (f > 0 and _is_sure(m)) for m, f in rest.items())


def _feasible_point(
    matrix: npt.NDArray[np.float64], bounds: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64] | None:
    """Return some x of 0 or more with matrix * x at most `bounds`; None if there is none."""
    count, size = matrix.shape
    negative = np.flatnonzero(bounds < 0)
    table = np.zeros((count + 1, size + count + len(negative) + 1))
    table[:count, :size] = matrix
    table[:count, size : size + count] = np.eye(count)
    table[:count, -1] = bounds
    table[negative] *= -1
    basis = size + np.arange(count)
    for number, start in enumerate(negative):
        artificial = size + count + number
        table[start, artificial] = 1
        basis[start] = artificial
        table[-1] -= table[start]
        table[-1, artificial] = 0
    for _ in range(_MAX_SIMPLEX_STEPS):
        if table[-1, -1] > -_EPSILON:
            x = np.zeros(table.shape[1] - 1)
            x[basis] = table[:count, -1]
            return x[:size]
        # The steepest column would be fast, the first one never runs in circles.
        candidates = np.flatnonzero(table[-1, : size + count] < -_EPSILON)
        if not len(candidates):
            return None
        column = int(candidates[0])
        entries = table[:count, column]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(entries > _EPSILON, table[:count, -1] / entries, np.inf)
        least = ratios.min()
        if not np.isfinite(least):
            return None
        ties = np.flatnonzero(ratios <= least + _EPSILON)
        row = int(ties[np.argmin(basis[ties])])
        table[row] /= table[row, column]
        others = np.arange(count + 1) != row
        table[others] -= np.outer(table[others, column], table[row])
        basis[row] = column
    return None


#: The most terms of all polynomials of (size - least value), and facts and products that are combined.
_MAX_SHIFTED = 4096
_MAX_PRODUCTS = 120

#: The most sizes that a polynomial is multiplied by, one at a time.
_MAX_SCALES = 4


class Facts:
    """Polynomials that are 0 or more, in the order in which they were added."""

    def __init__(self, budget: Budget | None = None) -> None:
        """Begin without facts.

        Args:
            budget: of searches; `nonnegative` answers no where it is exhausted.
        """
        self._budget = Budget() if budget is None else budget
        self.samples = Samples()
        self._facts: dict[Polynomial, None] = {}
        #: For each fact, whether it and those before it hold at each sample.
        self._held: list[npt.NDArray[np.bool_]] = []
        self._proven: set[Polynomial] = set()
        self._failed: set[Polynomial] = set()

    def __iter__(self) -> Iterator[Polynomial]:
        return iter(self._facts)

    def add(self, fact: Polynomial) -> None:
        """Add a polynomial that is 0 or more."""
        fact = _tightened(fact)
        if fact not in self._facts and not fact.nonnegative:
            self._facts[fact] = None
            self._failed.clear()

    def copy(self) -> Facts:
        """Return a copy, to go back to."""
        other = copy(self)
        other._facts, other._held = dict(self._facts), list(self._held)
        other._proven, other._failed = set(self._proven), set()
        return other

    def emptied(self) -> Facts:
        """Return no facts, with the same budget and samples."""
        other = copy(self)
        other._facts, other._held, other._proven, other._failed = {}, [], set(), set()
        return other

    def nonnegative(self, p: Polynomial) -> bool:
        """Tell whether `p` is provably 0 or more."""
        if p.constant is not None:
            return p.constant >= 0
        if p.nonnegative:
            return True
        if _tightened(p) in self._facts or _tightened(p - 1) in self._facts:
            return True
        p = _tightened(_without_common_factor(p))
        if p in self._facts or p in self._proven or is_far(p):
            return True
        if p in self._failed:
            return False
        values = self.samples.evaluate(p)
        if values is not None and (self._samples_that_hold() & (values < 0)).any():
            self._failed.add(p)
            return False
        return self._search_from(p)

    def contradictory(self) -> bool:
        """Tell whether the facts provably exclude each other."""
        if self._samples_that_hold().any():
            return False
        return self._search_from(Polynomial.of(-1))

    def _samples_that_hold(self) -> npt.NDArray[np.bool_]:
        """Return at which samples all facts hold, as far as they can be evaluated."""
        for fact in list(self._facts)[len(self._held) :]:
            values = self.samples.evaluate(fact)
            holds = np.zeros(1, bool) if values is None else values >= 0
            self._held.append(self._held[-1] & holds if self._held else holds)
        return self._held[-1] if self._held else np.ones(1, bool)

    def _search_from(self, p: Polynomial) -> bool:
        facts = _near(top_atoms(p), list(self._facts))
        self._budget.spend(1 + len(facts))
        found = (
            _shifted(p, _limits(facts, 1)).nonnegative
            or follows_from(p, facts)
            or self._follows_by_products(p, facts)
        )
        (self._proven if found else self._failed).add(p)
        return found

    def _follows_by_products(self, p: Polynomial, facts: Sequence[Polynomial]) -> bool:
        """Tell whether `p` follows from facts, bounds of quotients, and products of these."""
        facts = [*facts, *_bounds_of_quotients([p, *facts])]
        least = _limits(facts, 1)
        if sum(2 ** len(m) for q in (p, *facts) for m in q.terms) > _MAX_SHIFTED:
            return False
        shifted = [_tightened(_shifted(fact, least)) for fact in facts]
        greatest = {atom: -low for atom, low in _limits(shifted, -1).items()}
        shifted += [cut for fact in shifted for cut in _cuts(fact, greatest)]
        useful = [fact for fact in dict.fromkeys(shifted) if not fact.nonnegative]
        for scale in (ONE, *_scales(p, facts, least)):
            # p is an integer: p >= 0 if scale * p > -scale.
            scaled = _shifted(p * scale + scale - 1, least)
            products = _products(scaled, useful)
            self._budget.spend(1 + len(products))
            if scaled.nonnegative or follows_from(scaled, products):
                return True
            if self._budget.is_exhausted:
                break
        return False


def _near(atoms: set[Atom], facts: Sequence[Polynomial]) -> list[Polynomial]:
    """Return the facts that share atoms with some, or with one of these facts; all for no atoms."""
    near = [fact for fact in facts if not atoms or not atoms.isdisjoint(top_atoms(fact))]
    wider = atoms.union(*map(top_atoms, near))
    return near if wider == atoms or not atoms else _near(wider, facts)


def _bounds_of_quotients(numbers: Iterable[Polynomial]) -> list[Polynomial]:
    """Return what follows from the definitions of quotients by numbers: b*floor(a / b) <= a."""
    bounds: dict[Polynomial, None] = {}
    todo = list(numbers)
    for p in todo:
        for atom in top_atoms(p):
            if atom.operation.operator == FLOOR:
                (a, b), quotient = atom.operation.operands, Polynomial({(atom,): 1})
                rest = a - b * quotient
                if (b.constant or 0) > 0 and rest not in bounds:
                    todo.append(a)
                    bounds |= dict.fromkeys((rest, b - 1 - rest))
    return list(bounds)


def _limits(facts: Iterable[Polynomial], sign: int) -> dict[Atom, int]:
    """Return the least values of atoms that are 0 or more; with the sign -1 those of their opposites."""
    limits: dict[Atom, int] = {}
    for fact in (fact for fact in facts if len(fact.terms) <= 2):
        number = fact.terms.get((), 0)
        atom = ((fact - number) * sign).lone_atom
        if atom is not None and atom.nonnegative:
            limits[atom] = max(-number, limits.get(atom, -number))
    return limits


def _times(product: Iterable[Atom], other: Iterable[Atom]) -> _Product:
    return tuple(sorted((*product, *other), key=lambda atom: atom.serial))


def _shifted(p: Polynomial, least: Mapping[Atom, int]) -> Polynomial:
    """Return `p` as a polynomial of (size - least value): 2*h - 1 is 2*h' + 1 for h = h' + 1."""
    # No sums of polynomials: what grows too large for them would be an atom, of shifted sizes.
    terms: dict[_Product, int] = {}
    for product, factor in p.terms.items():
        shifted: dict[_Product, int] = {(): factor}
        for atom in product:
            grown = {_times(m, (atom,)): f for m, f in shifted.items()}
            for m, f in shifted.items():
                grown[m] = grown.get(m, 0) + f * least.get(atom, 0)
            shifted = grown
        for m, f in shifted.items():
            terms[m] = terms.get(m, 0) + f
    return Polynomial(terms)


def _cuts(fact: Polynomial, greatest: Mapping[Atom, int]) -> Iterator[Polynomial]:
    """Yield what a fact says of multiples of a number, if other terms are as large as they can be.

    5 - k - 2*i >= 0  with  k >= 0       is      i <= 2
    """
    for divisor in {abs(factor) for product, factor in fact.terms.items() if product} - {1}:
        terms: dict[_Product, int] = {(): fact.terms.get((), 0)}
        for product, factor in fact.terms.items():
            if product and factor % divisor == 0:
                terms[product] = factor
            elif factor > 0 and len(product) == 1 and product[0] in greatest:
                terms[()] += factor * greatest[product[0]]
            elif product and (factor > 0 or not _is_sure(product)):
                break
        else:
            yield _tightened(Polynomial(terms))


def _scales(
    p: Polynomial, facts: Iterable[Polynomial], least: Mapping[Atom, int]
) -> list[Polynomial]:
    """Return sizes of 1 or more which `p` times has terms of facts that `p` lacks."""
    found: dict[Atom, None] = {}
    for fact, (product, factor) in itertools.product(facts, p.terms.items()):
        for other, its_factor in fact.terms.items():
            scale, lacking = apart(other, product)
            if product and not lacking and len(scale) == 1 and its_factor * factor > 0:
                found.update(dict.fromkeys(atom for atom in scale if least.get(atom, 0) > 0))
    return [Polynomial({(atom,): 1}) for atom in list(found)[:_MAX_SCALES]]


def _products(p: Polynomial, facts: Sequence[Polynomial]) -> list[Polynomial]:
    """Return facts, and facts times atoms that cancel a term of `p`, or of such a product.

    A fact without such a term, h - w - 1, is multiplied where that gives no new term to cancel. Products
    are found in rounds; if one has too many terms, it is the last, and only its products without new
    terms are taken.
    """
    products = list(facts)
    known = {product for q in (p, *facts) for product in q.terms}
    wanted = dict.fromkeys(m for q in ((p,) if top_atoms(p) else facts) for m in _doubtful(q))
    todo = list(wanted)
    while todo and len(products) <= _MAX_PRODUCTS:
        before = set(known)
        added = [*itertools.islice(_round_of_products(todo, facts, known), _MAX_PRODUCTS)]
        if len(known) > _MAX_FACTS:
            return [*products, *(q for q in added if before.issuperset(q.terms))]
        products = list(dict.fromkeys((*products, *added)))
        todo = list(dict.fromkeys(m for q in added for m in _doubtful(-q) if m not in wanted))
        wanted.update(dict.fromkeys(todo))
    return products


def _round_of_products(
    wanted: Iterable[_Product], facts: Sequence[Polynomial], known: set[_Product]
) -> Iterator[Polynomial]:
    """Yield facts times atoms that cancel one of these products; their terms become known."""
    pairs = [(fact, term) for fact in facts for term in fact.terms.items()]
    for product, (fact, (other, factor)) in itertools.product(wanted, pairs):
        times, lacking = apart(product, other)
        if lacking or not _is_sure(times) or (factor > 0 and _is_sure(product)):
            continue
        found = Polynomial({_times(m, times): f for m, f in fact.terms.items()})
        if other or not any(f > 0 and m not in known for m, f in found.terms.items()):
            known.update(found.terms)
            yield found


def _is_sure(product: Iterable[Atom]) -> bool:
    return all(atom.nonnegative for atom in product)


def _doubtful(p: Polynomial) -> list[_Product]:
    """Return the products of atoms of the terms of a polynomial that may be negative."""
    return [m for m, f in p.terms.items() if m and (f < 0 or not _is_sure(m))]


def _without_common_factor(p: Polynomial) -> Polynomial:
    """Return the polynomial without atoms that are a factor of all terms, if these are 0 or more.

    A lone negative term is 0 or more where an atom is 0.
    """
    shared = [atom for atom in shared_atoms(p) if atom.nonnegative]
    if not shared or len(p.terms) == 1:
        return p
    return Polynomial({tuple(apart(m, shared)[0]): f for m, f in p.terms.items()})


def _tightened(p: Polynomial) -> Polynomial:
    """Return the polynomial divided by the common factor of its terms, the constant rounded down."""
    common = 0
    for product, factor in p.terms.items():
        if product:
            common = math.gcd(common, factor)
            if common == 1:
                return p
    if not common:
        return p
    return Polynomial({m: f // common for m, f in p.terms.items()})
