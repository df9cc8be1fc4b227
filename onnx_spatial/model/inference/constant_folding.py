"""Fold constants: find the values that initializers, Constant nodes and nodes on these determine.

`ConstantScope.value` evaluates chains of small operators (Identity, Cast, Concat, Slice, arithmetic,
Shape of a value with a static shape, ...) by running each node through onnx's reference evaluator.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import onnx
from onnx import reference

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.graph.strip import MAX_KEPT_ELEMENTS
from onnx_spatial.model.io import sparse
from onnx_spatial.model.op_traits import Trait

Array = npt.NDArray[np.generic]

#: Operators with which converters compute block shapes, pads and crops; cheap on small tensors.
_FOLDABLE = frozenset(
    (
        "Abs Add And Cast CastLike Ceil Concat ConstantOfShape Div Equal Expand Flatten Floor "
        "Gather GatherElements GatherND Greater GreaterOrEqual Identity Less LessOrEqual Max Min "
        "Mod Mul Neg Not Or ReduceMax ReduceMin ReduceProd ReduceSum Reshape ScatterElements "
        "ScatterND Sign Slice Split Squeeze Sub Transpose Unsqueeze Where Xor"
    ).split()
)

#: Operators whose last input is the shape of the result, which is checked before they run.
_GROWS = frozenset({"ConstantOfShape", "Expand"})

_SIZES = op_traits.having(Trait.SIZES)


#: Attributes of Constant that hold numbers, by name and type.
_NUMBERS: dict[tuple[str, int], type[np.generic]] = {
    ("value_int", onnx.AttributeProto.INT): np.int64,
    ("value_ints", onnx.AttributeProto.INTS): np.int64,
    ("value_float", onnx.AttributeProto.FLOAT): np.float32,
    ("value_floats", onnx.AttributeProto.FLOATS): np.float32,
}
#: Attributes of Constant that hold a dense value.
HELD = frozenset({"value", *(name for name, _ in _NUMBERS)})


class ConstantScope:
    """Values visible in one graph, with those of its outer graphs.

    Attributes:
        foldable: the operators that are computed.
        most_elements: of a value that is read or computed.
        types: of the values of the graph itself.
        producers: the nodes that compute them.
    """

    foldable = _FOLDABLE
    most_elements = MAX_KEPT_ELEMENTS

    def __init__(
        self,
        graph: traversal.GraphLike,
        opsets: dict[str, int],
        *,
        parent: ConstantScope | None = None,
        overridable: bool = False,
    ) -> None:
        """Read what a graph declares and stores; `overridable` inputs have no known value."""
        self._parent = parent
        self._opsets = opsets
        self._tensors: dict[str, onnx.TensorProto] = {}
        self._sparse: dict[str, onnx.SparseTensorProto] = {}
        self._known: dict[str, Array | None] = {}
        self._inputs = set(traversal.value_names(graph.input))
        self.types: dict[str, onnx.TypeProto] = {}
        if isinstance(graph, onnx.GraphProto):
            overridden = self._inputs if overridable else set()
            for tensor in graph.initializer:
                if tensor.name not in overridden:
                    self._tensors[tensor.name] = tensor
                self.types[tensor.name] = onnx.helper.make_tensor_type_proto(
                    tensor.data_type, list(tensor.dims)
                )
            for pair in graph.sparse_initializer:
                if pair.values.name not in overridden:
                    self._sparse[pair.values.name] = pair
                self.types[pair.values.name] = onnx.helper.make_tensor_type_proto(
                    pair.values.data_type, list(pair.dims)
                )
            for info in traversal.declared_values(graph):
                if info.HasField("type"):
                    self.types[info.name] = info.type
        self._declared = self._inputs | self._tensors.keys() | self._sparse.keys()
        nodes = list(graph.node)
        self.producers = {name: node for node in nodes for name in node.output}
        for node in nodes:
            if node.op_type == "Constant" and (held_type := _type_of_constant(node)) is not None:
                self.types.setdefault(node.output[0], held_type)
        self.producers.pop("", None)

    def read(self, tensor: onnx.TensorProto) -> Array | None:
        """Return the elements of a stored tensor; None for one that is large, external or damaged."""
        return _small_array(tensor)

    @property
    def opset(self) -> int:
        """Version of the default domain; 1 if it is not imported."""
        return self._opsets.get("", 1)

    def type(self, name: str) -> onnx.TypeProto | None:
        """Return the type of a visible value, as far as it is known."""
        scope = self.owner(name)
        return scope.types.get(name) if scope is not None else None

    def producer(self, name: str) -> onnx.NodeProto | None:
        """Return the node that produces a visible value; None for inputs and initializers."""
        owner = self.owner(name)
        return owner.producers.get(name) if owner is not None else None

    def is_fed(self, name: str) -> bool:
        """Tell whether a value is an input of the main graph."""
        owner = self.owner(name)
        return owner is not None and owner._parent is None and name in owner._inputs

    def assume(self, name: str, value: Array) -> None:
        """Take the value of an input for known: all calls of this function give it."""
        self._known[name] = value

    def damaged(self, name: str) -> onnx.TensorProto | None:
        """Return the initializer of that name if it is small and in the file but unreadable."""
        owner = self.owner(name)
        tensor = owner._tensors.get(name) if owner is not None else None
        if tensor is None or _is_skipped(tensor) or _small_array(tensor) is not None:
            return None
        return tensor

    def value(self, name: str) -> Array | None:
        """Return the value of a tensor if it is constant, else None."""
        owner = self.owner(name)
        if owner is None:
            return None
        for scope, current in traversal.depth_first(
            (owner, name),
            lambda key: key[0]._source_keys(key[1]),
            lambda key: key[1] in key[0]._known,
        ):
            scope._known[current] = scope._evaluate_value(current)
        return owner._known[name]

    def owner(self, name: str) -> ConstantScope | None:
        """Return the scope that a visible value belongs to: this one or an outer one."""
        scope: ConstantScope | None = self
        while scope is not None:
            if name in scope.producers or name in scope._declared:
                return scope
            scope = scope._parent
        return None

    def _source_keys(self, name: str) -> list[tuple[ConstantScope, str]]:
        """Return the values, with their scopes, of which a value of this scope is computed."""
        node = self.producers.get(name)
        if name in self._tensors or node is None or not self._is_foldable(node):
            return []
        owners = [(self.owner(source), source) for source in node.input if source]
        return [(owner, source) for owner, source in owners if owner is not None]

    def _evaluate_value(self, name: str) -> Array | None:
        """Return the value of a tensor of this scope whose sources are known; None if it varies."""
        if name in self._tensors:
            return self.read(self._tensors[name])
        if name in self._sparse:
            return _dense_array(self._sparse[name], self.read)
        node = self.producers.get(name)
        if node is None or not op_traits.is_standard(node):
            return None
        if node.op_type == "Constant":
            return held(node, self.read)
        if node.op_type in _SIZES:
            return self._shape_value(node)
        if not self._is_foldable(node):
            return None
        feeds: dict[str, Array] = {}
        for source in filter(None, node.input):
            owner = self.owner(source)
            value = owner._known.get(source) if owner is not None else None
            if value is None or value.size > self.most_elements:
                return None
            feeds[source] = value
        if (
            node.op_type in _GROWS
            and math.prod(map(int, feeds[node.input[-1]].flat)) > self.most_elements
        ):
            return None
        result = _run_node(node, feeds, name, self._opsets)
        return None if result is None or result.size > self.most_elements else result

    def _is_foldable(self, node: onnx.NodeProto) -> bool:
        return (
            op_traits.is_standard(node)
            and node.op_type in self.foldable
            and not any(a.ref_attr_name for a in node.attribute)
        )

    def _shape_value(self, node: onnx.NodeProto) -> Array | None:
        """Return the result of a Shape or Size if the dims that it needs are static."""
        source_type = self.type(node.input[0]) if node.input else None
        if source_type is None or not source_type.tensor_type.HasField("shape"):
            return None
        dims = source_type.tensor_type.shape.dim
        bounds = {a.name: a.i for a in node.attribute}
        dims = dims[bounds.get("start", 0) : bounds.get("end", len(dims))]
        if not all(d.HasField("dim_value") for d in dims):
            return None
        sizes = [d.dim_value for d in dims]
        return np.array(sizes if node.op_type == "Shape" else math.prod(sizes), np.int64)


def _is_skipped(tensor: onnx.TensorProto) -> bool:
    """Tell whether a tensor is not read because it is large or external."""
    external = onnx.TensorProto.EXTERNAL
    return bool(math.prod(tensor.dims) > MAX_KEPT_ELEMENTS or tensor.data_location == external)


def _small_array(tensor: onnx.TensorProto) -> Array | None:
    if _is_skipped(tensor):
        return None
    try:
        return onnx.numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError, RuntimeError):  # too few bytes, an unknown type
        return None


def _dense_array(
    tensor: onnx.SparseTensorProto, read: Callable[[onnx.TensorProto], Array | None]
) -> Array | None:
    """Return the array of a small sparse tensor; None for a longer one, or if it is damaged."""
    if not 0 <= math.prod(tensor.dims) <= MAX_KEPT_ELEMENTS:
        return None
    try:
        return sparse.dense_array(tensor, read)
    except ValueError:
        return None


def held(
    node: onnx.NodeProto,
    read: Callable[[onnx.TensorProto], Array | None],
) -> Array | None:
    """Return the value of a Constant node; None for strings and references.

    Args:
        node: a Constant.
        read: converts a tensor message to an array.
    """
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            return None
        if attribute.name == "value":
            return read(attribute.t)
        if attribute.name == "sparse_value":
            return _dense_array(attribute.sparse_tensor, read)
        dtype = _NUMBERS.get((attribute.name, attribute.type))
        if dtype is not None:
            return np.array(onnx.helper.get_attribute_value(attribute), dtype)
    return None


def _type_of_constant(node: onnx.NodeProto) -> onnx.TypeProto | None:
    """Return the type of a Constant: no inference declares one in a function that nothing calls."""
    if not op_traits.is_standard(node) or not node.output:
        return None
    for attribute in node.attribute:
        if attribute.name == "value" and not attribute.ref_attr_name:
            tensor = attribute.t
            return onnx.helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
    value = held(node, _small_array)
    if value is None:
        return None
    kind = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
    return onnx.helper.make_tensor_type_proto(kind, value.shape)


def _run_node(
    node: onnx.NodeProto, feeds: dict[str, Array], name: str, opsets: dict[str, int]
) -> Array | None:
    # The evaluator runs a single node with the newest version, a graph with the given one.
    inputs = [onnx.ValueInfoProto(name=source) for source in feeds]
    graph = onnx.helper.make_graph([node], "fold", inputs, [onnx.ValueInfoProto(name=name)])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            evaluator = reference.ReferenceEvaluator(graph, opsets={"": opsets.get("", 1)})
            (result,) = evaluator.run(None, feeds)
    except Exception:  # of any type: the value stays unknown
        return None
    return result if isinstance(result, np.ndarray) else None


#: A graph, behind the values that are visible in it.
GraphInScope = tuple[ConstantScope, traversal.GraphLike]


def scopes(
    model: onnx.ModelProto, scope_of: Callable[..., ConstantScope] = ConstantScope
) -> Iterator[GraphInScope]:
    """Yield every graph of a model with its scope, functions last; `scope_of` makes a scope."""
    opsets = op_traits.opsets_of(model.opset_import)
    main = scope_of(model.graph, opsets, overridable=traversal.has_defaults(model))
    yield from _scopes_inside(main, model.graph, opsets, scope_of)
    for function in model.functions:
        function_opsets = op_traits.opsets_of(function.opset_import)
        scope = scope_of(function, function_opsets)
        yield from _scopes_inside(scope, function, function_opsets, scope_of)


def _scopes_inside(
    scope: ConstantScope,
    graph: traversal.GraphLike,
    opsets: dict[str, int],
    scope_of: Callable[..., ConstantScope],
) -> Iterator[GraphInScope]:
    yield scope, graph
    for node in graph.node:
        if not node.attribute:
            continue
        for _, inner in traversal.subgraphs(node):
            inner_scope = scope_of(inner, opsets, parent=scope)
            yield from _scopes_inside(inner_scope, inner, opsets, scope_of)
