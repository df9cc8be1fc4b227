"""Represent the elements of constants, and those that nodes compute.

[4, 6, 8]               x[i] = 4 + 2*i
[0, 0, 1, 1, 0, 0]      x[i] = floor(i / 2) mod 2, where the facts say that i is a digit
any other               x[i] = an integer of the list, known by its place; else an atom

An element that a node computes is an atom: an unknown function of the elements that it depends on. A sum
over channels and a kernel is an atom of the two factors of one product, at indices that take all values:

    y[n, m, o] = sum of w[m, c, k] * x[n, g*C/G + c, o*s + k*d - p]  over c and k, x is 0 outside

Two sums are equal if the factors are equal for all values of these indices. Both sides must use the same
indices, so these are named by the number of sums around them and by their extents.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto

from onnx_spatial.maps.cases import MAX_VALUES, Case, UndecidedError
from onnx_spatial.maps.node import NodeView, broadcast_at, number
from onnx_spatial.maps.polynomial import (
    ELEMENT,
    LOOKUP,
    ONE,
    UNKNOWN_PREFIX,
    ZERO,
    Atom,
    Index,
    LiteralKey,
    Polynomial,
    atoms_of,
    bases_of,
    computed,
    unknown,
)
from onnx_spatial.maps.tensor import Tensor
from onnx_spatial.maps.values import Grid, evaluate, grid_of
from onnx_spatial.model import op_traits
from onnx_spatial.model.op_traits import Trait

Array = npt.NDArray[np.generic]

#: The most numbers of constants that one question compares: those of a large weight.
MAX_COMPARED = 1 << 22


#: The largest integer of a constant that a formula is tried for.
_MAX_AFFINE = 2.0**40

#: The operator of the atoms for elements of constants.
CONSTANT = "Constant"


class Stored:
    """Array of a constant, hashable: equal arrays make equal keys of atoms."""

    def __init__(self, array: Array) -> None:
        self.array = array

    @cached_property
    def _digest(self) -> str:
        return _digest_of(self.array)

    @cached_property
    def finite(self) -> bool:
        """Whether all elements are finite numbers."""
        return bool(np.isfinite(self._numbers).all())

    @cached_property
    def nonnegative(self) -> bool:
        """Whether all elements are finite numbers with the sign bit 0."""
        return self.finite and not np.signbit(self._numbers).any()

    @property
    def _numbers(self) -> npt.NDArray[np.float64]:
        if self.array.dtype.kind in _STRINGS:
            return np.full(1, np.nan)
        with np.errstate(invalid="ignore"):  # a NaN that signals
            return self.array.astype(np.float64)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stored):
            return NotImplemented
        return self.array is other.array or self._digest == other._digest

    def __hash__(self) -> int:
        return hash((self.array.shape, self.array.dtype))


def stored_in(p: Polynomial) -> Stored | None:
    """Return the array of an element of a constant, or of a number; None for other elements."""
    if p.constant is not None:
        return Stored(np.array(p.constant))
    if p.operation.operator == CONSTANT:
        (stored,) = p.operation.details
        return stored if isinstance(stored, Stored) else None
    key = p.lone_atom.key if p.lone_atom is not None else None
    if isinstance(key, LiteralKey) and len(key.data) in _FLOATS:
        return Stored(np.frombuffer(key.data, _FLOATS[len(key.data)]))
    return None


#: Types of literals, whose type is not kept, by their size. An infinity or NaN of another type of two
#: bytes (bfloat16) is one of float16, too.
_FLOATS = {2: np.float16, 4: np.float32, 8: np.float64}


#: Kinds of numpy's types that hold strings.
_STRINGS = frozenset("OSU")


def same_values(case: Case, a: Polynomial, b: Polynomial) -> bool:
    """Tell whether two elements of constants have the same bits, for all values of their indices."""
    one, other = stored_in(a), stored_in(b)
    if one is None or other is None:
        return False
    places = [places_of(p) for p in (a, b)]
    bases = {base for i in (*places[0], *places[1]) for base in bases_of(i)}
    grid = grid_of(bases, case.extents, case.facts)
    if grid is None:
        return False
    left, right = read(one.array, places[0], grid), read(other.array, places[1], grid)
    if left is None or right is None:
        return False
    kinds = {left.dtype.kind, right.dtype.kind}
    if kinds <= {*"iub"} or kinds <= _STRINGS:
        return bool((left == right).all())
    if kinds & _STRINGS:
        return False
    if ZERO in (a, b):  # which has no type
        return not (_raw(left).any() or _raw(right).any())
    return left.itemsize == right.itemsize and bool((_raw(left) == _raw(right)).all())


def places_of(p: Polynomial) -> tuple[Polynomial, ...]:
    """Return the index of an element of a constant."""
    return tuple(p.operation.operands)


def read(array: Array, places: tuple[Polynomial, ...], grid: Grid) -> Array | None:
    """Return the elements at all indices of a grid; None if one may be out of bounds."""
    if not places:
        return array.reshape(-1)[:1]
    indices = np.broadcast_arrays(*(evaluate(i, grid) for i in places))
    if any((i < 0).any() or (i >= n).any() for i, n in zip(indices, array.shape, strict=True)):
        return None
    return np.atleast_1d(array[tuple(indices)])


def _raw(array: Array) -> npt.NDArray[np.uint8]:
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint8).reshape(flat.size, flat.itemsize)


def constant(case: Case, array: Array) -> Tensor:
    """Return the map of a constant."""
    whole = array.dtype.kind in "iub"
    try:
        element_type = int(onnx.helper.np_dtype_to_tensor_dtype(array.dtype))
    except (KeyError, ValueError):
        element_type = 0
    dims = [Polynomial.of(d) for d in array.shape]
    uniform = None
    if 0 < array.size <= MAX_COMPARED:
        first = array.reshape(-1)[0]
        if array.size == 1 or _all_equal(array):
            uniform = number(first)
    formula = _affine_steps(array) if whole and uniform is None and array.size else None
    stored = Stored(array)

    def at(index: Index) -> Polynomial:
        if uniform is not None:
            return uniform
        places = [i.constant for i in index]
        if all(p is not None for p in places):
            return number(array[tuple(p for p in places if p is not None)])
        if formula is not None:
            start, steps = formula
            return sum((i * s for i, s in zip(index, steps, strict=True)), Polynomial.of(start))
        if whole and not case.use.opaque:
            return _look_up(case, stored, index)
        return computed(CONSTANT, index, (stored,))

    extremes = (int(array.min()), int(array.max())) if whole and array.size else None
    return Tensor(case, dims, at, whole=whole, type=element_type, extremes=extremes)


def _all_equal(array: Array) -> bool:
    if array.dtype.kind in _STRINGS:
        return bool((array == array.reshape(-1)[0]).all())
    raw = _raw(array)
    return bool((raw == raw[0]).all())


def _digest_of(array: Array) -> str:
    data = repr(array.tolist()).encode() if array.dtype.kind in _STRINGS else array.tobytes()
    head = f"{array.dtype.str}{array.shape}".encode()
    return hashlib.sha256(head + data).hexdigest()


def _affine_steps(array: Array) -> tuple[int, list[int]] | None:
    """Return the start, and the step along each axis, of an array that is affine in its index."""
    if np.abs(array.astype(np.float64)).max() > _MAX_AFFINE:
        return None
    values = array.astype(np.int64)
    if array.dtype == np.uint64 or abs(values.astype(float)).max(initial=0) >= 2**31:
        return None
    start = int(values.reshape(-1)[0])
    expected = np.array(start)
    steps = []
    for axis, size in enumerate(values.shape):
        place = [0] * values.ndim
        if size > 1:
            place[axis] = 1
        step = int(values[tuple(place)]) - start
        steps.append(step)
        shape = [1] * values.ndim
        shape[axis] = size
        expected = expected + (np.arange(size) * step).reshape(shape)
    return (start, steps) if (expected == values).all() else None


def _look_up(case: Case, stored: Stored, index: Index) -> Polynomial:
    """Return an element of an array of integers as a formula of its index.

    The formula is checked for all values of the index in this case. If there is none, the case is split
    by an index of few values; else the element is an integer that is only known by its place.
    """
    array = stored.array
    bases: set[Atom] = set()
    for i in index:
        bases |= bases_of(i)
    grid = grid_of(bases, case.extents, case.facts)
    if grid is None:
        raise UndecidedError("a constant is read at an index of unknown or large extent")
    count = len(next(iter(grid.values())))
    if not count:
        return ZERO  # the case is impossible
    quotients = [atoms_of(i) for i in index]
    quotients += [atoms_of(f) for f in case.facts if bases_of(f) and bases_of(f) <= bases]
    atoms = sorted(set().union(*quotients), key=lambda atom: atom.serial)
    features = [Polynomial({(atom,): 1}) for atom in atoms]
    places = [np.broadcast_to(evaluate(i, grid), (count,)) for i in index]
    if any((p < 0).any() or (p >= n).any() for p, n in zip(places, array.shape, strict=True)):
        raise UndecidedError("a constant may be read beyond its end")
    values = array[tuple(places)].astype(np.int64)
    if array.dtype == np.uint64 or abs(values.astype(float)).max(initial=0) >= 2**31:
        raise UndecidedError("a constant of indices holds numbers of 2^31 or more")
    formula = _fit_combination(values, features, grid)
    if formula is not None:
        return formula
    if min(case.extents[atom] for atom in bases) <= MAX_VALUES:
        case.split_by_value(bases)
    return _lookup(case, stored, index, values)


def _lookup(case: Case, stored: Stored, index: Index, values: npt.NDArray[np.int64]) -> Polynomial:
    """Return an element of a constant as an integer that is one of some values."""
    p = computed(LOOKUP, index, (stored,), nonnegative=bool((values >= 0).all()))
    case.assume(p - int(values.min()))
    case.assume(int(values.max()) - p)
    return p


def _fit_combination(
    values: npt.NDArray[np.int64], features: list[Polynomial], grid: Grid
) -> Polynomial | None:
    """Return the integer combination of features with these values, if there is one."""
    if (values == values[0]).all():
        return Polynomial.of(int(values[0]))
    columns = [np.broadcast_to(evaluate(f, grid), values.shape) for f in features]
    varying = [i for i, column in enumerate(columns) if (column != column[0]).any()]
    features, columns = [features[i] for i in varying], [columns[i] for i in varying]
    matrix = np.stack([*columns, np.ones_like(values)])
    some = np.linspace(0, len(values) - 1, min(len(values), 2000)).astype(int)
    solution, *_ = np.linalg.lstsq(
        matrix[:, some].T.astype(float), values[some].astype(float), rcond=None
    )
    factors = np.rint(solution).astype(np.int64)
    if (factors @ matrix != values).any():
        return None
    total = Polynomial.of(int(factors[-1]))
    for factor, feature in zip(factors[:-1], features, strict=True):
        total = total + feature * int(factor)
    return total


Table = npt.NDArray[np.integer[Any]]

#: The operator of the atoms for sums of products; the first two operands are the factors.
PRODUCTS = "Products"

#: Operators of the atoms whose operands may be swapped.
COMMUTATIVE = frozenset({f"{UNKNOWN_PREFIX}Add", f"{UNKNOWN_PREFIX}Mul"})

#: What is assumed of the data where a sum of products is one of its elements: it makes NaN of an
#: infinity and 0, and 0.0 of -0.0.
FINITE_DATA = "the data holds no NaN, no infinity and no -0.0"

#: Operators that return 0 if all inputs are 0.
KEEP_ZERO = op_traits.having(Trait.KEEPS_ZERO)


def element(x: Tensor, case: Case, index: Index) -> Polynomial:
    """Return an element to be compared only."""
    with case.within(opaque=x.whole):
        return x.at(index)


def broadcast_element(x: Tensor, case: Case, index: Index) -> Polynomial:
    """Return the element at an index of the broadcast result, to be compared only."""
    with case.within(opaque=x.whole):
        return broadcast_at(x, index)


def indices_of(case: Case, extents: Sequence[Polynomial]) -> list[Polynomial]:
    """Return indices of a sum, one for each extent; equal extents give equal indices."""
    seen: Counter[Polynomial] = Counter()
    indices = []
    for extent in extents:
        text = extent.constant if extent.constant is not None else repr(extent)
        indices.append(case.index(f"k{case.use.sums}.{text}.{seen[extent]}", extent))
        seen[extent] += 1
    return indices


def canonical_extents(extents: Sequence[Polynomial]) -> list[Polynomial]:
    """Return the extents of a sum in a canonical order."""
    return sorted((e for e in extents if e != ONE), key=lambda e: (e.constant or 0, repr(e)))


def digits(case: Case, x: Tensor, axis: int) -> list[Polynomial]:
    """Return the extents of the digits of an axis; its dim if they do not cover it."""
    if x.axes[axis].covers(x.dims[axis]):
        return [e for e in x.axes[axis].extents if e != ONE]
    return [x.dims[axis]]


def sum_of_products(
    case: Case,
    extents: Sequence[Polynomial],
    factor_at: Callable[[Sequence[Polynomial]], Polynomial],
    data_at: Callable[[Sequence[Polynomial]], Polynomial],
    added: Polynomial | None,
) -> Polynomial:
    """Return a sum of products along indices of some extents, plus a summand."""
    indices = indices_of(case, extents)
    with case.within(sums=1):
        factor, data = factor_at(indices), data_at(indices)
    if stored_in(data) is not None and stored_in(factor) is None:
        data, factor = factor, data
    total = computed(PRODUCTS, (factor, data, *canonical_extents(extents)))
    return total if added is None else unknown("Add", (False, False), (total, added))


def need_list(case: Case, node: NodeView, x: Tensor, length: Polynomial) -> None:
    """Require that a parameter is a list of a length; of a legal node this is assumed.

    Raises:
        UndecidedError: it may not be.
    """
    if x.rank != 1:
        raise UndecidedError(f"{node.op_type}: a parameter has rank {x.rank} instead of 1")
    node.need_equal(
        case,
        x.dims[0],
        length,
        f"{node.op_type}: the length of a parameter may be wrong",
    )


def finite(case: Case, weight: Polynomial) -> bool:
    """Tell whether a weight is finite, so that 0 times it is 0; assume it if it is not constant."""
    stored = stored_in(weight)
    if stored is not None:
        return stored.finite
    key = weight.operation
    if key.operator == ELEMENT and key.details[0] in case.finite:
        return True
    case.assumptions["weights are finite"] = None
    return True


def is_scale(factor: Polynomial) -> bool:
    """Tell whether a factor is provably a positive finite number."""
    stored = stored_in(factor)
    return stored is not None and stored.nonnegative and bool(stored.array.all())


def settled(case: Case, p: Polynomial) -> Polynomial:
    """Return the value of an element if its operands are 0, else the element itself."""
    if vanishes(case, p):
        return ZERO
    if p.operation.operator == f"{UNKNOWN_PREFIX}QuantizeLinear":
        data, factor, point = p.operation.operands
        if is_scale(factor) and vanishes(case, data):
            return point
    return p


def holds_sum(p: Polynomial) -> bool:
    """Tell whether a sum of products is part of an element."""
    return any(atom.operation.operator == PRODUCTS for atom in atoms_of(p))


def vanishes(case: Case, p: Polynomial) -> bool:
    """Tell whether an element is provably 0.

    Of a sum of products one product is examined; the others are those of other cases. The product of two
    sums is not: one may vanish in some cases, the other one in the other cases, and neither as a whole.
    """
    if p == ZERO:
        return True
    key = p.operation
    if not isinstance(key.operands, tuple):
        return False
    if key.operator == PRODUCTS:
        factor, data, *_ = key.operands
        if holds_sum(factor) and holds_sum(data):
            return False
        return any(
            vanishes(case, one) and finite(case, other)
            for one, other in ((data, factor), (factor, data))
        )
    op_type = key.operator.removeprefix(UNKNOWN_PREFIX)
    if op_type == "Cast":
        source, target, *_ = key.details
        return TensorProto.STRING not in (source, target) and vanishes(case, key.operands[0])
    if op_type == "DequantizeLinear":
        data, factor, point = key.operands
        return is_scale(factor) and settled(case, data) == point
    keeps = op_type in KEEP_ZERO and op_type != key.operator
    return keeps and all(vanishes(case, q) for q in key.operands)
