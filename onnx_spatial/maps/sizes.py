"""Infer sizes that a graph computes at run time as polynomials, so that differences are constant.

    s = Shape(x); e = 2 - (s[1] mod 2)          pads = [[0, e+2]]      crops = [[0, e]]

`pads - crops` is [[0, 2]] for every size of x; `SymbolicValues.entries` returns both as polynomials.
The maps of ONNX's operators say what a node does, in a case that never splits (`open_case`). Where one
gives up, its dims are known as far as `open_dims` says, and the rest becomes new unknowns: an atom for
each dim, and for each element of a small tensor. Equal functions of equal elements are one atom.

Of a tensor with many elements, or of real ones, only the dims are followed. Sizes are 0 or more, and a
run succeeds; int32 and int64 are treated as one ring: valid sizes are below 2^31, and fit both.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import onnx
from onnx import TensorProto

from onnx_spatial.maps import open_dims
from onnx_spatial.maps.broadcasting import broadcast_at
from onnx_spatial.maps.cases import UndecidedError
from onnx_spatial.maps.constants import Array
from onnx_spatial.maps.expressions import UNKNOWN, Index
from onnx_spatial.maps.graph import RULES
from onnx_spatial.maps.node import INTEGERS, WHOLE, NodeView, number
from onnx_spatial.maps.open_case import OpenCase
from onnx_spatial.maps.polynomial import OperationKey, Polynomial
from onnx_spatial.maps.tensor import Dims, Tensor
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.model.inference.constant_folding import ConstantScope
from onnx_spatial.model.op_traits import Trait

#: The most elements of a tensor that are followed.
MAX_ENTRIES = 64

#: Types of sizes, and the real types in which sizes are divided and rounded on the way.
_RING = frozenset({TensorProto.INT32, TensorProto.INT64})
_FLOATS = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE})

#: Operators whose result is a function of the elements at one place.
_ELEMENTWISE = op_traits.having(Trait.BROADCASTS) | op_traits.having(Trait.UNARY)


@dataclass(frozen=True, slots=True)
class ElementKey:
    """Key of the atom for one element of a tensor."""

    scope: ConstantScope
    name: str
    index: int


@dataclass(frozen=True, slots=True)
class DimKey:
    """Key of the atom for one dim of a value."""

    scope: ConstantScope
    name: str
    axis: int


@dataclass(frozen=True, slots=True)
class NamedDimKey:
    """Key of the atom for all dims of one name among the inputs of the main graph."""

    scope: ConstantScope
    name: str


class Entries(NamedTuple):
    """A small tensor: its element type and shape, and its elements in C order."""

    element_type: int
    shape: tuple[int, ...]
    elements: tuple[Polynomial, ...]


class _Value:
    """What is known of a value: its dims, and its elements if they are followed."""

    __slots__ = ("_case", "_tensor", "dims", "element_type", "entries")

    def __init__(
        self, case: OpenCase, dims: Dims, element_type: int, entries: Entries | None = None
    ) -> None:
        self._case = case
        self._tensor: Tensor | None = None
        self.dims = dims
        self.element_type = element_type
        self.entries = entries

    @property
    def tensor(self) -> Tensor:
        """The map of the value."""
        if self._tensor is None:
            at = _unread if self.entries is None else _table(self.entries).__getitem__
            kind = self.element_type
            self._tensor = Tensor(self._case, self.dims, at, whole=kind in WHOLE, type=kind)
        return self._tensor


_Key = tuple[ConstantScope, str]


class SymbolicValues:
    """Sizes and small integer tensors that are visible in one graph, as polynomials."""

    def __init__(self, scope: ConstantScope) -> None:
        """Prepare to evaluate the values of `scope`; a value is evaluated when it is asked for.

        Args:
            scope: a graph, with the known types of its values.
        """
        self.case = OpenCase()
        self._scope = scope
        self._values: dict[_Key, _Value | None] = {}

    def entries(self, name: str) -> tuple[Polynomial, ...] | None:
        """Return the elements, in C order, of an integer tensor of at most 64 elements.

        Returns:
            None if the tensor is larger, of another type, or its number of elements is unknown.
        """
        tensor = self.tensor(name)
        return tensor.elements if tensor is not None else None

    def shape_of_entries(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of the tensor of `entries`; None where that is None."""
        tensor = self.tensor(name)
        return tensor.shape if tensor is not None else None

    def tensor(self, name: str) -> Entries | None:
        """Return an integer tensor with its elements as polynomials; see `entries`."""
        value = self._value(name)
        found = value.entries if value is not None else None
        return found if found is not None and found.element_type in INTEGERS else None

    def dims(self, name: str) -> Dims | None:
        """Return the dims of a tensor; None if its rank is unknown."""
        value = self._value(name)
        return value.dims if value is not None else None

    def note(self, name: str, dims: Sequence[Polynomial]) -> None:
        """Set dims of a value that the caller knows better.

        Call it before any query for values that depend on this one: earlier results stay as they
        are. They are true, but cannot be compared with later ones.
        """
        key = self._key(self._scope, name)
        if key is not None:
            before = self._values.get(key)
            entries = None if before is None else before.entries
            self._values[key] = self._unknown(key, self._dims(key, dims), entries)

    def note_elements(self, name: str, elements: Entries) -> None:
        """Set the elements of a value that the caller knows better; see `note`."""
        key = self._key(self._scope, name)
        if key is not None:
            self._values[key] = self._tabulated(elements)

    def quotient(self, a: Polynomial, b: Polynomial | int) -> Polynomial:
        """Return the size `a / b`, rounded down, as the graph's own divisions of sizes are known."""
        return self.case.floor_div(a, Polynomial.of(0) + b)

    # Evaluation

    def _key(self, scope: ConstantScope, name: str) -> _Key | None:
        owner = scope.owner(name) if name else None
        return (owner, name) if owner is not None else None

    def _value(self, name: str) -> _Value | None:
        """Evaluate a value after those that it depends on; in a cycle, values are unknown."""
        key = self._key(self._scope, name)
        if key is None or key in self._values:
            return None if key is None else self._values[key]
        for found in traversal.depth_first(key, self._sources, self._values.__contains__):
            self._values[found] = self._evaluate(found)
        return self._values[key]

    def _sources(self, key: _Key) -> list[_Key]:
        """Return the values that a value depends on."""
        scope, name = key
        small = _is_small(key)
        node = self._producer(key, small=small)
        if node is None or (small and scope.value(name) is not None):
            return []
        names = node.input if small else _read_by(node)
        sources = (self._key(scope, source) for source in names)
        return [source for source in sources if source is not None]

    def _producer(self, key: _Key, *, small: bool) -> onnx.NodeProto | None:
        """Return the node that computes a value, if the value is followed through it."""
        scope, name = key
        if not small and _static(scope.type(name)) is not None:
            return None
        node = scope.producer(name)
        if node is None or not op_traits.is_standard(node):
            return None
        if any(attribute.ref_attr_name for attribute in node.attribute):
            return None
        return node if node.op_type in RULES or node.op_type in open_dims.OPERATORS else None

    def _evaluate(self, key: _Key) -> _Value | None:
        scope, name = key
        small = _is_small(key)
        if small:
            value = scope.value(name)
            known = _entries_of(value) if value is not None else None
            if known is not None:
                return self._tabulated(known)
        node = self._producer(key, small=small)
        if node is None:
            return self._unknown(key, self._dims(key))
        if not small and _keeps_shape(node):
            first = self._input(scope, node.input[0]) if node.input else None
            known_dims = None if first is None or name != node.output[0] else first.dims
            return self._unknown(key, self._dims(key, known_dims))
        inputs = [self._input(scope, source) for source in node.input]
        tensors = [value.tensor if value is not None else None for value in inputs]
        view = _view(node, tensors, scope)
        position = list(node.output).index(name)
        is_known = all(t is not None for n, t in zip(node.input, tensors, strict=True) if n)
        result: Tensor | None = None
        dims: open_dims.Partial | None = None
        with suppress(Exception):  # it is open, or breaks its operator's rules and fails when run
            if is_known:
                result = RULES[view.op_type](self.case, view)[position]
                dims = result.dims
        if result is None and (position == 0 or node.op_type == "Split"):
            with suppress(Exception):  # as above
                dims = open_dims.known_dims(self.case, view)
        dims = self._dims(key, dims)
        entries = self._computed(key, dims, view, result, inputs) if small else None
        return self._unknown(key, dims, entries)

    def _input(self, scope: ConstantScope, name: str) -> _Value | None:
        key = self._key(scope, name)
        if key is None:
            return None
        return self._values[key] if key in self._values else self._unknown(key, self._dims(key))

    def _dims(self, key: _Key, known: open_dims.Partial | None = None) -> Dims | None:
        """Return the dims of a value: declared numbers, dims that are known, and else new unknowns."""
        scope, name = key
        declared = shape_inference.dims(scope.type(name))
        if declared is None:
            if known is None:
                return None
            declared = (None,) * len(known)
        if known is None or len(known) != len(declared):
            known = (None,) * len(declared)
        dims = []
        for axis, (dim, size) in enumerate(zip(declared, known, strict=True)):
            if isinstance(dim, int):
                dims.append(Polynomial.of(dim))
            elif size is not None:
                dims.append(size)
            elif dim is not None and scope.is_fed(name):  # names of other values are not reliable
                dims.append(Polynomial.atom(NamedDimKey(scope, dim), nonnegative=True))
            else:
                dims.append(Polynomial.atom(DimKey(scope, name, axis), nonnegative=True))
        return tuple(dims)

    # Elements

    def _unknown(
        self, key: _Key, dims: Dims | None, entries: Entries | None = None
    ) -> _Value | None:
        """Return a value of which only the dims are known, and elements if they are given or few."""
        if entries is not None:
            return self._tabulated(entries)
        if dims is None:
            return None
        element_type = shape_inference.element_type(key[0].type(key[1])) or 0
        sizes = [size for d in dims if (size := d.constant) is not None]
        if element_type and len(sizes) == len(dims) and math.prod(sizes) <= MAX_ENTRIES:
            count = range(math.prod(sizes))
            atoms = (Polynomial.atom(ElementKey(*key, i)) for i in count)
            return self._tabulated(Entries(element_type, tuple(sizes), tuple(atoms)))
        return _Value(self.case, dims, element_type)

    def _tabulated(self, entries: Entries) -> _Value:
        """Return a value whose elements are known one by one."""
        dims = tuple(map(Polynomial.of, entries.shape))
        return _Value(self.case, dims, entries.element_type, entries)

    def _computed(
        self,
        key: _Key,
        dims: Dims | None,
        node: NodeView,
        result: Tensor | None,
        inputs: Sequence[_Value | None],
    ) -> Entries | None:
        """Return the elements of the output of a node, those that are open as unknowns."""
        shape = [d.constant for d in dims or ()]
        sizes = [size for size in shape if size is not None]
        scope, name = key
        declared = shape_inference.element_type(scope.type(name)) or 0
        element_type = declared or (result.type if result is not None else 0)
        if dims is None or len(sizes) < len(shape) or math.prod(sizes) > MAX_ENTRIES:
            return None
        if not element_type:
            return None
        operands = [v.tensor for v in inputs if v is not None and v.entries is not None]
        elementwise = node.op_type in _ELEMENTWISE and len(operands) == len(inputs) > 0
        places = list(itertools.product(*(map(Polynomial.of, range(size)) for size in sizes)))
        elements = []
        for position, place in enumerate(places):
            element = None
            with suppress(Exception):  # as in `_evaluate`
                row = [broadcast_at(x, place) for x in operands] if elementwise else None
                element = self._element(node, result, place, row, element_type)
            elements.append(
                Polynomial.atom(ElementKey(*key, position)) if element is None else element
            )
        return Entries(element_type, tuple(sizes), tuple(elements))

    def _element(
        self,
        node: NodeView,
        result: Tensor | None,
        place: Index,
        row: Sequence[Polynomial] | None,
        element_type: int,
    ) -> Polynomial | None:
        """Return an element of the output of a node; None if it is unknown.

        Args:
            node: the node.
            result: the map of its output, if it has one.
            place: index of the element.
            row: the elements that it is a function of, if it is elementwise.
            element_type: type of the output.
        """
        if row is None:
            return None if result is None else result.at(place)
        source = node.input(0).type
        kinds = {node.input(i).type for i in range(int(node.op_type == "Where"), node.count)}
        details = (node.op_type, source, element_type, *node.details("to"))

        def element() -> Polynomial:
            if node.op_type == "Cast" and element_type in _RING and source in _FLOATS:
                whole = _whole_number(row[0], source)
                if whole is not None:
                    return whole
            with suppress(UndecidedError):
                if result is not None:
                    return result.at(place)
            return self.case.computed(node.op_type, details[1:], row)

        known = {*_RING, *_FLOATS, TensorProto.BOOL}
        if len(kinds) > 1 or (not kinds <= known and node.op_type != "Cast"):
            return None
        return self.case.once((*details, *row), element)


def _keeps_shape(node: onnx.NodeProto) -> bool:
    return node.op_type in open_dims.SAME_SHAPE and op_traits.is_standard(node)


def _read_by(node: onnx.NodeProto) -> Sequence[str]:
    """Return the inputs that the dims of a node's output depend on."""
    names = list(node.input)
    return names[:1] if _keeps_shape(node) else names


def _view(node: onnx.NodeProto, inputs: Sequence[Tensor | None], scope: ConstantScope) -> NodeView:
    """Return a node of a model that runs, for rules; CastLike as the Cast that it is."""
    attributes: Mapping[str, Any] = {}
    with suppress(ValueError):  # one that is unreadable fails when run
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    op_type = node.op_type
    if op_type == "CastLike" and len(inputs) == 2 and inputs[1] is not None and inputs[1].type:
        op_type, attributes = "Cast", {**attributes, "to": inputs[1].type}
        inputs = inputs[:1]
    return NodeView(op_type, attributes, inputs, list(node.output), scope.opset, legal=True)


def _entries_of(value: Array) -> Entries | None:
    """Return the elements of a known array; None if it is large or not numeric."""
    if value.size > MAX_ENTRIES or value.dtype.kind in "OSU":
        return None
    with suppress(KeyError, ValueError):
        element_type = int(onnx.helper.np_dtype_to_tensor_dtype(value.dtype))
        flat = value.reshape(-1)
        numbers = (
            map(Polynomial.of, flat.tolist()) if value.dtype.kind in "iub" else map(number, flat)
        )
        return Entries(element_type, value.shape, tuple(numbers))
    return None


def _table(entries: Entries) -> dict[Index, Polynomial]:
    places = itertools.product(*(map(Polynomial.of, range(size)) for size in entries.shape))
    return dict(zip(places, entries.elements, strict=True))


def _unread(_: Index) -> Polynomial:
    raise UndecidedError("elements of a large tensor are not followed")


def _static(known: onnx.TypeProto | None) -> tuple[int, ...] | None:
    """Return the dims of a tensor type, if all are known numbers."""
    dims = shape_inference.dims(known)
    sizes = [d for d in dims or () if isinstance(d, int)]
    return tuple(sizes) if dims is not None and len(sizes) == len(dims) else None


def _is_small(key: _Key) -> bool:
    """Tell whether a value may be a size or a list of them: an integer, or a real on the way to one."""
    scope, name = key
    known = scope.type(name)
    shape, element_type = _static(known), shape_inference.element_type(known)
    if element_type in _FLOATS:
        return shape is not None and len(shape) < 2 and math.prod(shape) <= MAX_ENTRIES
    if element_type is not None and element_type not in WHOLE:
        return False
    return shape is None or math.prod(shape) <= MAX_ENTRIES


def _whole_number(value: Polynomial, source: int) -> Polynomial | None:
    """Return the integer from which `value`, of real type `source`, was cast exactly.

    A double represents each int32, and each int64 that is a size (below 2^53). A float represents
    integers below 2^24: more than any single dim in practice, but products of dims may be larger and
    return None.
    """
    atom = value.lone_atom
    key = atom.key if atom is not None else None
    if not isinstance(key, OperationKey) or key.operator != f"{UNKNOWN}Cast":
        return None
    if key.details[0] not in INTEGERS or key.details[1] != source:
        return None
    (number,) = key.operands
    linear = all(len(product) <= 1 for product in number.terms)
    return number if linear or source == TensorProto.DOUBLE else None
