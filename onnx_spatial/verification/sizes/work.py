"""Estimate the work of a run from the shapes of its values, before it is run.

By work and not by time, so that the same sizes are run on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import onnx

from onnx_spatial import analysis
from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.verification.run.data import GraphInput, named_dims

_Shapes = Mapping[str, Sequence[int]]


def multiply_adds(
    model: onnx.ModelProto,
    inputs: Sequence[GraphInput],
    infos: Sequence[OperatorInfo],
    sizes: Mapping[str, int],
) -> int:
    """Return about how many products a run sums up, and elements it writes.

    Bodies of loops count once, values of unknown shape like the largest known one.

    Args:
        model: the original.
        inputs: its inputs, with symbols for open dims.
        infos: its spatial operators.
        sizes: of these symbols.
    """
    sized = named_dims(model, inputs)
    for value in sized.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
    known = analysis.find(sized, {info.node.domain for info in infos if info.known_domain})
    inferred = analysis.inferred(sized, known)
    shapes = {t.name: tuple(t.dims) for t in traversal.tensors(model) if t.name}
    shapes.update(_known_shapes(inferred))
    largest = max(
        (math.prod(shapes[v.name]) for v in inferred.graph.input if v.name in shapes), default=1
    )
    work = 0
    for _, _, node in traversal.nodes(inferred):
        output = shapes.get(node.output[0]) if node.output else None
        elements = largest if output is None else math.prod(output)
        largest = max(largest, elements)
        work += elements * _terms(node, shapes)
    return work


def _known_shapes(model: onnx.ModelProto) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the values of all graphs with known sizes."""
    for _, graph in traversal.graphs(model):
        if isinstance(graph, onnx.GraphProto):
            for value in (*graph.value_info, *graph.input, *graph.output):
                dims = shape_inference.dims(value.type)
                if dims is not None and all(isinstance(d, int) for d in dims):
                    yield value.name, tuple(d for d in dims if isinstance(d, int))


def _terms(node: onnx.NodeProto, shapes: _Shapes) -> int:
    """Return about how many terms make up an element of a node's output."""
    traits = op_traits.of(node)
    if traits.weight is not None:
        weight = shapes.get((*node.input, *[""] * 4)[traits.weight], ())
        return math.prod(weight[1:])
    if Trait.WINDOWS in traits.traits:
        return math.prod(next((a.ints for a in node.attribute if a.name == "kernel_shape"), ()))
    if Trait.PRODUCTS in traits.traits:
        # The summed axis is the last one of the first operand; Gemm and Einsum may have it elsewhere.
        return max((max(shapes.get(n, ())[-2:], default=1) for n in node.input[:2]), default=1)
    return 1
