"""Compare two index maps in all cases.

for each case:   ranks, types and dims are equal;  expected[i] == actual[i] for an index i of symbols
then, for each case and node:   what a run needs of elements that the output does not depend on
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from onnx import TensorProto

from onnx_spatial.maps import linear
from onnx_spatial.maps.cases import Case, UndecidedError
from onnx_spatial.maps.constants import same_values
from onnx_spatial.maps.elements import COMMUTATIVE, settled
from onnx_spatial.maps.expressions import COMPUTED, ZERO, Index, Symbol, show, show_place
from onnx_spatial.maps.folds import same_fold
from onnx_spatial.maps.polynomial import Atom, OperationKey, Polynomial
from onnx_spatial.maps.tensor import Tensor

#: Reason why nothing is compared.
NEVER_RUNS = "the original fails in every run"

#: The most values of an index that are tried to find a contradiction.
_MAX_TRIED = 4


@dataclass(frozen=True)
class Difference:
    """A case in which two maps are not provably equal.

    Attributes:
        message: which element, dim or rank differs.
        case: the facts of the case.
        left: the expected element or dim.
        right: the actual element or dim.
        symbols: values of the symbols in this case, by kind and name.
        index: of the element; None if a dim or the rank differs.
    """

    message: str
    case: tuple[Polynomial, ...]
    left: Polynomial
    right: Polynomial
    symbols: Mapping[tuple[Hashable, str], Polynomial]
    index: Index | None = None


@dataclass(frozen=True)
class Comparison:
    """The outcome of comparing two maps.

    Attributes:
        equal: whether they are equal in every case.
        reason: why that is not known, if it is not.
        assumptions: what is assumed of the sizes.
        cases: how many there are.
        differences: the first cases in which they are not provably equal.
        failures: cases in which a node may fail, if the comparison ended there.
    """

    equal: bool
    reason: str | None = None
    assumptions: tuple[str, ...] = ()
    cases: int = 0
    differences: tuple[Difference, ...] = ()
    failures: tuple[Difference, ...] = ()


#: Return the expected and the actual map in a case; None if the expected one fails in all its runs. The
#: expected one names the digits of the index.
Maps = Callable[[Case], tuple[Tensor, Tensor] | None]


def compare(case: Case, maps: Maps, most_differences: int = 1) -> Comparison:
    """Compare two maps for all sizes and indices.

    Args:
        case: an empty case.
        maps: returns the maps.
        most_differences: number of differences at which to stop.
    """
    count = compared = 0
    differences: list[Difference] = []
    obligations: set[str] = set()
    try:
        for difference in case.all(lambda: _find_difference(case, maps)):
            count += 1
            compared += _maps_in_case(case, maps) is not None
            if difference is not None:
                differences.append(difference)
                if len(differences) == most_differences:
                    return _differing_entries(case, count, differences)
            obligations |= case.obligations.keys()
        if differences:
            return _differing_entries(case, count, differences)
        for node in sorted(obligations):
            for _ in case.all(partial(_check_elements, case, maps, node)):
                count += 1
    except (UndecidedError, RecursionError) as error:
        if differences:
            return _differing_entries(case, count, differences)
        long = isinstance(error, RecursionError)
        reason = "the chain of nodes is too long" if long else str(error)
        failures = tuple(_make_failure(case, reason, p) for p in getattr(error, "unmet", ()))
        return Comparison(False, reason, tuple(case.assumptions), count, (), failures)
    except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
        # A node that breaks its operator's rules: the model is wrong, or fails when it is run.
        reason = f"a node has no index map ({type(error).__name__}: {error})"
        return Comparison(False, reason, tuple(case.assumptions), count)
    if not compared:
        return Comparison(False, NEVER_RUNS, tuple(case.assumptions), count)
    return Comparison(True, None, tuple(case.assumptions), count)


def _differing_entries(case: Case, count: int, differences: Sequence[Difference]) -> Comparison:
    reason = differences[0].message
    return Comparison(False, reason, tuple(case.assumptions), count, tuple(differences))


def _maps_in_case(case: Case, maps: Maps) -> tuple[Tensor, Tensor] | None:
    def make() -> tuple[Tensor, Tensor] | None:
        case.obligations.clear()
        case.calls.clear()
        return maps(case)

    return case.once("maps", make)


def _check_elements(case: Case, maps: Maps, node: str) -> None:
    """Check all elements of the output of a node in one case."""
    made = _maps_in_case(case, maps)
    if made is None:
        return
    expected, _ = made
    if expected.order is not None and all(case.decide(d - 1) for d in expected.dims):
        expected.at(expected.index())  # adds facts of the operator's definition
    check = case.obligations.get(node)
    if check is not None:
        check()


def _find_difference(case: Case, maps: Maps) -> Difference | None:
    made = _maps_in_case(case, maps)
    if made is None:
        return None
    expected, actual = made
    if expected.rank != actual.rank:
        message = f"the rank of the output is {actual.rank}, not {expected.rank}"
        return _difference(case, message, ZERO, ZERO)
    if expected.type and actual.type and expected.type != actual.type:
        names = [TensorProto.DataType.Name(tensor.type) for tensor in (actual, expected)]
        message = f"the elements are of type {names[0]}, not {names[1]}"
        return _difference(case, message, ZERO, ZERO)
    for axis, (a, b) in enumerate(zip(expected.dims, actual.dims, strict=True)):
        if not case.are_equal(a, b):
            message = f"dim {axis} of the output is {show(b)}, not {show(a)}"
            return _difference(case, message, a, b)
    if not all(case.decide(d - 1) for d in expected.dims):
        return None  # no element
    index = expected.index()
    left, right = expected.at(index), actual.at(index)
    if not equal(case, left, right) and not _is_impossible(case):
        case.check_budget()
        message = f"the element at {show_place(index)} is {show(right)}, not {show(left)}"
        return _difference(case, message, left, right, index)
    return None


def _difference(
    case: Case, message: str, left: Polynomial, right: Polynomial, index: Index | None = None
) -> Difference:
    symbols = {
        (atom.key.kind, atom.key.name): case.replaced(Polynomial({(atom,): 1}))
        for atom in case.symbols
        if isinstance(atom.key, Symbol)
    }
    return Difference(message, tuple(case.facts), left, right, symbols, index)


def _make_failure(case: Case, message: str, unmet: Polynomial) -> Difference:
    """Return the case in which a number is negative, and a node fails."""
    found = _difference(case, message, ZERO, ZERO)
    return replace(found, case=(*found.case, -unmet - 1))


def _is_impossible(case: Case) -> bool:
    """Tell whether the facts of a case contradict each other: splits only search briefly."""
    facts = tuple(case.facts)
    for fact in facts:
        case.check_budget()
        if case.surely(-fact - 1):
            return True
    inside = {atom for fact in facts for product in fact.terms for atom in product}
    small = [atom for atom in inside if case.extents.get(atom, _MAX_TRIED + 1) <= _MAX_TRIED]
    return _has_no_point(case, facts, sorted(small, key=lambda atom: atom.serial))


def _has_no_point(case: Case, facts: Sequence[Polynomial], atoms: Sequence[Atom]) -> bool:
    """Tell whether the facts exclude all values of some indices."""
    case.check_budget()
    if linear.follows_from(Polynomial.of(-1), facts):
        return True
    if not atoms:
        return False
    index = Polynomial({(atoms[0],): 1})
    values = range(case.extents[atoms[0]])
    return all(_has_no_point(case, [*facts, index - v, v - index], atoms[1:]) for v in values)


def equal(case: Case, a: Polynomial, b: Polynomial) -> bool:
    """Tell whether two elements are provably the same; folds are equal within their rounding."""
    return _equal_in_bits(case, a, b) or case.once(
        ("fold", a, b), lambda: same_fold(case, a, b, equal)
    )


def _equal_in_bits(case: Case, a: Polynomial, b: Polynomial) -> bool:
    if a != b:
        a, b = settled(case, a), settled(case, b)
    if a == b or same_values(case, a, b):
        return True
    left, right = a.lone_atom, b.lone_atom
    if left is not None and right is not None:
        one, other = left.key, right.key
        if isinstance(one, OperationKey) and isinstance(other, OperationKey):
            if {one.operator, other.operator} <= COMPUTED:
                return case.are_equal(a, b)
            if one.operator != other.operator or one.details != other.details:
                return False
            return _all_equal(case, tuple(one.operands), _in_order(one, other))
    if any(_holds_element(p) for p in (a, b)):
        return False
    return case.are_equal(a, b)


def _all_equal(case: Case, a: Sequence[Polynomial], b: Sequence[Polynomial]) -> bool:
    return len(a) == len(b) and all(equal(case, x, y) for x, y in zip(a, b, strict=True))


def _in_order(one: OperationKey, other: OperationKey) -> Sequence[Polynomial]:
    """Return the operands of `other`; those of sums and products in the order of `one`."""
    operands = tuple(other.operands)
    if one.operator not in COMMUTATIVE or len(operands) != 2:
        return operands
    first = next(iter(one.operands))
    alike = [_kind_of(p) == _kind_of(first) for p in operands]
    return operands[::-1] if alike == [False, True] else operands


def _kind_of(p: Polynomial) -> object:
    atom = p.lone_atom
    key = atom.key if atom is not None else None
    return key.operator if isinstance(key, OperationKey) else type(key)


def _holds_element(p: Polynomial) -> bool:
    return any(
        isinstance(atom.key, OperationKey) and atom.key.operator not in COMPUTED
        for product in p.terms
        for atom in product
    )
