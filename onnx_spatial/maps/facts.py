"""Prove that a polynomial is 0 or more from facts: polynomials that are.

    0 <= n < N, 0 <= w < W            is  n*W + w < N*W  ?
    N*W - 1 - n*W - w  =  W*(N - 1 - n) + (W - 1 - w)          yes: a sum of known ones

Linear programming comes first, with products of atoms as unknowns of their own. It finds the factors in
floating point, and they are checked exactly:

    p = sum of c_i * fact_i + terms that are 0 or more + a number above -1      p is an integer

Then a search cancels a term that may be negative with a multiple of a fact that has this term, until no
such term is left. A `Budget` bounds the search: "not proven" does not mean that the polynomial may be
negative. Its steps are the same on every machine, and so is what is proven within a number of them.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable, Iterator, Sequence
from fractions import Fraction
from time import thread_time

import numpy as np
import numpy.typing as npt

from onnx_spatial.maps.polynomial import (
    FLOOR,
    Atom,
    IndexKind,
    Polynomial,
    Symbol,
    apart,
    factor_of,
    is_inside_of,
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


_Unknown = tuple[Atom, ...]

#: The most facts, and products of atoms, that are combined; and steps of the simplex method.
_MAX_FACTS = 80
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
        if not all(atom.nonnegative for atom in m):
            rows.append([-value for value in row])
            bounds.append(-bound)
    rows.append([float(f.terms.get((), 0)) for f in facts])
    bounds.append(p.terms.get((), 0) + 1 - _MIN_REMAINDER)
    factors = _feasible_point(np.array(rows), np.array(bounds))
    if factors is None:
        return False
    exact = [Fraction(float(c)).limit_denominator(_MAX_DENOMINATOR) for c in factors]
    return all(c >= 0 for c in exact) and _is_sum(p, facts, exact)


def related_facts(p: Polynomial, facts: Sequence[Polynomial]) -> list[Polynomial]:
    """Return the facts that share products of atoms with `p`, or with one of these facts."""
    seen = {m for m in p.terms if m}
    if not seen:
        return list(facts)
    left, found = list(facts), list[Polynomial]()
    while True:
        new = [f for f in left if not seen.isdisjoint(f.terms)]
        if not new:
            return found
        found += new
        left = [f for f in left if seen.isdisjoint(f.terms)]
        seen.update(m for f in new for m in f.terms if m)


def _is_sum(p: Polynomial, facts: Sequence[Polynomial], factors: Sequence[Fraction]) -> bool:
    """Tell whether `p` minus multiples of facts is above -1, term by term and exactly."""
    rest: dict[_Unknown, Fraction] = {m: Fraction(f) for m, f in p.terms.items()}
    for fact, factor in zip(facts, factors, strict=True):
        if factor:
            for m, f in fact.terms.items():
                rest[m] = rest.get(m, Fraction(0)) - factor * f
    number = rest.pop((), Fraction(0))
    return number > -1 and all(
        not f or (f > 0 and all(atom.nonnegative for atom in m)) for m, f in rest.items()
    )


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


_Product = tuple[Atom, ...]

#: The most sums of facts that one search tries: with products of symbols, and without them, where only
#: rounding is left for the search to find.
_MAX_STEPS = 400
_MAX_ROUNDED = 12

#: The most terms that a polynomial of (size - least value) has.
_MAX_SHIFTED = 640

#: Terms of polynomials that are computed in about the time of a usual step, 0.1 ms.
_TERMS_A_STEP = 16

#: The most quotients, and the most indices, that are replaced by their bounds.
_MAX_QUOTIENTS = 4
_MAX_BOUNDS = 16


class Facts:
    """Polynomials that are 0 or more, in the order in which they were added."""

    def __init__(self, budget: Budget | None = None) -> None:
        """Begin without facts.

        Args:
            budget: of searches; `nonnegative` answers no where it is exhausted.
        """
        self._budget = Budget() if budget is None else budget
        self.samples = Samples()
        #: For each fact, whether it and those before it hold at each sample.
        self._held: list[npt.NDArray[np.bool_]] = []
        self._facts: list[Polynomial] = []
        self._known: dict[Polynomial, int] = {}
        self._proven: dict[Polynomial, int] = {}
        self._failed: dict[Polynomial, int] = {}
        #: Facts of the form "size - 1".
        self._lone: set[Polynomial] = set()
        #: Least values of sizes, 1 or more, one for each fact "size - value".
        self._least: dict[Atom, list[int]] = {}
        #: Terms of facts, as (fact, product, factor): the constants, and others by their atoms.
        self._constants: list[tuple[Polynomial, _Product, int]] = []
        self._by_atom: dict[Atom, list[tuple[Hashable, tuple[Polynomial, _Product, int]]]] = {}
        self._version = 0

    def __iter__(self) -> Iterator[Polynomial]:
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)

    def add(self, fact: Polynomial) -> None:
        """Add a polynomial that is 0 or more."""
        fact = _tightened(fact)
        if fact in self._known or fact.nonnegative:
            return
        self._known[fact] = len(self._facts)
        self._facts.append(fact)
        self._version += 1
        for product, factor in fact.terms.items():
            for atom in set(product):
                term = (fact, product, factor)
                self._by_atom.setdefault(atom, []).append(((len(self._facts), product), term))
        low = -fact.terms.get((), 0)
        lone = (fact + low).lone_atom
        if lone is not None and lone.nonnegative and low > 0:
            if low == 1:
                self._lone.add(fact)
            self._least.setdefault(lone, []).append(low)
        if low:
            self._constants.append((fact, (), -low))

    def saved(self) -> Facts:
        """Return a copy that `restore` brings back."""
        copy = object.__new__(Facts)
        copy.restore(self)
        return copy

    def restore(self, other: Facts) -> None:
        """Replace all facts by those of a copy."""
        self._budget, self.samples = other._budget, other.samples
        self._facts, self._held = list(other._facts), list(other._held)
        self._known, self._proven = dict(other._known), dict(other._proven)
        self._failed, self._version = {}, other._version + 1
        self._lone = set(other._lone)
        self._least = {atom: list(lows) for atom, lows in other._least.items()}
        self._constants = list(other._constants)
        self._by_atom = {atom: list(terms) for atom, terms in other._by_atom.items()}

    def forget(self, count: int) -> None:
        """Keep the first `count` facts."""
        if count == len(self._facts):
            return
        while len(self._facts) > count:
            self._remove_last()
        del self._held[count:]
        self._proven = {p: at for p, at in self._proven.items() if at <= count}
        self._failed.clear()
        self._version += 1

    def _remove_last(self) -> None:
        fact = self._facts.pop()
        del self._known[fact]
        for product in fact.terms:
            for atom in set(product):
                self._by_atom[atom].pop()
        low = -fact.terms.get((), 0)
        lone = (fact + low).lone_atom
        if lone is not None and lone.nonnegative and low > 0:
            self._lone.discard(fact)
            self._least[lone].pop()
            if not self._least[lone]:
                del self._least[lone]
        if low:
            self._constants.pop()

    def nonnegative(self, p: Polynomial) -> bool:
        """Tell whether `p` is provably 0 or more."""
        if p.constant is not None:
            return p.constant >= 0
        if p.nonnegative:
            return True
        if _tightened(p) in self._known or _tightened(p - 1) in self._known:
            return True
        p = _tightened(_without_common_factor(p))
        if p in self._known or p in self._proven or is_far(p):
            return True
        if self._failed.get(p) == self._version:
            return False
        values = self.samples.evaluate(p)
        if values is not None and (self._samples_that_hold() & (values < 0)).any():
            self._failed[p] = self._version
            return False
        return self._search_from(p)

    def contradictory(self) -> bool:
        """Tell whether the facts provably exclude each other."""
        if self._samples_that_hold().any():
            return False
        return self._search_from(Polynomial.of(-1))

    def _samples_that_hold(self) -> npt.NDArray[np.bool_]:
        """Return at which samples all facts hold, as far as they can be evaluated."""
        while len(self._held) < len(self._facts):
            values = self.samples.evaluate(self._facts[len(self._held)])
            holds = np.zeros(1, bool) if values is None else values >= 0
            self._held.append(self._held[-1] & holds if self._held else holds)
        return self._held[-1] if self._held else np.ones(1, bool)

    def _search_from(self, p: Polynomial) -> bool:
        found = self._is_trivial(p)
        if not found:
            related = related_facts(p, self._facts)
            self._budget.spend(1 + len(related))
            found = follows_from(p, related)
        if not found:
            degree = max((len(m) for q in (p, *related) for m in q.terms), default=0)
            steps = _MAX_STEPS if degree > 1 else _MAX_ROUNDED
            found = (degree > 1 and self._at_bounds(p)) or (
                self._search_sum(p, steps) or self._without_quotients(p, steps)
            )
        if found:
            self._proven[p] = len(self._facts)
            return True
        self._failed[p] = self._version
        return False

    def _at_bounds(self, p: Polynomial) -> bool:
        """Tell whether `p` is 0 or more where each index has the value that makes it least.

        n*h*w - h*w*i - w*j - k - 1  is 0 at  i = n - 1, j = h - 1, k = w - 1.
        """
        for _ in range(_MAX_BOUNDS):
            self._budget.spend()
            if self._is_trivial(p):
                return True
            least = next(self._lower_bounds(p), None)
            if least is None:
                return False
            p = _tightened(least)
        return False

    def _lower_bounds(self, p: Polynomial) -> Iterator[Polynomial]:
        """Yield `p` with an index at a bound where it is no larger, those in large products first."""
        sizes: dict[Atom, int] = {}
        for product in p.terms:
            for atom in product:
                if isinstance(atom.key, Symbol) and isinstance(atom.key.kind, IndexKind):
                    sizes[atom] = max(sizes.get(atom, 0), len(product))
        for atom in sorted(sizes, key=lambda atom: (-sizes[atom], atom.serial)):
            factor, rest = factor_of(p, atom)
            if factor is None:
                continue
            if self._is_trivial(factor):
                yield rest
            elif self._is_trivial(-factor):
                bounds = (
                    fact + Polynomial({(atom,): 1})
                    for _, (fact, product, f) in self._by_atom.get(atom, ())
                    if product == (atom,) and f == -1
                )
                yield from (
                    factor * bound + rest
                    for bound in sorted(bounds, key=lambda bound: len(bound.terms))
                    if atom not in top_atoms(bound)
                )

    def _without_quotients(self, p: Polynomial, steps: int) -> bool:
        """Tell whether `p` is 0 or more by the bounds of its quotients, the outer ones first.

        b * floor(a / b) is at most a, and at least a - b + 1.
        """
        for _ in range(_MAX_QUOTIENTS):
            quotient = _outermost_quotient(p)
            if quotient is None:
                return False
            a, divisor = quotient.operation.operands
            b = divisor.constant
            if b is None:
                return False
            terms = Polynomial.of(b - 1)
            for product, factor in p.terms.items():
                if quotient not in product:
                    terms = terms + Polynomial({product: factor * b})
                    continue
                rest = list(product)
                rest.remove(quotient)
                if quotient in rest or not all(atom.nonnegative for atom in rest):
                    return False
                bound = a if factor < 0 else a - (b - 1)
                terms = terms + bound * Polynomial({tuple(rest): factor})
            p = _tightened(terms)
            if self._search_sum(p, steps):
                return True
        return False

    def _search_sum(self, start: Polynomial, steps: int) -> bool:
        """Search for a sum of facts that is at most `start`, the most promising one first."""
        if self._is_trivial(start):
            return True
        queue: list[tuple[int, int, int, Polynomial]] = [(0, 0, 0, start)]
        seen = {start}
        for number in range(1, steps):
            self._budget.spend()
            # The clock is slow.
            if not queue or (number % 16 == 0 and self._budget.is_exhausted):
                return False
            _, _, depth, p = heapq.heappop(queue)
            bad = _doubtful_terms(p)
            # Sizes that are 1 or more may be outweighed in the end: indices first.
            product, factor = min(bad, key=lambda t: (self._least.keys() >= set(t[0]), -len(t[0])))
            for place, (scale, rest) in enumerate(self._cancel_term(p, product, factor)):
                self._budget.spend(1 + len(rest.terms) // _TERMS_A_STEP)
                rest = _tightened(rest)
                if rest in seen:
                    continue
                if self._is_trivial(rest):
                    return True
                seen.add(rest)
                weight = depth + 1 + 2 * scale + 2 * len(_doubtful_terms(rest)) + len(rest.terms)
                heapq.heappush(queue, (weight, number * 1000 + place, depth + 1, rest))
        return False

    def _is_trivial(self, p: Polynomial) -> bool:
        if p in self._known or p in self._proven or p - 1 in self._known:
            return True
        bad = _doubtful_terms(p)
        return not bad or self._is_dominated(p, bad) or self._is_nonnegative_shifted(p)

    def _is_nonnegative_shifted(self, p: Polynomial) -> bool:
        """Tell whether `p` has no negative term as a polynomial of (size - least value).

        (2*h - 1) * (3*w - 2) is (2*h' + 1) * (3*w' + 1) for h = h' + 1, w = w' + 1.
        """
        atoms = {atom for product in p.terms for atom in product}
        if not all(atom.nonnegative for atom in atoms):
            return False
        least = {a: max(self._least[a]) for a in atoms if a in self._least}
        # A product of n atoms becomes up to 2**n terms.
        count = sum(2 ** len(product) for product in p.terms)
        if not least or count > _MAX_SHIFTED:
            return False
        self._budget.spend(count // (4 * _TERMS_A_STEP))
        terms: dict[_Product, int] = {}
        for product, factor in p.terms.items():
            shifted: dict[_Product, int] = {(): factor}
            for atom in product:
                low = least.get(atom, 0)
                grown: dict[_Product, int] = {}
                for m, f in shifted.items():
                    key = tuple(sorted((*m, atom), key=lambda a: a.serial))
                    grown[key] = grown.get(key, 0) + f
                    if low:
                        grown[m] = grown.get(m, 0) + f * low
                shifted = grown
            for m, f in shifted.items():
                terms[m] = terms.get(m, 0) + f
        return all(f >= 0 for f in terms.values())

    def _is_dominated(self, p: Polynomial, bad: list[tuple[_Product, int]]) -> bool:
        """Tell whether positive terms are at least the others: multiples by factors of 1 or more.

        n*h*w >= n*h for w >= 1.
        """
        if any(factor > 0 for _, factor in bad):
            return False
        left = {m: f for m, f in p.terms.items() if f > 0}
        for product, factor in sorted(bad, key=lambda term: -len(term[0])):
            missing = -factor
            for larger in sorted(left, key=len):
                more, lacking = apart(larger, product)
                if lacking or not self._least.keys() >= set(more):
                    continue
                used = min(missing, left[larger])
                left[larger] -= used
                missing -= used
                if not missing:
                    break
            if missing:
                return False
        return True

    def _cancel_term(
        self, p: Polynomial, product: _Product, factor: int
    ) -> list[tuple[int, Polynomial]]:
        """Return the rest of `p` after cancelling a term with each fact that has such a term.

        Each with the number of atoms that `p` was multiplied by before.
        """
        steps = []
        for fact, other, its_factor in self._terms_with(p, product):
            if (its_factor < 0) != (factor < 0):
                continue
            times, scale = apart(product, other)
            if len(scale) > 1 or not self._least.keys() >= set(scale):
                continue
            if not all(a.nonnegative for a in times):
                continue
            if not other and product and not _fits_terms(p, fact, product):
                continue  # its constant alone fits: rarely of use
            common = math.gcd(factor, its_factor)
            a, k = abs(its_factor) // common, abs(factor) // common
            scaled = Polynomial({tuple(scale): a})
            # p is an integer: p >= 0 if scaled * p > -scaled.
            rest = p * scaled + scaled - 1 - fact * Polynomial({tuple(times): k})
            steps.append((len(scale), rest))
        return steps

    def _terms_with(
        self, p: Polynomial, product: _Product
    ) -> Iterator[tuple[Polynomial, _Product, int]]:
        """Yield the terms of facts that share an atom with a product, and the constants of facts."""
        seen = set()
        for atom in dict.fromkeys(product):
            for number, term in self._by_atom.get(atom, ()):
                if number not in seen:
                    seen.add(number)
                    yield term
        for term in self._constants:
            # See `_is_dominated` for facts of single sizes.
            if p.constant is not None or len(term[0].terms) > 2 or term[0] not in self._lone:
                yield term


def _outermost_quotient(p: Polynomial) -> Atom | None:
    """Return a quotient of a polynomial that is not inside another one, the latest of them."""
    quotients = {atom for atom in top_atoms(p) if atom.operation.operator == FLOOR}
    for one in sorted(quotients, key=lambda atom: -atom.serial):
        if not any(is_inside_of(one, Polynomial({(other,): 1})) for other in quotients):
            return one
    return None


def _without_common_factor(p: Polynomial) -> Polynomial:
    """Return the polynomial without atoms that are a factor of all terms, if these are 0 or more.

    A lone negative term is 0 or more where an atom is 0.
    """
    shared = [atom for atom in shared_atoms(p) if atom.nonnegative]
    if not shared or len(p.terms) == 1:
        return p
    return Polynomial({tuple(apart(m, shared)[0]): f for m, f in p.terms.items()})


def _fits_terms(p: Polynomial, fact: Polynomial, product: _Product) -> bool:
    """Tell whether each positive term of a fact, times a product, is a positive term of `p`."""
    for m, factor in fact.terms.items():
        if factor > 0:
            key = tuple(sorted((*m, *product), key=lambda atom: atom.serial))
            if p.terms.get(key, 0) <= 0:
                return False
    return True


def _doubtful_terms(p: Polynomial) -> list[tuple[_Product, int]]:
    """Return the terms of a polynomial that may be negative."""
    return [(m, f) for m, f in p.terms.items() if f < 0 or not all(a.nonnegative for a in m)]


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
