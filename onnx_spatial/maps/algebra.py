"""Compare real elements that are computed by the same formula, written in another way.

    BatchNormalization(sum of w*x + b, s, t, m, v)        = sum of w'*x + b'
    Add(Gelu(x), y)                                       = y + 0.5*x*(1 + Erf(x / 1.414))

Both elements are written as sums of terms, each a number times factors that are no numbers. A number in
front of a sum of products goes into that sum. Numbers are evaluated, with a bound of what rounding adds
to each operation: a constant that a tool folded lies within it. Constants that nothing was folded
into must be equal.

    s*(sum of w*x + b - m)/sqrt(v + e) + t      terms   sum of (w*s/sqrt(v + e)) * x
                                                        number  (b - m)*s/sqrt(v + e) + t

Terms are matched by what is outside of all sums. So they are matched alike in all cases of the indices
of sums, and what holds for one product of each sum, in all cases, holds for the sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, partialmethod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from onnx_spatial.maps.cases import Case
from onnx_spatial.maps.constants import CONSTANT, places_of, read, stored_in
from onnx_spatial.maps.elements import PRODUCTS, lengths
from onnx_spatial.maps.expressions import (
    COMPUTED,
    ELEMENT,
    ONE,
    UNKNOWN,
    ZERO,
    LiteralKey,
    atoms_of,
    bases_of,
    unknown,
)
from onnx_spatial.maps.node import number
from onnx_spatial.maps.polynomial import Atom, OperationKey, Polynomial
from onnx_spatial.maps.values import Grid, evaluate
from onnx_spatial.model import op_traits
from onnx_spatial.model.op_traits import Trait

#: What is assumed where formulas are equal, but not written alike.
REWRITTEN = (
    "formulas that are written in another way are the same, apart from rounding, "
    "where no number in them is NaN, infinite or -0.0"
)
#: What is assumed of constants.
FOLDED = "constants that were folded are equal within the rounding of the fold"

#: Error of one operation, by type: relative, and that of numbers next to 0; and a bound of all numbers.
_ROUNDING: dict[int, tuple[float, float, float]] = {
    TensorProto.DOUBLE: (2.0**-52, 2.0**-1074, np.inf),
    TensorProto.FLOAT: (2.0**-23, 2.0**-149, 2.0**128),
    TensorProto.FLOAT16: (2.0**-10, 2.0**-24, 2.0**16),
    TensorProto.BFLOAT16: (2.0**-7, 2.0**-133, 2.0**128),
}
#: The order of operations in a fold, and of what was folded, may double the errors.
_ORDERS = 2
#: The most errors of one operation by which the largest of some numbers may be wrong: what cancels or
#: underflows is not known.
_MOST_ERRORS = 128

#: The most numbers that are compared one by one, and terms of a formula.
_MOST_NUMBERS, _MOST_TERMS = 1 << 23, 16

#: Operators of elements at the same place alone: no sum is inside, unless in their operands.
_ELEMENTWISE = op_traits.having(Trait.UNARY, Trait.BROADCASTS) | {"BatchNormalization"}


class Term(NamedTuple):
    """A number times factors: elements that are no numbers, and sums."""

    number: Polynomial
    factors: tuple[Polynomial | Sum, ...] = ()


class Sum(NamedTuple):
    """A sum of a term along indices of some extents."""

    term: Term
    extents: tuple[Polynomial, ...]


_Equal = Callable[[Case, Polynomial, Polynomial], bool]


def same_formula(case: Case, a: Polynomial, b: Polynomial, equal: _Equal) -> bool:
    """Tell whether two elements are provably the same, apart from rounding.

    Args:
        case: the case.
        a, b: elements that are not known to be equal as they are written.
        equal: compares elements.
    """
    left, right = _terms(case, a), _terms(case, b)
    if left == (Term(ONE, (a,)),) and right == (Term(ONE, (b,)),):
        return False
    if not _matched(case, left, right, equal):
        return False
    if any(term.factors for term in left):
        case.assumptions[REWRITTEN] = None
    return True


def _same(case: Case, a: Any, b: Any, equal: _Equal, *, signed: bool = True) -> bool:
    """Tell whether two terms, or factors that look alike, are the same."""
    if isinstance(a, Sum) and isinstance(b, Sum):
        return a.extents == b.extents and _same(case, a.term, b.term, equal, signed=False)
    if isinstance(a, Term):
        alike = _are_close(case, a.number, b.number, signed=signed)
        return alike and _matched(case, a.factors, b.factors, equal)
    return equal(case, a, b)


def _matched(case: Case, left: Sequence[Any], right: Sequence[Any], equal: _Equal) -> bool:
    """Tell whether terms or factors are the same in some order.

    Those that look alike outside of sums are matched in any order if there are no sums in them, else
    in the order in which they are written: it must not depend on a case of the indices of sums.
    """
    sides = [[(_outline(case, x), x) for x in side] for side in (left, right)]
    if sorted(outline for outline, _ in sides[0]) != sorted(outline for outline, _ in sides[1]):
        return False
    rest = sides[1]
    for outline, one in sides[0]:
        candidates = [pair for pair in rest if pair[0] == outline]
        if not all(map(_is_local, (one, *(x for _, x in candidates)))):
            candidates = candidates[:1]
        found = next((pair for pair in candidates if _same(case, one, pair[1], equal)), None)
        if found is None:
            return False
        rest.remove(found)
    return True


def _outline(case: Case, x: Any) -> str:
    """Return how an element looks outside of sums; indices and numbers do not count."""
    if isinstance(x, Sum):
        return "sum of terms"
    if isinstance(x, Term):
        inner = sorted(_outline(case, factor) for factor in x.factors)
        return inner[0] if len(inner) == 1 else f"({' '.join(inner)})"
    return case.once(("outline", x), lambda: _outline_of(case, x))


def _outline_of(case: Case, x: Polynomial) -> str:
    terms, key = _terms(case, x), _key(x)
    if terms != (Term(ONE, (x,)),):
        return " + ".join(sorted(_outline(case, term) for term in terms))
    if key is None or key.operator == CONSTANT:
        return "number"
    if key.operator == ELEMENT:
        return f"[{key.details[0]}]"
    inner = (_outline(case, p) for p in key.operands) if _is_elementwise(key) else ()
    return f"{key.operator}({' '.join(inner)})"


def _is_local(x: Any) -> bool:
    """Tell whether there are no sums in an element."""
    if isinstance(x, Term):
        return all(map(_is_local, x.factors))
    keys = [] if isinstance(x, Sum) else [atom.key for atom in atoms_of(x)]
    functions = [k for k in keys if isinstance(k, OperationKey) and k.operator not in _ATOMIC]
    return not isinstance(x, Sum) and all(map(_is_elementwise, functions))


_ATOMIC = COMPUTED | {CONSTANT, ELEMENT}


def _is_elementwise(key: OperationKey) -> bool:
    return key.operator.removeprefix(UNKNOWN) in _ELEMENTWISE


def _key(p: Polynomial) -> OperationKey | None:
    atom = p.lone_atom
    return atom.key if atom is not None and isinstance(atom.key, OperationKey) else None


# Terms


def _terms(case: Case, p: Polynomial) -> tuple[Term, ...]:
    """Return an element as a sum of terms: different factors, and one number without factors."""
    return case.once(("terms", p), lambda: _collected(_written(case, p)))


def _collected(terms: Sequence[Term]) -> tuple[Term, ...]:
    """Return terms with the numbers of equal factors added, and numbers moved into sums."""
    totals: list[Term] = []
    for factor, factors in map(_into_sum, terms):
        known = [t for t in totals if t.factors == factors and _is_local(t)]
        if known:
            totals.remove(known[0])
            total = known[0].number
            factor = _do("Add", _type_of(factor, total), total, factor)
        totals.append(Term(factor, factors))
    # A sum of products and 0 has no sign to lose; x + 0.0 is 0.0 for -0.0.
    sums = any(isinstance(factor, Sum) for term in totals for factor in term.factors)
    return tuple(t for t in totals if t != Term(ZERO) or not sums)


def _into_sum(term: Term) -> Term:
    """Return a term with its number as a part of its first sum."""
    for place, factor in enumerate(term.factors if term.number != ONE else ()):
        if isinstance(factor, Sum):
            number = factor.term.number
            product = _times(_type_of(term.number, number), term.number, number)
            moved = factor._replace(term=factor.term._replace(number=product))
            return Term(ONE, (*term.factors[:place], moved, *term.factors[place + 1 :]))
    return term


def _written(case: Case, p: Polynomial) -> Sequence[Term]:
    """Return an element as terms, from those of its operands."""
    if _is_number(p):
        return [Term(p)]
    alone, key = [Term(ONE, (p,))], _key(p)
    if p.lone_atom in case.written_out:
        use, compute = case.written_out[p.lone_atom]
        with case.within(sums=use.sums - case.use.sums):
            return _terms(case, compute())
    kind = 0 if key is None else real_type(key)
    if key is None or not kind:
        return alone
    name, operands = key.operator.removeprefix(UNKNOWN), tuple(key.operands)
    first, *others = (partial(_terms, case, q) for q in operands)
    if name in (PRODUCTS, "ReduceMean", "ReduceSum"):
        return _summed(case, name, kind, operands) or alone
    if name in ("Add", "Sum"):
        total = [term for q in operands for term in _terms(case, q)]
        return total if len(total) <= _MOST_TERMS**2 else alone
    if name in ("Sub", "Neg"):
        minus = [t._replace(number=_do("Neg", kind, t.number)) for t in _terms(case, operands[-1])]
        return [*first(), *minus] if others else minus
    if name == "Mul":
        product = _product(kind, first(), others[0]())
        return product if len(product) <= _MOST_TERMS else alone
    if name in ("Max", "Min") and list(map(_is_number, operands)) == [True, False]:
        return _terms(case, _do(name, kind, operands[1], operands[0]))
    if name in ("Div", "Reciprocal"):
        inverse = _inverse(case, kind, operands[-1])
        return _product(kind, first(), [inverse]) if others else [inverse]
    flags = [d for d in key.details if isinstance(d, bool)] or [False] * len(operands)
    given = iter(operands)
    row = [None if missing else _Real(kind, next(given)) for missing in flags]
    attributes = dict(d for d in key.details if isinstance(d, tuple) and len(d) == 2)
    defined = DEFINITIONS[name](attributes, *row) if name in DEFINITIONS else None
    return alone if defined is None or defined.element == p else _terms(case, defined.element)


def _summed(
    case: Case, name: str, kind: int, operands: Sequence[Polynomial]
) -> Sequence[Term] | None:
    """Return a sum of products, or a sum or mean of elements, as a term."""
    factors, extents = operands[:2], operands[2:]
    share = ONE
    if name != PRODUCTS:
        factors, extents = operands[:1], lengths(operands[1 + (len(operands) - 1) // 2 :])
        counts = [extent.constant for extent in extents]
        if name == "ReduceMean" and None in counts:
            return None
        if name == "ReduceMean":
            share = _do("Div", kind, ONE, _literal(math.prod(c or 1 for c in counts)))
    terms = [Term(share)]
    for factor in factors:
        of_factor = _terms(case, factor)
        of_factor = of_factor if len(of_factor) == 1 else (Term(ONE, (factor,)),)
        terms = _product(kind, terms, of_factor)
    (term,) = terms
    return [Term(ONE, (Sum(Term(ZERO) if term.number == ZERO else term, tuple(extents)),))]


def _product(kind: int, left: Sequence[Term], right: Sequence[Term]) -> list[Term]:
    return [
        Term(_times(kind, a.number, b.number), a.factors + b.factors) for a in left for b in right
    ]


def _inverse(case: Case, kind: int, p: Polynomial) -> Term:
    """Return 1 / p."""
    terms, factors = _terms(case, p), []
    if len(terms) > 1 or any(isinstance(factor, Sum) for factor in terms[0].factors):
        return Term(ONE, (_do("Reciprocal", kind, p),))
    for factor in terms[0].factors:
        assert isinstance(factor, Polynomial)
        key = _key(factor)
        if key is not None and key.operator == f"{UNKNOWN}Reciprocal":
            factors.append(next(iter(key.operands)))
        else:
            factors.append(_do("Reciprocal", kind, factor))
    number = terms[0].number
    return Term(ONE if number == ONE else _do("Div", kind, ONE, number), tuple(factors))


def _do(name: str, kind: int, *operands: Polynomial) -> Polynomial:
    return unknown(name, (kind, *(False for _ in operands)), operands)


def _times(kind: int, a: Polynomial, b: Polynomial) -> Polynomial:
    if ZERO in (a, b):
        return ZERO
    return a if b == ONE else b if a == ONE else _do("Mul", kind, a, b)


def _type_of(*numbers: Polynomial) -> int:
    """Return the type that numbers are computed in: the coarsest of their operations."""
    kinds = [real_type(k) for p in numbers if (k := _key(p)) is not None]
    default = int(TensorProto.FLOAT)
    return max(kinds, key=lambda kind: _ROUNDING.get(kind, (0, 0, 0)), default=0) or default


def real_type(key: OperationKey) -> int:
    """Return the type of reals that an operator computes in, the first number of its details; else 0."""
    numbers = [d for d in key.details if type(d) is int]
    return numbers[0] if numbers and numbers[0] in _ROUNDING else 0


# Definitions


def _literal(value: float) -> Polynomial:
    return Polynomial.of(int(value)) if value in (0, 1) else number(np.float64(value))


class _Real:
    """An element in a definition, for Python's operators."""

    def __init__(self, kind: int, element: Polynomial) -> None:
        self.kind, self.element = kind, element

    def do(self, name: str, *others: _Real | float) -> _Real:
        """Return an operator of this element and others."""
        row = (x.element if isinstance(x, _Real) else self._rounded(x) for x in others)
        return _Real(self.kind, _do(name, self.kind, self.element, *row))

    def _rounded(self, value: float) -> Polynomial:
        exact = float(np.float32(value)) == value  # else it is a number that every type rounds
        return _literal(value) if exact else _do("Mul", self.kind, _literal(value), ONE)

    __add__, __sub__ = partialmethod(do, "Add"), partialmethod(do, "Sub")
    __mul__, __truediv__ = partialmethod(do, "Mul"), partialmethod(do, "Div")


def _number_in(attributes: dict[str, str], name: str, default: float) -> float:
    return float(np.float32(attributes.get(name, default)))


def _clipped(attributes: dict[str, str], x: _Real, *bounds: _Real | None) -> _Real:
    for side, name, bound in zip(
        ("min", "max"), ("Max", "Min"), (*bounds, None, None), strict=False
    ):
        stated = _number_in(attributes, side, 0) if side in attributes else bound
        x = x if stated is None else x.do(name, stated)
    return x


def _power(attributes: dict[str, str], x: _Real, exponent: _Real) -> _Real | None:
    stored = stored_in(exponent.element)
    value = float(stored.array.flat[0]) if stored is not None and stored.array.size == 1 else 0
    powers = {1: x, 2: x * x, 3: x * x * x, 0.5: x.do("Sqrt"), -1: x.do("Reciprocal")}
    return x.do("Sqrt").do("Reciprocal") if value == -0.5 else powers.get(value)


def _hard_sigmoid(x: _Real, alpha: float, beta: float) -> _Real:
    return (x * alpha + beta).do("Max", 0).do("Min", 1)


def _gelu(attributes: dict[str, str], x: _Real) -> _Real:
    if "tanh" in attributes.get("approximate", ""):
        inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
        return x * 0.5 * (inner.do("Tanh") + 1)
    return x * 0.5 * ((x * math.sqrt(0.5)).do("Erf") + 1)


def _sigmoid(x: _Real) -> _Real:
    return (x.do("Neg").do("Exp") + 1).do("Reciprocal")


#: Operators by their definitions: of attributes as text, and of operands. Log(Exp(x) + 1) is none of
#: Softplus: it is infinite from x = 89 on.
DEFINITIONS: dict[str, Callable[..., _Real | None]] = {
    "BatchNormalization": lambda a, x, scale, bias, mean, variance: (
        (x - mean) * (scale / (variance + _number_in(a, "epsilon", 1e-5)).do("Sqrt")) + bias
    ),
    "Clip": _clipped,
    "Gelu": _gelu,
    "HardSigmoid": lambda a, x: _hard_sigmoid(
        x, _number_in(a, "alpha", 0.2), _number_in(a, "beta", 0.5)
    ),
    "HardSwish": lambda a, x: x * _hard_sigmoid(x, 1 / 6, 0.5),
    "Mish": lambda a, x: x * x.do("Softplus").do("Tanh"),
    "Pow": _power,
    "Relu": lambda a, x: x.do("Max", 0),
    "Sigmoid": lambda a, x: _sigmoid(x),
    "Swish": lambda a, x: x * _sigmoid(x * _number_in(a, "alpha", 1)),
}


# Numbers

_Reals = npt.NDArray[np.float64]
_NUMERIC = frozenset({"Add", "Sub", "Mul", "Div", "Neg", "Sqrt", "Reciprocal"})


def _is_number(p: Polynomial) -> bool:
    """Tell whether an element is computed from constants alone."""
    seen, todo = set[Polynomial](), [p]
    while todo:
        one = todo.pop()
        if one in seen or stored_in(one) is not None:
            continue
        seen.add(one)
        key = _key(one)
        if key is None or key.operator.removeprefix(UNKNOWN) not in _NUMERIC or not real_type(key):
            return False
        todo += key.operands
    return True


def _are_close(case: Case, a: Polynomial, b: Polynomial, *, signed: bool) -> bool:
    """Tell whether two numbers differ by less than rounding, for all values of their indices.

    If they are `signed`, 0.0 and -0.0 differ. Equal numbers are evaluated, too: where one overflows as
    it is folded, the other may be multiplied step by step.
    """
    if a == b and stored_in(a) is not None:
        return True
    grid = _open_grid(case, {base for p in (a, b) for base in _bases(p)})
    if grid is None:
        return False
    key = (a, b, tuple((atom.serial, values.tobytes()) for atom, values in grid.items()))
    if key not in case.compared:
        case.compared[key] = _compared(a, b, grid)
    close, exact, same_signs = case.compared[key]
    if not close or (signed and not same_signs):
        return False
    if not exact:
        case.assumptions[FOLDED] = None
    return True


def _compared(a: Polynomial, b: Polynomial, grid: Grid) -> tuple[bool, bool, bool]:
    """Return whether two numbers are close, whether they are equal, and whether zeros have one sign."""
    with np.errstate(all="ignore"):
        known: _Evaluated = {}
        results = [_evaluated(p, grid, known) for p in (a, b)]
        if any(result is None for result in results):
            return False, False, False
        (one, error), (other, other_error) = results  # type: ignore[misc]
        difference, error = np.abs(one - other), _ORDERS * (error + other_error)
        largest = max(np.abs(one).max(), np.abs(other).max())
        certain = error <= _MOST_ERRORS * _ROUNDING[_type_of(a, b)][0] * largest
        close = (difference <= error) & certain
        signs = (one != 0) | (other != 0) | (np.signbit(one) == np.signbit(other))
        return bool(close.all()), not difference.any(), bool(signs.all())


def _bases(p: Polynomial) -> set[Atom]:
    """Return the indices that a number depends on."""
    known = _NUMERIC | {CONSTANT}

    def is_index(atom: Atom) -> bool:
        key = atom.key
        number = isinstance(key, OperationKey) and key.operator.removeprefix(UNKNOWN) in known
        return not number and not isinstance(key, LiteralKey)

    return set(filter(is_index, bases_of(p)))


def _open_grid(case: Case, bases: set[Atom]) -> Grid | None:
    """Return the values of indices, each along an axis of its own; None if there are too many.

    Facts about one index alone restrict it; others are left out, so that there may be more values.
    """
    ordered = sorted(bases, key=lambda atom: atom.serial)
    if any(atom not in case.extents for atom in ordered):
        return None
    grid: Grid = {}
    for axis, atom in enumerate(ordered):
        values = {atom: np.arange(case.extents[atom])}
        keep = np.ones(case.extents[atom], bool)
        for fact in case.facts:
            if bases_of(fact) == {atom}:
                keep &= evaluate(fact, values) >= 0
        shape = [1] * len(ordered)
        shape[axis] = -1
        grid[atom] = values[atom][keep].reshape(shape)
    count = np.prod([values.size for values in grid.values()], dtype=np.float64)
    return grid if 0 < count <= _MOST_NUMBERS else None


_Evaluated = dict[Polynomial, tuple[_Reals, _Reals] | None]


def _evaluated(p: Polynomial, grid: Grid, known: _Evaluated) -> tuple[_Reals, _Reals] | None:
    """Return a number, and a bound of its error if every operation is rounded; None if it has none."""
    if p not in known:
        known[p] = _evaluate(p, grid, known)
    return known[p]


def _evaluate(p: Polynomial, grid: Grid, known: _Evaluated) -> tuple[_Reals, _Reals] | None:
    stored = stored_in(p)
    if stored is not None:
        array = read(stored.array, places_of(p), grid)
        if array is None or array.dtype.kind in "OSUc":
            return None
        values = array.astype(np.float64)
        # Not every integer from 2^53 on is a number in double precision.
        integers = array.dtype.kind not in "iu" or np.abs(values).max() < 2**53
        exact = integers and np.isfinite(values).all()
        return (values, np.zeros_like(values)) if exact else None
    key = _key(p)
    assert key is not None
    rows = [_evaluated(q, grid, known) for q in key.operands]
    if any(row is None for row in rows):
        return None
    (a, a_error), (b, b_error) = rows[0], rows[-1]  # type: ignore[misc]
    name = key.operator.removeprefix(UNKNOWN)
    if name in ("Add", "Sub"):
        value, error = (a + b if name == "Add" else a - b), a_error + b_error
    elif name == "Mul":
        value, error = a * b, np.abs(a) * b_error + np.abs(b) * a_error + a_error * b_error
    elif name in ("Div", "Reciprocal"):
        a, a_error = (a, a_error) if name == "Div" else (np.ones(()), np.zeros(()))
        value = a / b
        error = (a_error + np.abs(value) * b_error) / np.maximum(np.abs(b) - b_error, 0)
    elif name == "Sqrt":
        value = np.sqrt(a)
        error = np.minimum(np.sqrt(a_error), a_error / np.maximum(value, 1e-300))
    else:
        return -a, a_error
    relative, smallest, bound = _ROUNDING[real_type(key)]
    if not ((np.abs(value) < bound).all() and np.isfinite(error).all()):
        return None
    # Sums of numbers next to 0 are exact, and so are products with 0.
    least = 0 if name in ("Add", "Sub") else smallest * (value != 0)
    return value, error + relative * np.abs(value) + least
