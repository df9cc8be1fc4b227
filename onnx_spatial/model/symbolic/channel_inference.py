"""Infer numbers of channels backward, from the weights of convolutions and normalizations.

    x: [n, h, w, c] -> Transpose -> Conv with a weight [8, 4, 3, 3]        c is 4

A run with another number fails. Nodes determine only values of their own graph, because a branch may
never run.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.inference import constant_folding, shape_inference
from onnx_spatial.model.symbolic import symbolic_tensor
from onnx_spatial.model.symbolic.polynomial import Atom
from onnx_spatial.model.symbolic.symbolic_values import SymbolicValues
from onnx_spatial.model.symbolic.symbols import DimKey, NamedDimKey

#: The axis of an input that has as many elements as the data has channels, or channels of one group.
_CHANNELS = {"BatchNormalization": (1, 0), "Conv": (1, 1), "ConvTranspose": (1, 0)}
#: One number may lead to another.
_MAX_PASSES = 4


def declare_channels(graph: traversal.GraphLike, scope: constant_folding.ConstantScope) -> None:
    """Write the numbers of channels into the types of `scope`, the scope of a graph, in place."""
    for _ in range(_MAX_PASSES):
        known = dict(_channels(graph, scope))
        if not any(_declare(scope, atom, number) for atom, number in known.items()):
            return


def _channels(
    graph: traversal.GraphLike, scope: constant_folding.ConstantScope
) -> Iterator[tuple[Atom, int]]:
    """Yield the unknown numbers of channels that a weight determines."""
    values = SymbolicValues(scope)
    for node in graph.node:
        if node.op_type not in _CHANNELS or not op_traits.is_standard(node) or len(node.input) < 2:
            continue
        index, axis = _CHANNELS[node.op_type]
        weight = shape_inference.dims(scope.type(node.input[index]))
        data, attributes = values.dims(node.input[0]), symbolic_tensor.attributes(node)
        if weight is None or len(weight) <= axis or data is None or len(data) < 2:
            continue
        number, atom = weight[axis], data[1].lone_atom
        if isinstance(number, int) and atom is not None and attributes is not None:
            groups = attributes.get("group", 1) if node.op_type == "Conv" else 1
            yield atom, number * groups


def _declare(scope: constant_folding.ConstantScope, atom: Atom, number: int) -> bool:
    """Write the number of a dim into the types; return whether there was such a dim."""
    key, dims = atom.key, list[onnx.TensorShapeProto.Dimension]()
    if isinstance(key, DimKey) and key.scope is scope and key.name in scope.types:
        shape = scope.types[key.name].tensor_type.shape
        dims = list(shape.dim[key.axis : key.axis + 1])
    elif isinstance(key, NamedDimKey) and key.scope is scope:
        types = [known for name, known in scope.types.items() if scope.is_fed(name)]
        shapes = [known.tensor_type.shape for known in types]
        dims = [d for shape in shapes for d in shape.dim if d.dim_param == key.name]
    unknown = [dim for dim in dims if not dim.HasField("dim_value")]
    for dim in unknown:
        dim.dim_value = number
    return bool(unknown)
