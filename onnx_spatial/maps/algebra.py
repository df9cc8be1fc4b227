"""Compare real elements that are computed by the same formula, written in another way.

    BatchNormalization(sum of w*x + b, s, t, m, v)        = sum of w'*x + b'
    Add(Gelu(x), y)                                       = y + 0.5*x*(1 + Erf(x / 1.414))

Both elements are written as sums of terms, each a number times factors that are no numbers. A number in
front of a sum of products goes into that sum. Numbers are evaluated, with a bound of what rounding adds
to each operation: a constant that a tool folded lies within it. Constants that nothing was folded
into must be equal.

    s*(sum of w*x + b - m)/sqrt(v + e) + t      terms   sum of (w*s/sqrt(v + e)) * x
                                                        number  (b - m)*s/sqrt(v + e) + t

Terms are matched by what is outside of all sums. So they are matched alike in all cases of the indices of
sums, and what holds for one product of each sum, in all cases, holds for the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from onnx_spatial.maps.cases import Case
from onnx_spatial.maps.constants import CONSTANT, places_of, read, stored_in
from onnx_spatial.maps.elements import PRODUCTS, lengths
from onnx_spatial.maps.expressions import ELEMENT, ONE, UNKNOWN, ZERO, atoms_of, bases_of, unknown
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

#: Relative error of one operation, by type.
_ROUNDING = {
    int(TensorProto.DOUBLE): 2.0**-52,
    int(TensorProto.FLOAT): 2.0**-23,
    int(TensorProto.FLOAT16): 2.0**-10,
    int(TensorProto.BFLOAT16): 2.0**-7,
}
#: Numbers of a type below are rounded to 0, or to multiples of a smaller one.
_SMALLEST = {
    int(TensorProto.DOUBLE): 2.0**-1022,
    int(TensorProto.FLOAT): 2.0**-126,
    int(TensorProto.FLOAT16): 2.0**-24,
    int(TensorProto.BFLOAT16): 2.0**-126,
}
#: The order of operations in a fold, and of what was folded, may double the errors.
_ORDERS = 2

#: The most numbers that are compared one by one, and terms of a formula.
_MOST_NUMBERS, _MOST_TERMS = 1 << 23, 16

#: Operators of elements at the same place alone: no sum is inside, unless in their operands.
_ELEMENTWISE = op_traits.having(Trait.UNARY, Trait.BROADCASTS) | {"BatchNormalization"}

#: The operator of the atoms for sums of terms.
_SUM = "Sum of terms"


class Term(NamedTuple):
    """A number times factors."""

    number: Polynomial
    factors: tuple[Polynomial, ...] = ()


def same_formula(
    case: Case, a: Polynomial, b: Polynomial, equal: Callable[[Case, Polynomial, Polynomial], bool]
) -> bool:
    """Tell whether two elements are provably the same, apart from rounding.

    Args:
        case: the case.
        a, b: elements that are not known to be equal as they are written.
        equal: compares factors.
    """
    left, right = _terms(case, a), _terms(case, b)
    if len(left) != len(right) or ((left, right) == ((Term(ONE, (a,)),), (Term(ONE, (b,)),))):
        return False
    if all(not term.factors for term in (*left, *right)):
        return _are_close(case, left[0].number, right[0].number, signed=True)

    def same(one: Term, other: Term, signed: bool = True) -> bool:
        return (
            len(one.factors) == len(other.factors)
            and _are_close(case, one.number, other.number, signed=signed)
            and _matched(case, one.factors, other.factors, same_factor)
        )

    def same_factor(one: Polynomial, other: Polynomial) -> bool:
        first, second = _key(one), _key(other)
        if first is None or second is None or first.operator != _SUM or second.operator != _SUM:
            return equal(case, one, other)
        (count, number, *rest), (others, other_number, *others_rest) = (
            (len(k.details), *k.operands) for k in (first, second)
        )
        return (
            first.details == second.details
            and rest[count:] == others_rest[others:]
            and same(
                Term(number, tuple(rest[:count])),
                Term(other_number, tuple(others_rest[:others])),
                False,
            )
        )

    if not _matched(case, left, right, same):
        return False
    case.assumptions[REWRITTEN] = None
    return True


def _matched(
    case: Case, left: Sequence[Any], right: Sequence[Any], same: Callable[[Any, Any], bool]
) -> bool:
    """Tell whether terms or factors are the same in some order.

    Those that look alike outside of sums are matched in any order if there are no sums in them, else
    in the order in which they are written: it must not depend on a case of the indices of sums.
    """
    outlines = [
        sorted(((_outline(case, x), x) for x in side), key=lambda pair: pair[0])
        for side in (left, right)
    ]
    if [o for o, _ in outlines[0]] != [o for o, _ in outlines[1]]:
        return False
    rest = list(outlines[1])
    for outline, one in outlines[0]:
        candidates = [pair for pair in rest if pair[0] == outline]
        if not all(map(_is_local, (one, *(x for _, x in candidates)))):
            candidates = candidates[:1]
        found = next((pair for pair in candidates if same(one, pair[1])), None)
        if found is None:
            return False
        rest.remove(found)
    return True


def _outline(case: Case, x: Polynomial | Term) -> str:
    """Return how an element looks outside of sums; indices and numbers do not count."""
    if isinstance(x, Term):
        return f"({' '.join(sorted(_outline(case, factor) for factor in x.factors))})"
    return case.once(("outline", x), lambda: _outline_of(case, x))


def _outline_of(case: Case, x: Polynomial) -> str:
    terms, key = _terms(case, x), _key(x)
    if terms != (Term(ONE, (x,)),):
        return " + ".join(sorted(_outline(case, term) for term in terms))
    if key is None or key.operator == CONSTANT:
        return "number"
    if key.operator == ELEMENT:
        return str(key.details[0])
    inner = (_outline(case, p) for p in key.operands) if _is_elementwise(key) else ()
    return f"{key.operator}({' '.join(inner)})"


def _is_local(x: Polynomial | Term) -> bool:
    """Tell whether there are no sums in an element."""
    if isinstance(x, Term):
        return all(map(_is_local, x.factors))
    keys = [atom.key for atom in atoms_of(x) if isinstance(atom.key, OperationKey)]
    return all(not k.operator.startswith(UNKNOWN) or _is_elementwise(k) for k in keys) and not any(
        k.operator in (PRODUCTS, _SUM) for k in keys
    )


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
        local = all(map(_is_local, factors))
        places = [i for i, t in enumerate(totals) if local and t.factors == factors]
        if places:
            total = totals[places[0]].number
            added = _do("Add", _type_of(factor, total), total, factor)
            totals[places[0]] = Term(added, factors)
        else:
            totals.append(Term(factor, factors))
    # A sum of products and 0 has no sign to lose; x + 0.0 is 0.0 for -0.0.
    sums = any(_is_sum(factor) for term in totals for factor in term.factors)
    return tuple(t for t in totals if t != Term(ZERO) or not sums)


def _is_sum(factor: Polynomial) -> bool:
    key = _key(factor)
    return key is not None and key.operator == _SUM


def _into_sum(term: Term) -> Term:
    """Return a term with its number as a part of its first sum."""
    for place, factor in enumerate(term.factors):
        key = _key(factor)
        if key is not None and key.operator == _SUM and term.number not in (ZERO, ONE):
            inner, *rest = key.operands
            product = _times(_type_of(term.number, inner), term.number, inner)
            moved = Polynomial.atom(OperationKey(_SUM, key.details, (product, *rest)))
            return Term(ONE, (*term.factors[:place], moved, *term.factors[place + 1 :]))
    return term


def _written(case: Case, p: Polynomial) -> Sequence[Term]:
    """Return an element as terms, from those of its operands."""
    key = _key(p)
    if _is_number(p):
        return [Term(p)]
    if key is None:
        return [Term(ONE, (p,))]
    name, kind = key.operator.removeprefix(UNKNOWN), real_type(key)
    operands: tuple[Polynomial, ...] = tuple(key.operands)
    if p.lone_atom in case.written_out:
        use, compute = case.written_out[p.lone_atom]
        with case.within(sums=use.sums - case.use.sums):
            return _terms(case, compute())
    if not kind:
        return [Term(ONE, (p,))]
    if name == PRODUCTS:
        sides = (_terms(case, q) for q in operands[:2])
        whole = (t if len(t) == 1 else [Term(ONE, (q,))] for q, t in zip(operands, sides))
        (inner,) = _product(kind, *whole)
        return [_sum(kind, inner, operands[2:])]
    if name in ("ReduceMean", "ReduceSum"):
        data, extents = operands[0], operands[1 + (len(operands) - 1) // 2 :]
        counts = [extent.constant for extent in extents]
        if name == "ReduceSum" or None not in counts:
            inner = _terms(case, data)
            inner = inner if len(inner) == 1 else (Term(ONE, (data,)),)
            count = float(np.prod([c or 1 for c in counts], dtype=np.float64))
            share = ONE if name == "ReduceSum" else _do("Div", kind, ONE, number(np.float64(count)))
            return [
                _sum(
                    kind,
                    Term(_times(kind, share, inner[0].number), inner[0].factors),
                    lengths(extents),
                )
            ]
    if name in ("Add", "Sum"):
        return [term for q in operands for term in _terms(case, q)]
    if name in ("Sub", "Neg"):
        minus = [Term(_do("Neg", kind, t.number), t.factors) for t in _terms(case, operands[-1])]
        return [*_terms(case, operands[0]), *minus] if name == "Sub" else minus
    if name == "Mul":
        product = _product(kind, _terms(case, operands[0]), _terms(case, operands[1]))
        return product if len(product) <= _MOST_TERMS else [Term(ONE, (p,))]
    if name in ("Div", "Reciprocal"):
        inverse = _inverse(case, kind, operands[-1])
        return _product(kind, _terms(case, operands[0]), [inverse]) if name == "Div" else [inverse]
    definition = DEFINITIONS.get(name)
    flags = [d for d in key.details if isinstance(d, bool)] or [False] * len(operands)
    given = iter(operands)
    row = [None if missing else next(given) for missing in flags]
    defined = None if definition is None else definition(kind, dict_of(key), row)
    return [Term(ONE, (p,))] if defined is None or defined == p else _terms(case, defined)


def _sum(kind: int, term: Term, extents: Sequence[Polynomial]) -> Term:
    """Return the sum of a term over indices, as a term."""
    if term.number == ZERO:
        term = Term(ZERO)
    details = tuple("factor" for _ in term.factors)
    key = OperationKey(_SUM, details, (term.number, *term.factors, *extents))
    return Term(ONE, (Polynomial.atom(key),))


def _product(kind: int, left: Sequence[Term], right: Sequence[Term]) -> list[Term]:
    return [
        Term(_times(kind, a.number, b.number), (*a.factors, *b.factors))
        for a in left
        for b in right
    ]


def _inverse(case: Case, kind: int, p: Polynomial) -> Term:
    """Return 1 / p."""
    terms = _terms(case, p)
    if len(terms) > 1:
        return Term(ONE, (_do("Reciprocal", kind, p),))
    (term,) = terms
    factors = []
    for factor in term.factors:
        key = _key(factor)
        if key is not None and key.operator == f"{UNKNOWN}Reciprocal":
            factors.append(next(iter(key.operands)))
        else:
            factors.append(_do("Reciprocal", kind, factor))
    return Term(ONE if term.number == ONE else _do("Div", kind, ONE, term.number), tuple(factors))


def _do(name: str, kind: int, *operands: Polynomial) -> Polynomial:
    return unknown(name, (kind, *(False for _ in operands)), operands)


def _times(kind: int, a: Polynomial, b: Polynomial) -> Polynomial:
    if ZERO in (a, b):
        return ZERO
    return a if b == ONE else b if a == ONE else _do("Mul", kind, a, b)


def _type_of(*numbers: Polynomial) -> int:
    """Return the type that numbers are computed in: the coarsest of their operations."""
    kinds = [real_type(k) for p in numbers if (k := _key(p)) is not None]
    return max(kinds, key=lambda kind: _ROUNDING.get(kind, 0.0), default=0) or int(
        TensorProto.FLOAT
    )


def real_type(key: OperationKey) -> int:
    """Return the type of reals that an operator computes in, the first number of its details; else 0."""
    numbers = [d for d in key.details if type(d) is int]
    return numbers[0] if numbers and numbers[0] in _ROUNDING else 0


def dict_of(key: OperationKey) -> dict[str, str]:
    """Return the attributes of an operator, as text."""
    return dict(d for d in key.details if isinstance(d, tuple) and len(d) == 2)


# Definitions


def _real(value: float) -> Polynomial:
    return ONE if value == 1 else number(np.float64(value))


_Row = Sequence[Polynomial]


def _clipped(kind: int, attributes: dict[str, str], row: _Row) -> Polynomial | None:
    x, *bounds = row
    for side, name, place in (("min", "Max", 0), ("max", "Min", 1)):
        bound = bounds[place] if place < len(bounds) else None
        if side in attributes:
            bound = number(np.float32(attributes[side]))
        x = x if bound is None else _do(name, kind, x, bound)
    return x


def _power(kind: int, attributes: dict[str, str], row: _Row) -> Polynomial | None:
    x, stored = row[0], stored_in(row[1])
    exponent = (
        None if stored is None or stored.array.size != 1 else float(stored.array.reshape(-1)[0])
    )
    if exponent in (1, 2, 3):
        return (
            _do("Mul", kind, _do("Mul", kind, x, x), x)
            if exponent == 3
            else _times(kind, x, x if exponent == 2 else ONE)
        )
    if exponent in (0.5, -0.5):
        root = _do("Sqrt", kind, x)
        return root if exponent == 0.5 else _do("Reciprocal", kind, root)
    return _do("Reciprocal", kind, x) if exponent == -1 else None


def _hard_sigmoid(kind: int, x: Polynomial, alpha: float, beta: float) -> Polynomial:
    line = _do("Add", kind, _do("Mul", kind, x, _real(alpha)), _real(beta))
    return _do("Min", kind, _do("Max", kind, line, ZERO), ONE)


def _sigmoid(kind: int, x: Polynomial) -> Polynomial:
    return _do("Reciprocal", kind, _do("Add", kind, ONE, _do("Exp", kind, _do("Neg", kind, x))))


def _gelu(kind: int, attributes: dict[str, str], row: _Row) -> Polynomial | None:
    (x,) = row
    if "tanh" in attributes.get("approximate", ""):
        cube = _do("Mul", kind, _do("Mul", kind, _do("Mul", kind, x, x), x), _real(0.044715))
        inner = _do("Mul", kind, _do("Add", kind, x, cube), _real(float(np.sqrt(2 / np.pi))))
        bent = _do("Tanh", kind, inner)
    else:
        bent = _do("Erf", kind, _do("Mul", kind, x, _real(float(np.sqrt(0.5)))))
    return _do("Mul", kind, _do("Mul", kind, x, _real(0.5)), _do("Add", kind, bent, ONE))


def _normalized(kind: int, attributes: dict[str, str], row: _Row) -> Polynomial:
    x, scale, bias, mean, variance = row
    epsilon = _real(float(np.float32(attributes.get("epsilon", 1e-5))))
    deviation = _do("Sqrt", kind, _do("Add", kind, variance, epsilon))
    factor = _do("Div", kind, scale, deviation)
    return _do("Add", kind, _do("Mul", kind, _do("Sub", kind, x, mean), factor), bias)


#: Operators by their definitions: of type, attributes as text, and operands.
DEFINITIONS: dict[str, Callable[[int, dict[str, str], _Row], Polynomial | None]] = {
    "BatchNormalization": _normalized,
    "Clip": _clipped,
    "Gelu": _gelu,
    "HardSigmoid": lambda k, a, row: _hard_sigmoid(
        k, row[0], float(a.get("alpha", 0.2)), float(a.get("beta", 0.5))
    ),
    "HardSwish": lambda k, a, row: _do("Mul", k, row[0], _hard_sigmoid(k, row[0], 1 / 6, 0.5)),
    "Mish": lambda k, a, row: _do("Mul", k, row[0], _do("Tanh", k, _do("Softplus", k, row[0]))),
    "Pow": _power,
    "Relu": lambda k, a, row: _do("Max", k, row[0], ZERO),
    "Sigmoid": lambda k, a, row: _sigmoid(k, row[0]),
    "Softplus": lambda k, a, row: _do("Log", k, _do("Add", k, ONE, _do("Exp", k, row[0]))),
    "Swish": lambda k, a, row: _do(
        "Mul", k, row[0], _sigmoid(k, _times(k, row[0], _real(float(a.get("alpha", 1.0)))))
    ),
}


# Numbers

_Reals = npt.NDArray[np.float64]
_NUMERIC = frozenset({"Add", "Sub", "Mul", "Div", "Neg", "Sqrt", "Reciprocal"})


def _is_number(p: Polynomial) -> bool:
    """Tell whether an element is computed from constants alone."""
    if stored_in(p) is not None:
        return True
    key = _key(p)
    numeric = key is not None and key.operator.removeprefix(UNKNOWN) in _NUMERIC and real_type(key)
    return bool(numeric) and all(map(_is_number, key.operands))  # type: ignore[union-attr]


def _are_close(case: Case, a: Polynomial, b: Polynomial, *, signed: bool) -> bool:
    """Tell whether two numbers differ by less than rounding, for all values of their indices.

    If they are `signed`, 0.0 and -0.0 differ.
    """
    if a == b:
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
        results = [_evaluated(p, grid) for p in (a, b)]
        if any(result is None for result in results):
            return False, False, False
        (one, error), (other, other_error) = results  # type: ignore[misc]
        difference = np.abs(one - other)
        close = difference <= _ORDERS * (error + other_error)
        signs = (one != 0) | (other != 0) | (np.signbit(one) == np.signbit(other))
        return bool(close.all()), not difference.any(), bool(signs.all())


def _bases(p: Polynomial) -> set[Atom]:
    """Return the indices that a number depends on."""
    key = _key(p)
    if key is None or key.operator == CONSTANT:
        return {base for place in places_of(p) for base in bases_of(place)}
    return {base for q in key.operands for base in _bases(q)}


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


def _evaluated(p: Polynomial, grid: Grid) -> tuple[_Reals, _Reals] | None:
    """Return a number, and a bound of its error if every operation is rounded; None if it has none."""
    stored = stored_in(p)
    if stored is not None:
        array = read(stored.array, places_of(p), grid)
        if array is None or array.dtype.kind in "OSU":
            return None
        values = array.astype(np.float64)
        return (values, np.zeros_like(values)) if np.isfinite(values).all() else None
    key = _key(p)
    assert key is not None
    rows = [_evaluated(q, grid) for q in key.operands]
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
    if not (np.isfinite(value).all() and np.isfinite(error).all()):
        return None
    kind = real_type(key)
    return value, error + _ROUNDING[kind] * np.abs(value) + _SMALLEST[kind]
