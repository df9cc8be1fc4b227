"""Refuse models in which a window is larger than its input, so that a dim would be negative.

No runtime runs them, and onnxruntime ends the process at such a dim in front of a Slice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy

import onnx

from onnx_spatial.errors import Code, ModelFileError
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.inference import shape_inference

_WINDOWS = op_traits.having(op_traits.Trait.WINDOWS) - {"ConvTranspose", "DeformConv"}
_SIZED = _WINDOWS | {"Pad"}


def check_sizes(
    model: traversal.Index,
    inferred: onnx.ModelProto,
    infer: Callable[[onnx.ModelProto], onnx.ModelProto],
) -> None:
    """Check that no convolution, pool or Pad has a negative size of output.

    Args:
        model: the model; what it declares of values that it computes is not trusted.
        inferred: what `infer` returns for it.
        infer: infers the types of a model.

    Raises:
        ModelFileError: a node of the main graph would have one, or a node of a subgraph in front of
            an operator that ends the process there.
    """
    if not model.having(*_SIZED) or next(_describe_illegal(inferred), None) is None:
        return
    bare = deepcopy(model.model)
    for _, graph in traversal.graphs(bare):
        del graph.value_info[:]
    for reason in _describe_illegal(infer(bare)):
        raise ModelFileError(reason, code=Code.INVALID_GRAPH)


def _describe_illegal(model: onnx.ModelProto) -> Iterator[str]:
    """Yield a message for each node with a negative size of output, outer graphs first."""
    types: dict[str, onnx.TypeProto] = {}
    weights: dict[str, list[int]] = {}
    for place, graph in traversal.graphs(model):
        if not isinstance(graph, onnx.GraphProto):
            return  # of functions, only what is inlined has sizes
        weights |= {t.name: list(t.dims) for t in graph.initializer}
        nodes = [n for n in graph.node if n.op_type in _SIZED and n.output]
        nodes = [n for n in nodes if op_traits.is_standard(n)]
        if not nodes:
            continue
        types |= shape_inference.declared_types(graph)
        for node in nodes:
            sizes = _declared_sizes(types.get(node.output[0]))
            if min(sizes, default=0) < 0 and _is_computed(place, graph, node.output[0]):
                reason = _describe_size(node, types, weights)
                yield f"{node.op_type} {traversal.label(node)!r} in {place} {reason}"


def _declared_sizes(known: onnx.TypeProto | None) -> list[int]:
    return [d.dim_value for d in known.tensor_type.shape.dim] if known is not None else []


def _is_computed(place: traversal.Place, graph: onnx.GraphProto, value: str) -> bool:
    """Tell whether every run computes a value, or onnxruntime ends the process behind it."""
    reached = traversal.Flow(graph).downstream({value})
    if not place.steps:
        return not reached.isdisjoint(traversal.value_names(graph.output))
    crashes = ("GatherND", "Slice", shape_inference.PROBE)
    return any(n.op_type in crashes and not reached.isdisjoint(n.input) for n in graph.node)


def _describe_size(
    node: onnx.NodeProto, types: dict[str, onnx.TypeProto], weights: dict[str, list[int]]
) -> str:
    """Say why the size of a node's output is negative."""
    input_dims = shape_inference.dims(types.get(node.input[0]))
    window = _window_sizes(node, types, weights)
    advice = "; export the model for larger inputs"
    if window and input_dims and len(input_dims) == len(window) + 2:
        return (
            f"cannot run: its window of {_joined_by_x(window)} is larger than its input of "
            f"{_joined_by_x(input_dims[2:])}{_describe_pads(node)}{advice}"
        )
    output_shape = _joined_by_x(_declared_sizes(types[node.output[0]]))
    return f"cannot run: its output would have the shape {output_shape}{advice}"


def _window_sizes(
    node: onnx.NodeProto, types: dict[str, onnx.TypeProto], weights: dict[str, list[int]]
) -> list[int]:
    """Return the sizes of a node's window with its dilations; [] if they are not known."""
    ints = {a.name: list(a.ints) for a in node.attribute}
    kernel = ints.get("kernel_shape", [])
    if not kernel and (weight := op_traits.of(node).weight) is not None:
        name = node.input[weight]
        kernel = (weights.get(name) or _declared_sizes(types.get(name)))[2:]
    dilations = ints.get("dilations", [1] * len(kernel))
    return [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=False)]


def _describe_pads(node: onnx.NodeProto) -> str:
    pads = next((list(a.ints) for a in node.attribute if a.name == "pads"), [])
    return f" with pads {pads}" if any(pads) else ""


def _joined_by_x(sizes: Sequence[object]) -> str:
    return "x".join("?" if size is None else str(size) for size in sizes)
