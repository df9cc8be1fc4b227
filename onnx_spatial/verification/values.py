"""Values of two forms of a model: their arrays, how exactly they are determined, and whether they agree.

x -> [Transpose] -> t             moved data: every bit is the same
t -> [Conv] -> c                  sums of reals: |a - b| <= rtol * max|original| for every element
c -> [QuantizeLinear] -> q        behind a step: the last bit of a real decides which integer it is
[RandomNormal] -> r               another value in each run: not compared

With --rtol and --atol, |a - b| <= atol + rtol * max|original|. NaN and infinities must be the same.

original    [1.0, 2.0, 4.0]
converted   [1.0, 2.2, 4.0]       errors [0, 0.2, 0], 0.05 of the largest value

Errors are relative to the largest value of the original: an element near zero has an error of the size
of the terms that it is the sum of.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx

from onnx_spatial import analysis
from onnx_spatial.analysis import GraphFacts, OperatorInfo
from onnx_spatial.errors import Code, ModelFileError
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.inference import functions, shape_inference
from onnx_spatial.model.inference.constant_folding import ConstantScope
from onnx_spatial.model.io import external_data
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.model.traversal import Place
from onnx_spatial.operators.operator import show
from onnx_spatial.verification.evidence import OutputResult, WorstElement
from onnx_spatial.verification.options import Array, Tolerance

# Arrays

STRING = onnx.TensorProto.STRING
BOOL = onnx.TensorProto.BOOL


def dtype_of(element_type: int) -> np.dtype[Any]:
    """numpy's dtype for an ONNX element type; object for strings."""
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(element_type))


def element_type_of(array: Array) -> int:
    """ONNX's element type for an array."""
    if array.dtype.kind in "OUST":
        return STRING
    return int(onnx.helper.np_dtype_to_tensor_dtype(array.dtype))


def type_of(array: Array) -> onnx.TypeProto:
    """ONNX's type for arrays of the element type and rank of one, and of any sizes."""
    return onnx.helper.make_tensor_type_proto(element_type_of(array), [None] * array.ndim)


def dtype_name(array: Array) -> str:
    """Return the element type in reports: float32, bfloat16, string."""
    return "string" if array.dtype.kind in "OUST" else str(array.dtype.name)


def is_float(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype holds real floating-point numbers, ml_dtypes' included."""
    return dtype.kind == "f" or (dtype.kind == "V" and "float" in dtype.name)


def is_native(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype is numpy's own: not bfloat16, nor a type shorter than float16 or int8."""
    return dtype.isbuiltin == 1  # the kind does not tell: that of float8_e5m2 is "f"


def bits_of(dtype: np.dtype[Any]) -> int:
    """Number of bits of an element; in numpy it fills at least a byte."""
    if is_native(dtype):
        return 8 * dtype.itemsize
    info = ml_dtypes.finfo if is_float(dtype) else ml_dtypes.iinfo
    return int(info(dtype).bits)


def constant_value(tensor: onnx.TensorProto, folder: Path | None) -> Array:
    """Return the array in a tensor message, external data read from `folder`; strings as Python strings.

    Raises:
        ModelFileError: the data cannot be read, does not fill the shape, or has an unknown type.
    """
    try:
        array = external_data.read_array(tensor, folder)
    except (OSError, ValueError, TypeError, KeyError, RuntimeError) as error:
        raise ModelFileError(
            f"tensor {tensor.name!r} cannot be read: {error}", code=Code.DAMAGED
        ) from None
    if array.dtype.kind in "OS":
        decoded = [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in array.flat]
        array = np.array(decoded, object).reshape(array.shape)
    return array


def differing_bits(a: Array, b: Array) -> npt.NDArray[np.bool_]:
    """Return elements in which two arrays of one type and shape differ by any bit of the type."""
    if a.dtype.kind in "OUST":
        return np.asarray(a.astype(object) != b.astype(object), np.bool_).reshape(a.shape)
    width = min(a.dtype.itemsize, 8)
    first, second = (np.ascontiguousarray(v).reshape(-1, 1).view(f"u{width}") for v in (a, b))
    differences = first ^ second
    if bits_of(a.dtype) < 8:  # the other bits of the byte have no meaning
        differences &= 2 ** bits_of(a.dtype) - 1
    return np.asarray(differences.any(axis=1)).reshape(a.shape)


# How exactly a value is determined

#: Largest error of sums of reals, relative to the largest value of an output, by their type. Conversions
#: of the nets in models/, which are float32, are 5e-7 apart at most.
RTOL: dict[int, float] = {
    onnx.TensorProto.DOUBLE: 1e-11,
    onnx.TensorProto.COMPLEX128: 1e-11,
    onnx.TensorProto.FLOAT: 1e-5,
    onnx.TensorProto.COMPLEX64: 1e-5,
    onnx.TensorProto.FLOAT16: 2e-3,
    onnx.TensorProto.BFLOAT16: 2e-2,
}
#: That of the 8-bit floats, which have two or three mantissa bits.
RTOL_OF_8_BITS = 0.13
#: Reals whose precision users choose, by element type.
REALS: dict[int, str] = {
    onnx.TensorProto.DOUBLE: "float64",
    onnx.TensorProto.FLOAT: "float32",
    onnx.TensorProto.FLOAT16: "float16",
    onnx.TensorProto.BFLOAT16: "bfloat16",
}

_SIZES = op_traits.having(Trait.SIZES)
_STEPS = op_traits.having(Trait.STEPS)
_RANDOM = op_traits.having(Trait.RANDOM)


@dataclass(frozen=True)
class Kind:
    """What a value depends on; by default on moved data alone.

    Attributes:
        rtol: of the shortest type of reals in which it was computed; 0 if every bit is determined.
        steps: whether it is behind a step from such reals to whole numbers.
        random: the first node in front of it that draws random numbers; "" if none does.
    """

    rtol: float = 0.0
    steps: bool = False
    random: str = ""

    def __or__(self, other: Kind) -> Kind:
        return Kind(
            max(self.rtol, other.rtol), self.steps or other.steps, self.random or other.random
        )


_MOVED = Kind()


def rtol_of(element_type: int | None) -> float:
    """Return the error that rounding makes in a type; 0 for types without rounding."""
    if element_type is None or element_type in RTOL:
        return RTOL.get(element_type or onnx.TensorProto.FLOAT, 0.0)
    is_short = element_type != onnx.TensorProto.STRING and is_float(dtype_of(element_type))
    return RTOL_OF_8_BITS if is_short else 0.0


class Kinds:
    """The kinds of the values of a model.

    Args:
        model: the model.
        infos: its spatial operators, which move data.
        facts: what is known of its graphs.
    """

    def __init__(
        self, model: onnx.ModelProto, infos: Sequence[OperatorInfo], facts: Sequence[GraphFacts]
    ) -> None:
        self._movers = {(i.node.domain, i.node.op_type) for i in infos if i.known_domain}
        if model.functions:
            model = functions.inline(model)
            facts = analysis.find(model, {domain for domain, _ in self._movers}).facts
        self._graph = model.graph
        self._scopes = {
            place: each.scope
            for (place, _), each in zip(traversal.graphs(model), facts, strict=True)
        }

    def of_values(self) -> dict[str, Kind]:
        """Return the kinds of the values that the nodes of the main graph compute, by name."""
        nodes = traversal.in_order(self._graph)
        moved = dict.fromkeys((name for node in nodes for name in node.output if name), _MOVED)
        return moved | self._kinds_along(Place(), nodes, {})

    def _kinds_along(
        self, place: Place, nodes: Iterable[onnx.NodeProto], known: Mapping[str, Kind]
    ) -> dict[str, Kind]:
        kinds = dict(known)
        for node in nodes:
            if op_traits.is_bitwise(node) and kinds.keys().isdisjoint((*node.input, *node.output)):
                continue  # moved, as what is not known
            kind = self._of_node(place, node, kinds)
            if kind != _MOVED or not kinds.keys().isdisjoint(node.output):
                kinds.update((name, kind) for name in node.output if name)
        return kinds

    def _of_node(self, place: Place, node: onnx.NodeProto, known: Mapping[str, Kind]) -> Kind:
        kind = _MOVED
        for name in node.input:
            kind |= known.get(name, _MOVED)
        for name, body in traversal.subgraphs(node):
            inner = place.inside(traversal.step(node.op_type, node.output, name))
            kind = self._of_body(inner, body, known, kind)
        if (node.domain, node.op_type) in self._movers:
            return kind
        standard = op_traits.is_standard(node)
        scope = self._scopes.get(place)
        if standard and node.op_type in _SIZES and not (kind.steps or kind.random):
            return _MOVED  # a shape depends on reals only behind a step to whole numbers
        if standard and (node.op_type in _RANDOM or _may_drop_out(node, scope)):
            return kind | Kind(random=f"{node.op_type} node {traversal.label(node)!r}")
        moves = op_traits.is_bitwise(node) or (standard and any(traversal.subgraphs(node)))
        types = [_element_type(scope, name) for name in (*node.input, *node.output) if name]
        outputs = types[len(types) - sum(map(bool, node.output)) :]
        if kind.rtol or not moves:
            # Of reals, or of a type that is not known, which may be reals.
            kind |= Kind(max(map(rtol_of, outputs if moves else types), default=0.0))
        if kind.rtol and standard and node.op_type in _STEPS:
            casts = node.op_type in ("Cast", "CastLike")
            kind |= Kind(steps=not casts or None in outputs or not any(map(rtol_of, outputs)))
        return kind

    def _of_body(
        self, place: Place, body: onnx.GraphProto, known: Mapping[str, Kind], inputs: Kind
    ) -> Kind:
        """Return the kind of the outputs of a branch, or of a loop after any number of iterations."""
        nodes, kind, after = traversal.in_order(body), None, inputs
        while kind != after:  # the outputs of one iteration are the inputs of the next
            kind = after
            fed = {value.name: kind for value in body.input}
            kinds = self._kinds_along(place, nodes, {**known, **fed})
            for value in body.output:
                after |= kinds.get(value.name, _MOVED)
        return after


def _element_type(scope: ConstantScope | None, name: str) -> int | None:
    return None if scope is None else shape_inference.element_type(scope.type(name))


def _may_drop_out(node: onnx.NodeProto, scope: ConstantScope | None) -> bool:
    """Return whether a node is a Dropout that may be in training mode."""
    if node.op_type != "Dropout" or len(node.input) < 3 or not node.input[2]:
        return False
    mode = None if scope is None else scope.value(node.input[2])
    return mode is None or bool(mode.any())


# Comparison

#: Share of the elements that may differ behind a step from reals to whole numbers (QuantizeLinear,
#: ArgMax, Cast, a comparison), where the last bit of a real decides. None differ in quantised forms of
#: the nets in models/, where both models run with the same optimisations; a tie may.
STEPS_SHARE = 1e-3


def compare(
    name: str,
    run: int,
    optimised: bool,
    expected: Any,
    actual: Any,
    kind: Kind,
    tolerance: Tolerance | None = None,
) -> list[OutputResult]:
    """Compare an output of a run; a sequence of tensors is compared tensor by tensor.

    Args:
        name, run, optimised: see `OutputResult`.
        expected, actual: the original's and the converted model's.
        kind: of the output.
        tolerance: that the caller sets for the output; None: by its kind.
    """
    if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        return [
            result
            for number, pair in enumerate(zip(expected, actual, strict=True))
            for result in compare(f"{name}[{number}]", run, optimised, *pair, kind, tolerance)
        ]
    was, now = type(expected).__name__, type(actual).__name__
    result = OutputResult(name, run, optimised, was, (), elements=1)
    if isinstance(expected, np.ndarray) and isinstance(actual, np.ndarray):
        return [_compare_arrays(result, expected, actual, kind, tolerance)]
    reason = None
    if was != now:
        reason = f"it is a {now}, not a {was}"
    elif isinstance(expected, list):
        reason = f"it has {len(actual)} tensors, not {len(expected)}"
    elif expected != actual:
        reason = f"the {was}s differ"
    return [replace(result, equal_bits=not reason, passed=not reason, reason=reason)]


def find_mismatch(
    expected: Any, actual: Any, kind: Kind, tolerance: Tolerance | None = None
) -> OutputResult | None:
    """Return the first comparison of a value that fails; None if all agree.

    Args:
        expected, actual: the original's and the converted model's.
        kind: of the value.
        tolerance: that the caller sets; None: by its kind.
    """
    for result in compare("", 0, False, expected, actual, kind, tolerance):
        if not result.passed:
            reason = f"{result.name}: {result.reason}" if result.name else result.reason
            return replace(result, reason=reason)
    return None


def describe_element(
    expected: Array, actual: Array, element: tuple[int, ...], inputs: Mapping[str, Array]
) -> str:
    """Say what an element is that should be another: "is x[0, 4, 1, 0] instead of x[0, 0, 1, 0]".

    It is named by where it comes from if its bits are in the inputs once, else by its value.
    """
    wrong, right = (
        _describe_source(np.asarray(array[element]), inputs) for array in (actual, expected)
    )
    return f"is {wrong} instead of {right}"


def _describe_source(element: Array, inputs: Mapping[str, Array]) -> str:
    sources: list[str] = []
    for name, array in inputs.items():
        if dtype_name(array) != dtype_name(element):
            continue
        flat = array.reshape(-1)
        same = ~differing_bits(flat, np.broadcast_to(element, flat.shape))
        sources += [
            f"{name}{show(_index_of(int(i), array.shape))}" for i in np.flatnonzero(same)[:2]
        ]
    return sources[0] if len(sources) == 1 else str(element)


def _compare_arrays(
    result: OutputResult, expected: Array, actual: Array, kind: Kind, tolerance: Tolerance | None
) -> OutputResult:
    """Complete a comparison of two arrays."""
    dtype = dtype_name(expected)
    shape, size = expected.shape, expected.size
    same_type = dtype_name(actual) == dtype
    are_numbers = _are_numbers(expected) and _are_numbers(actual)
    both_real = _are_real(expected) and _are_real(actual)
    # A tolerance is for reals of any types, and by name for integers of one type.
    is_named = tolerance is not None and tolerance.named
    if not (both_real or (are_numbers and same_type and is_named)):
        tolerance = None
    rtol, atol = _allowed_errors(expected, kind, tolerance)
    result = replace(result, dtype=dtype, shape=shape, elements=size, tolerance=rtol, atol=atol)
    other_form = ""
    if not (same_type or (tolerance is not None and both_real)):
        other_form = f"its type is {dtype_name(actual)}, not {dtype}"
    elif actual.shape != shape:
        other_form = f"its shape is {show(actual.shape)}, not {show(shape)}"
    differing = differing_bits(expected, actual) if same_type and not other_form else None
    if differing is not None and not differing.any():
        figures = _figures_of_equal(expected) if are_numbers else {}
        return replace(result, equal_bits=True, **figures)
    if are_numbers and (not other_form or both_real) and actual.shape == shape:
        errors, largest, steps = _errors_of(expected, actual)
        figures = _figures_of_equal(expected)
        if size:
            figures = _measure_errors(expected, actual, errors, largest)
        result = replace(result, **{**figures, "max_steps": steps})
        # Double precision does not tell large integers apart: where none may differ, bits do.
        if rtol or atol or (tolerance is not None and both_real):
            differing = errors > atol + rtol * largest
    if other_form:
        return replace(result, mismatches=size, passed=False, reason=other_form)
    assert differing is not None
    if not differing.any():
        return result
    result = replace(result, mismatches=int(differing.sum()))
    reason = _say_difference(result)
    if kind.steps and result.mismatches <= STEPS_SHARE * size:
        return replace(result, reason=f"{reason}; accepted: a step before it rounds reals")
    first = _index_of(int(differing.argmax()), shape)
    return replace(result, passed=False, reason=reason, element=first)


def _allowed_errors(
    expected: Array, kind: Kind, tolerance: Tolerance | None
) -> tuple[float, float]:
    """Return rtol and atol for an output."""
    rtol = rtol_of(element_type_of(expected))
    if tolerance is not None:
        return (rtol if tolerance.rtol is None else tolerance.rtol), tolerance.atol
    return (max(rtol, kind.rtol) if rtol and kind.rtol else 0.0), 0.0


def _say_difference(result: OutputResult) -> str:
    error, apart = result.max_relative_error, result.max_abs_error
    if error is None or apart is None:
        amount = ""
    elif math.isinf(apart):
        amount = ", some by NaN or infinity"
    elif not apart and result.max_steps is not None:
        amount = ", only in signs of zeros or bits of NaNs"
    elif not apart:
        amount = ", only in the last digits of large integers"
    elif math.isinf(error):
        amount = f", by at most {apart:.2g} where all values should be 0"
    else:
        amount = f", by at most {error:.2g} of the largest value"
        if result.atol:
            amount += f" ({apart:.2g}) where {result.tolerance:g} and {result.atol:g} are allowed"
        elif result.tolerance:
            amount += f" where {result.tolerance:g} is allowed"
    return f"{result.mismatches} of {result.elements} elements differ{amount}"


# Figures

_Errors = npt.NDArray[np.floating[Any]]

#: numpy's kinds of types without arithmetic: strings and bool.
_NOT_NUMBERS = "OUSTb"
#: Elements that become double precision at a time: several arrays of eight bytes for each.
_CHUNK_ELEMENTS = 2**20
#: Elements with the largest errors that are named.
_WORST_ELEMENTS = 3
#: Smallest and largest decade of errors that are told apart; others count with these.
_DECADES = (-20, 2)


def _are_numbers(array: Array) -> bool:
    """Return whether differences of elements have a size: no strings and bools."""
    return array.dtype.kind not in _NOT_NUMBERS


def _are_real(array: Array) -> bool:
    """Return whether elements are rounded: floating-point and complex numbers."""
    return is_float(array.dtype) or array.dtype.kind == "c"


def _errors_of(expected: Array, actual: Array) -> tuple[_Errors, float, float | None]:
    """Return the error of each element, the largest finite expected value, and the most steps.

    An error is infinite where NaN or an infinity is on one side only. Those of types of up to 32 bits
    are float32. Steps are None for types that are not real, or differ.
    """
    dtype = expected.dtype
    wide = np.complex128 if dtype.kind == "c" else np.float64
    is_short = is_float(dtype) and dtype.itemsize <= 4
    has_steps = is_float(dtype) and dtype.itemsize <= 8 and dtype == actual.dtype
    errors: _Errors = np.empty(expected.shape, np.float32 if is_short else np.float64)
    arrays = [array.reshape(-1) for array in (expected, actual, errors)]
    largest = 0.0
    steps = 0.0 if has_steps else None
    for start in range(0, errors.size, _CHUNK_ELEMENTS):
        before, after, result = (array[start : start + _CHUNK_ELEMENTS] for array in arrays)
        with np.errstate(all="ignore"):
            a, b = before.astype(wide), after.astype(wide)
            finite = np.isfinite(a) & np.isfinite(b)
            same = (np.isnan(a) & np.isnan(b)) | (a == b)
            apart = np.minimum(np.abs(a - b), np.finfo(errors.dtype).max)
            result[:] = np.where(finite, apart, np.where(same, 0.0, np.inf))
            largest = max(largest, np.max(np.abs(a), initial=0.0, where=np.isfinite(a)))
            if steps is not None:
                steps = max(steps, _most_steps(before, after, np.isnan(a), np.isnan(b)))
    return errors, float(largest), steps


def _most_steps(
    expected: Array, actual: Array, nan: npt.NDArray[np.bool_], other_nan: npt.NDArray[np.bool_]
) -> float:
    """Return the largest number of representable values between two elements (ULP distance).

    It is 0 between NaNs, and infinite where one is NaN.
    """
    if (nan != other_nan).any():
        return math.inf
    bits = 8 * expected.dtype.itemsize
    ranks = []  # among all numbers of the type; -0.0 and 0.0 share one
    for array in (expected, actual):
        rank = np.ascontiguousarray(array).view(f"i{bits // 8}").astype(np.int64)
        ranks.append(np.where(rank < 0, np.int64(-(2 ** (bits - 1))) - rank, rank))
    # A distance of 64-bit ranks needs 64 bits without a sign.
    apart = (np.maximum(*ranks) - np.minimum(*ranks)).view(np.uint64)
    return float(np.max(apart, initial=0, where=~nan))


def _measure_errors(
    expected: Array, actual: Array, errors: _Errors, largest: float
) -> dict[str, Any]:
    """Return the figures of `OutputResult` for two arrays with these errors, by name."""

    def of_largest(error: float) -> float:
        return float(error) / largest if largest else (math.inf if error else 0.0)

    flat = errors.reshape(-1)
    number = min(_WORST_ELEMENTS, flat.size)
    worst = np.argpartition(flat, flat.size - number)[flat.size - number :]
    worst = worst[np.lexsort((worst, -flat[worst]))]
    with np.errstate(all="ignore"):
        # By rank, not by interpolation, which makes NaN of infinities.
        p50, p99 = np.quantile(flat, (0.5, 0.99), method="higher")
        mean, powers = flat.mean(), np.floor(np.log10(flat / largest))
    powers = np.where(np.isfinite(powers), np.clip(powers, *_DECADES), powers)
    powers[flat == 0] = -np.inf  # also 0 / 0
    decades = zip(*np.unique(powers, return_counts=True), strict=True)
    return {
        "max_abs_error": float(flat.max()),
        "max_relative_error": of_largest(flat.max()),
        "mean_relative_error": of_largest(mean),
        "p50_relative_error": of_largest(p50),
        "p99_relative_error": of_largest(p99),
        "error_decades": {_name_decade(power): int(count) for power, count in decades},
        "worst_elements": tuple(
            WorstElement(
                _index_of(int(i), errors.shape), *(str(v.flat[i]) for v in (expected, actual))
            )
            for i in worst
            if flat[i] > 0
        ),
    }


def _name_decade(power: float) -> str:
    if math.isinf(power):
        return "inf" if power > 0 else "0"
    return f"1e{int(power):+03d}"


def _figures_of_equal(array: Array) -> dict[str, Any]:
    """Return the figures of an array that is equal to another in every bit."""
    names = ("max_abs", "max_relative", "mean_relative", "p50_relative", "p99_relative")
    figures: dict[str, Any] = {f"{name}_error": 0.0 for name in names}
    return figures | {"max_steps": 0.0 if is_float(array.dtype) else None}


def _index_of(position: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the index of an element from its position in C order."""
    return tuple(int(i) for i in np.unravel_index(position, shape))
