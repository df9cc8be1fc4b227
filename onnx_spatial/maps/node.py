"""Give rules access to a node: its attributes, the maps of its inputs, and how these are broadcast.

    rule(case, node) -> maps of the outputs

A node is legal if a run of it is known to succeed, like those of the original: then `need` assumes what
it requires of any other node.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper

from onnx_spatial.maps.cases import Case, IllegalError, UndecidedError
from onnx_spatial.maps.polynomial import (
    ONE,
    ZERO,
    Index,
    Polynomial,
    Symbol,
    atoms_of,
    literal,
    show,
)
from onnx_spatial.maps.tensor import Dims, Tensor

#: Opset of nodes without one: the newest meaning of every operator.
MAX_OPSET = 1 << 16


def axes_of(listed: Sequence[int], rank: int) -> list[int]:
    """Return axes as numbers from 0.

    Raises:
        IllegalError: an axis occurs twice or is beyond the rank.
    """
    axes = [a + rank if a < 0 else a for a in listed]
    if len(set(axes)) < len(axes) or not all(0 <= a < rank for a in axes):
        raise IllegalError(f"axes {list(listed)} do not fit rank {rank}")
    return axes


class NodeView:
    """The operator, the attributes, and the inputs of a node; an omitted input is None."""

    def __init__(
        self,
        op_type: str,
        attributes: Mapping[str, Any],
        inputs: Sequence[Tensor | None],
        outputs: Sequence[str],
        opset: int = MAX_OPSET,
        *,
        legal: bool = False,
        place: str = "",
    ) -> None:
        #: Name of the first output, unique among all graphs.
        self.name = f"{place}{outputs[0] if outputs else ''}"
        self.op_type = op_type
        self.attributes = attributes
        self.outputs = outputs
        self.opset = opset
        self._inputs = inputs
        self.legal = legal

    @property
    def count(self) -> int:
        """Number of inputs, omitted ones included."""
        return len(self._inputs)

    def need(self, case: Case, p: Polynomial, problem: str) -> None:
        """Require that `p` is 0 or more; of a legal node this is assumed.

        Raises:
            UndecidedError: see `Case.require`.
        """
        if self.legal:
            case.assume(p)
        else:
            case.require(p, problem)

    def need_equal(self, case: Case, a: Polynomial, b: Polynomial, problem: str) -> None:
        """Require that two sizes are equal; of a legal node this is assumed.

        Raises:
            UndecidedError: see `Case.require_equal`.
        """
        if self.legal:
            assume_equal(case, a, b)
        else:
            case.require_equal(a, b, problem)

    def for_all(
        self,
        case: Case,
        dims: Sequence[Polynomial],
        check: Callable[[Index], None],
        index: Callable[[], Index] | None = None,
    ) -> None:
        """Check all elements of a tensor, see `Case.for_all`; a legal node needs no check."""
        if not self.legal:
            case.for_all(self.name, dims, check, index)

    def check(self, known: bool, problem: str) -> None:
        """Give up unless something is known; `problem` says what is not, in words behind the operator.

        Raises:
            UndecidedError: it is not known.
        """
        if not known:
            raise UndecidedError(f"{self.op_type}: {problem}")

    def details(self, *apart: str) -> tuple[Hashable, ...]:
        """Return the attributes by value, apart from some."""
        kept = {k: v for k, v in self.attributes.items() if k not in apart}
        return tuple(sorted((k, _text_of(v)) for k, v in kept.items()))

    def get(self, name: str, default: Any) -> Any:
        """Return an attribute, or the default."""
        return self.attributes.get(name, default)

    def has(self, name: str) -> bool:
        """Tell whether the node has an attribute."""
        return name in self.attributes

    def optional(self, position: int) -> Tensor | None:
        """Return an input, None if it is omitted."""
        return self._inputs[position] if position < len(self._inputs) else None

    def input(self, position: int) -> Tensor:
        """Return an input that the operator requires."""
        tensor = self.optional(position)
        if tensor is None:
            raise UndecidedError(f"{self.op_type}: input {position} is missing")
        return tensor

    def inputs(self) -> list[Tensor]:
        """Return all inputs of an operator that requires them all."""
        return [self.input(i) for i in range(len(self._inputs))]

    def optional_sizes(self, name: str, position: int) -> list[Polynomial] | None:
        """Return a list of integers, an attribute in older opsets and an input in newer ones."""
        if name in self.attributes:
            return [Polynomial.of(v) for v in self.attributes[name]]
        tensor = self.optional(position)
        if tensor is None:
            return None
        if not tensor.whole:
            raise UndecidedError(f"{self.op_type}: {name} has no index map")
        return tensor.elements()

    def sizes(self, name: str, position: int) -> list[Polynomial]:
        """Return a list of integers that the operator requires, see `optional_sizes`."""
        values = self.optional_sizes(name, position)
        if values is None:
            raise UndecidedError(f"{self.op_type}: {name} is missing")
        return values

    def optional_integers(self, name: str, position: int) -> list[int] | None:
        """Return a list of known integers, see `optional_sizes`.

        Raises:
            UndecidedError: they are unknown until run time.
        """
        values = self.optional_sizes(name, position)
        if values is None:
            return None
        known = [v.constant for v in values]
        if any(v is None for v in known):
            raise UndecidedError(f"{self.op_type}: {name} is unknown until run time")
        return [v for v in known if v is not None]

    def axes(self, position: int, rank: int) -> list[int] | None:
        """Return the axes that a node lists, as numbers from 0; None if it lists none.

        Raises:
            UndecidedError: an axis occurs twice, is beyond the rank, or unknown until run time.
        """
        listed = self.optional_integers("axes", position)
        return None if listed is None else axes_of(listed, rank)

    def reduced_axes(self, rank: int) -> list[int]:
        """Return the axes that a reduction reduces over; by default an empty list means all."""
        axes = self.axes(1, rank)
        if axes:
            return sorted(axes)
        return [] if self.get("noop_with_empty_axes", 0) else list(range(rank))

    def pad_value(self) -> Polynomial:
        """Return the value that a Pad fills with."""
        if self.has("value"):
            return number(np.float32(self.attributes["value"]))
        value = self.optional(2)
        return value.at((ZERO,) * value.rank) if value is not None else ZERO

    def fill_value(self) -> tuple[Polynomial, int]:
        """Return the value of a ConstantOfShape, and its element type."""
        value = self.get("value", None)
        if value is None:
            return ZERO, int(TensorProto.FLOAT)
        self.check(not value.external_data, "its value is in another file")
        array = numpy_helper.to_array(value).reshape(-1)
        return number(array[0]), value.data_type


def _text_of(value: Any) -> str:
    return repr(value.SerializeToString() if hasattr(value, "SerializeToString") else value)


def assume_equal(case: Case, a: Polynomial, b: Polynomial) -> None:
    """Assume that two sizes are equal; one that is a symbol is replaced by the other.

    Raises:
        IllegalError: they are known to differ.
    """
    difference = a - b
    if difference == ZERO:
        return
    if difference.constant is not None:
        raise IllegalError(f"two dims differ ({show(a)} and {show(b)})", difference, -difference)
    for one, other in ((a, b), (b, a)) if case.splits else ():
        atom = one.lone_atom
        if atom is not None and isinstance(atom.key, Symbol) and atom not in atoms_of(other):
            case.replace(atom, other)
    case.assume(difference)
    case.assume(-difference)


#: Integer element types, and those whose elements are numbers that rules may compute with.
INTEGERS = frozenset(
    {
        *(TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64),
        *(TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64),
    }
)
WHOLE = INTEGERS | {TensorProto.BOOL}


def number(value: Any) -> Polynomial:
    """Return an element of a constant; all types have the same 0."""
    if isinstance(value, str | bytes):
        return ZERO if not value else Polynomial.atom(("text", value))
    kind = np.asarray(value).dtype.kind
    if kind in "iub":  # exact, uint64 included
        return Polynomial.of(int(value))
    bits = np.asarray(value).tobytes()
    if not any(bits):
        return ZERO
    return literal(0, np.asarray(value).reshape(1)[0])


#: Return the maps of the outputs of a node. A rule requires all conditions of a run that succeeds, and
#: raises `UndecidedError` where one may not hold.
Rule = Callable[[Case, NodeView], Sequence[Tensor]]


def broadcast(case: Case, shapes: Sequence[Dims], *, legal: bool = False) -> Dims:
    """Return the dims of several shapes after broadcasting.

    Args:
        case: the case.
        shapes: the shapes.
        legal: whether they are known to fit: a size that is unknown may be 1.

    Raises:
        UndecidedError: they may not fit.
    """
    rank = max(map(len, shapes))
    dims = []
    for axis in range(rank):
        sizes = [s[axis - rank + len(s)] for s in shapes if axis - rank + len(s) >= 0]
        others = [size for size in sizes if size != ONE]
        numbers = [size for size in others if size.constant is not None]
        if numbers and not case.splits:
            dims.append(numbers[0])  # the others are equal to it, or 1
        else:
            dims.append(case.size(partial(_common, case, others, legal=legal)) if others else ONE)
    return tuple(dims)


def _common(case: Case, sizes: Sequence[Polynomial], *, legal: bool) -> Polynomial:
    """Return the size that all sizes have; one that may be 1 is only right beside equal ones."""
    for size in sizes[1:]:
        if legal and not case.are_equal(size, sizes[0]):
            for each in (size, sizes[0]):
                if each.constant is None and case.is_zero(each - ONE):
                    assume_equal(case, each, ONE)
            assume_equal(case, size, sizes[0])
        case.require_equal(size, sizes[0], "broadcasting: dims may differ")
    return sizes[0]


def broadcast_at(x: Tensor, index: Index) -> Polynomial:
    """Return the element of a tensor at the index of a broadcast result."""
    tail = index[len(index) - x.rank :]
    return x.at(tuple(ZERO if d == ONE else i for i, d in zip(tail, x.dims, strict=True)))
