"""Keep onnxruntime from merging a Pad that a conversion brings in front of a pool into the pool.

    x -> Pad -> Transpose -> MaxPool -> y        x -> Pad -> Transpose -> Reshape -> MaxPool -> y

Up to version 1.31 onnxruntime adds the amounts of a Pad of zeros to the pads of a MaxPool or AveragePool
behind it, Transposes between ignored. A MaxPool pads with minus infinity, an AveragePool may leave its
pads out of the mean, and pads as large as the kernel are refused. A Reshape to the same sizes between
the two copies nothing and is not merged.

A Pad in front of a pool in the original is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx
import onnx_ir as ir

from onnx_spatial.analysis import attributes
from onnx_spatial.lowering import Emitter
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.graph import insert_nodes
from onnx_spatial.model.graph.naming import Names
from onnx_spatial.model.inference import constant_folding
from onnx_spatial.model.traversal import Place

_POOLS = frozenset({"AveragePool", "MaxPool"})
#: Operators across which onnxruntime moves a Pad, or merges it.
_PASSED = frozenset({"Cast", "Identity", "Transpose"})


def insert_barriers(model: onnx.ModelProto, original: onnx.ModelProto, opset: int) -> None:
    """Insert a Reshape in front of each pool that a Pad feeds, but not in the original, in place.

    `opset` is the version of the default domain where it is not imported.
    """
    fed = _padded_pools(model)
    if not fed:
        return
    before = {(place, node.output[0]) for place, node in _padded_pools(original).values()}
    names, inserted = Names(model), {}
    for index, (place, node) in fed.items():
        if (place, node.output[0]) in before:
            continue
        emit, value = Emitter(opset), ir.Value(name=node.input[0])
        kernel = attributes(node).get("kernel_shape")
        if isinstance(kernel, tuple):
            sizes = emit.ints([0] * (2 + len(kernel)), "same_sizes")
        else:  # an attribute of a function, which each call gives
            sizes = emit.op("Shape", value)
        emit.op("Reshape", value, sizes)
        # Files older than IR 4 list every initializer as an input too; functions have none at all.
        initializers = model.ir_version >= 4 and place.function is None
        new = insert_nodes.serialize_nodes(
            node, emit.nodes, emit.constants, names, initializers=initializers
        )
        node.input[0] = new.nodes[-1].output[0]
        inserted[index] = new
    insert_nodes.in_front(model, inserted)


def _padded_pools(model: onnx.ModelProto) -> dict[int, tuple[Place, onnx.NodeProto]]:
    """Map positions in `traversal.nodes` to the pools that a Pad of zeros feeds, with their places."""
    operators = {node.op_type for _, _, node in traversal.nodes(model)}
    if "Pad" not in operators or operators.isdisjoint(_POOLS):
        return {}
    functions = {(f.domain, f.name, f.overload): f for f in model.functions}
    scopes = [scope for scope, _ in constant_folding.scopes(model)]
    places = [place for place, _ in traversal.graphs(model)]
    known = dict(zip(places, scopes, strict=True))
    found = {}
    for index, (place, _, node) in enumerate(traversal.nodes(model)):
        if node.op_type not in _POOLS or not op_traits.is_standard(node) or len(node.output) > 1:
            continue
        if _is_padded(known, functions, place, node.input[0]):
            found[index] = place, node
    return found


def _is_padded(
    known: Mapping[Place, constant_folding.ConstantScope],
    functions: Mapping[tuple[str, str, str], onnx.FunctionProto],
    place: Place,
    name: str,
) -> bool:
    """Return whether a Pad of zeros gives a value; calls of functions count as their bodies."""
    while True:
        scope = known[place]
        node = scope.producer(name) if scope.owner(name) is scope else None
        if node is None:
            return False
        key = (node.domain, node.op_type, node.overload)
        if key in functions:
            place, name = Place(key), functions[key].output[list(node.output).index(name)]
        elif not op_traits.is_standard(node):
            return False
        elif node.op_type == "Pad":
            fill = scope.value(node.input[2]) if len(node.input) > 2 and node.input[2] else None
            return not (attributes(node).get("value", 0.0) if fill is None else fill.any())
        elif node.op_type in _PASSED and node.input:
            name = node.input[0]
        else:
            return False
