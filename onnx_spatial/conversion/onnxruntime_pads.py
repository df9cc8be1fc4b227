"""Write pads so that onnxruntime computes what ONNX means: of convolutions, and in front of pools.

    x -> Conv (SAME, dilations 2) -> y              x -> Conv (pads 2, dilations 2) -> y
    x -> Conv (SAME, dilations 2, strides 2) -> y   x -> Pad -> Conv (dilations 2, strides 2) -> y

It refuses auto_pad SAME with dilations, which exporters write beside the spatial operators. ONNX pads
each axis by max(0, (ceil(in / stride) - 1) * stride + (kernel - 1) * dilation + 1 - in): half of it on
each side, an odd one at the end (SAME_UPPER) or at the beginning (SAME_LOWER). With stride 1 the size of
the input cancels out; pads that depend on run-time sizes are computed in front of a Pad.

    x -> Pad -> Transpose -> MaxPool -> y        x -> Pad -> Transpose -> Reshape -> MaxPool -> y

Up to version 1.31 it adds the amounts of a Pad of zeros to the pads of a MaxPool or AveragePool behind
it, Transposes between ignored. A MaxPool pads with minus infinity, an AveragePool may leave its pads out
of the mean, and pads as large as the kernel are refused. A Reshape to the same sizes between the two
copies nothing and is not merged. A Pad in front of a pool in the original is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import onnx
import onnx_ir as ir

from onnx_spatial import analysis
from onnx_spatial.analysis import read_attributes
from onnx_spatial.conversion import report
from onnx_spatial.conversion.report import EditResult
from onnx_spatial.errors import Code, OperatorError, SpatialError
from onnx_spatial.lowering import Emitter
from onnx_spatial.lowering.emitter import Size
from onnx_spatial.lowering.nodes import SINCE
from onnx_spatial.model import op_traits
from onnx_spatial.model.graph.new_nodes import Draft, GraphEdit, copy_node
from onnx_spatial.model.graph.patch_proto import Patch
from onnx_spatial.model.inference import constant_folding
from onnx_spatial.model.traversal import Index, Place
from onnx_spatial.operators import Dim
from onnx_spatial.operators.operator import INT64_MAX, show
from onnx_spatial.operators.spellings import Conflict, NodeFacts
from onnx_spatial.operators.spellings.call import AttributeValue

#: Reported in the place of a lowering.
NAME = "explicit-pads"

_SAME = frozenset({"SAME_UPPER", "SAME_LOWER"})

#: Positions of the weight, and of the zero point of the data, among the inputs.
_INPUTS: Mapping[tuple[str, str], tuple[int, int | None]] = {
    ("", "Conv"): (1, None),
    ("", "ConvInteger"): (1, 2),
    ("", "QLinearConv"): (3, 2),
    ("com.microsoft", "FusedConv"): (1, None),
}


def _inputs_of(node: onnx.NodeProto) -> tuple[int, int | None] | None:
    """Return the entry of `_INPUTS` for a node; None for other operators."""
    return _INPUTS.get((op_traits.canonical_domain(node.domain), node.op_type))


# Find them


def find(model: onnx.ModelProto | Index, folder: Path | None = None) -> dict[int, NodeFacts]:
    """Find the convolutions that onnxruntime refuses, by their position in `traversal.nodes`.

    Returns what is known of each; in a function, what all calls agree on.
    """
    index = Index.of(model)
    local = {(f.domain, f.name) for f in index.model.functions}
    suspects = {
        position
        for kind, positions in index.kinds.items()
        if kind not in local and (op_traits.canonical_domain(kind[0]), kind[1]) in _INPUTS
        for position in positions
        if {"auto_pad", "dilations"} <= {a.name for a in index.nodes[position].attribute}
    }
    if not suspects:
        return {}
    known = analysis.Analysis(index, (), folder).node_facts(suspects)
    return {index: facts for index, facts in known.items() if _is_refused(facts.attributes)}


def _is_refused(attributes: Mapping[str, AttributeValue]) -> bool:
    """Tell whether there are auto_pad SAME and dilations, or such on which callers do not agree."""
    dilations = attributes["dilations"]
    dilated = isinstance(dilations, tuple) and any(d != 1 for d in dilations)
    return attributes["auto_pad"] in _SAME and (dilated or isinstance(dilations, Conflict))


# Give them pads


def add_explicit_pads(
    model: onnx.ModelProto | Index, opset: int, folder: Path | None = None
) -> EditResult:
    """Give explicit pads to the convolutions that onnxruntime refuses; `model` stays as it is.

    `opset` is the version of the default domain where it is not imported, `folder` holds external data.
    """
    result = EditResult()
    refused = find(model, folder)
    if not refused:
        return result
    index = Index.of(model)
    patch = Patch(index, refused)
    for position, known in refused.items():
        place, message = index.place(position), index.nodes[position]
        version = analysis.opset_of(index.model, place) or opset
        info = analysis.OperatorInfo(position, place, message, version, True, known)
        try:
            draft = _draft_pads(message, patch.nodes[position], known, version)
        except SpatialError as error:
            operator = report.left(info, done=str(error), code=error.code)
        else:
            new_nodes = patch.edit(GraphEdit([draft]), place)[draft.node]
            info.output_shape = _output_shape(message, known)
            operator = report.converted(info, "lower", NAME, len(new_nodes))
        result.operator_at[position] = replace(operator, dialect=report.AUTO_PAD)
    if any(operator.converted for operator in result.operators):
        result.model = patch.apply()
    return result


def _draft_behind(emit: Emitter, message: onnx.NodeProto, node: ir.Node) -> Draft:
    """Draft a node, as `message` says, behind the nodes of `emit`, which compute its data."""
    data = emit.nodes[-1].outputs[0] if emit.nodes else node.inputs[0]
    copy = copy_node(node, [data, *node.inputs[1:]], message)
    results = dict(zip(node.outputs, copy.outputs, strict=True))
    return Draft(node, [*emit.nodes, copy], emit.constants, results, successor=copy)


@dataclass(frozen=True)
class _Axis:
    """One spatial axis of a convolution; sizes are None where they are unknown."""

    stride: int
    dilation: int
    kernel: Dim
    size: Dim

    def pads(self, emit: Emitter, size: Size, kernel: Size, *, lower: bool) -> tuple[Size, Size]:
        """Compute the pads (begin, end); with `lower` an odd zero goes to the beginning."""
        extent = emit.add(emit.mul(emit.sub(kernel, 1), self.dilation), 1)
        if self.stride == 1:
            total = emit.sub(extent, 1)
        else:
            windows = emit.div(emit.add(size, self.stride - 1), self.stride)
            covered = emit.add(emit.mul(emit.sub(windows, 1), self.stride), extent)
            total = emit.max(emit.sub(covered, size), 0)
        half = emit.div(total, 2)
        rest = emit.sub(total, half)
        return (rest, half) if lower else (half, rest)


def _read_axes(known: NodeFacts, weight: int) -> list[_Axis]:
    """Read the spatial axes of a convolution whose weight is input number `weight`.

    Raises:
        OperatorError: the callers of its function contradict each other, or it breaks a rule.
    """
    if "pads" in known.attributes:
        raise OperatorError(
            "has both auto_pad and pads, which contradict each other", code=Code.ATTRIBUTE
        )
    dilations = known.integers("dilations")
    axes = len(dilations)
    strides = known.integers("strides", axes) if "strides" in known.attributes else (1,) * axes
    if min(*dilations, *strides) < 1:
        raise OperatorError("strides and dilations must be at least 1", code=Code.OUT_OF_RANGE)
    sizes, kernel = (_spatial_dims(known, index, axes) for index in (0, weight))
    if "kernel_shape" in known.attributes:
        kernel = known.integers("kernel_shape", axes)
    if any(isinstance(size, int) and size < 1 for size in kernel):
        raise OperatorError(f"its kernel {show(kernel)} is empty")
    return list(map(_Axis, strides, dilations, kernel, sizes))


def _spatial_dims(known: NodeFacts, index: int, axes: int) -> tuple[Dim, ...]:
    """Return the spatial dims of an input, None where unknown.

    Raises:
        OperatorError: it is missing, or of another rank.
    """
    facts = known.inputs[index] if index < len(known.inputs) else None
    if facts is None:
        raise OperatorError(f"input {index} is missing", code=Code.PARAMETER)
    if facts.shape is not None and len(facts.shape) != axes + 2:
        raise OperatorError(
            f"input {index} must have rank {axes + 2}, not {show(facts.shape)}", code=Code.RANK
        )
    return tuple(
        d if isinstance(d, int) else None for d in (facts.shape or (None,) * (axes + 2))[2:]
    )


def _draft_pads(message: onnx.NodeProto, node: ir.Node, known: NodeFacts, opset: int) -> Draft:
    """Draft a convolution with its pads, and the Pad in front of it where one is needed.

    Raises:
        OperatorError: its pads cannot be computed in this model.
    """
    positions = _inputs_of(message)
    assert positions is not None
    weight, zero = positions
    axes = _read_axes(known, weight)
    lower = known.string("auto_pad") == "SAME_LOWER"
    emit = Emitter(opset)
    data, filters = node.inputs[0], node.inputs[weight]
    assert data is not None and filters is not None
    fixed = [(0, 0) for _ in axes]
    computed: list[tuple[Size, Size]] = [(0, 0) for _ in axes]
    for number, axis in enumerate(axes):
        size: Size = 1  # cancels out if the stride is 1
        if axis.stride > 1:
            size = axis.size if isinstance(axis.size, int) else emit.length(data, 2 + number)
        kernel = axis.kernel if isinstance(axis.kernel, int) else emit.length(filters, 2 + number)
        begin, end = axis.pads(emit, size, kernel, lower=lower)
        if isinstance(begin, int) and isinstance(end, int):
            fixed[number] = begin, end
        else:
            computed[number] = begin, end
    if any(pair != (0, 0) for pair in computed):
        if opset < SINCE["inputs of Pad"]:
            raise OperatorError(
                "its pads depend on sizes that only the run knows, and a Pad that computes them "
                f"needs opset {SINCE['inputs of Pad']}, not {opset} (fix them with --static, or export "
                "the model again with a newer opset)",
                code=Code.OPSET_TOO_OLD,
            )
        amounts = [pair[side] for side in (0, 1) for pair in ((0, 0), (0, 0), *computed)]
        # Quantised data is padded with its zero point.
        fill = [v for v in node.inputs[zero : zero + 1] if v is not None] if zero else []
        emit.op("Pad", data, emit.vector(amounts, "pads"), *fill)
    pads = [pair[side] for side in (0, 1) for pair in fixed]
    if max(pads) > INT64_MAX:
        raise OperatorError("its pads overflow 64-bit integers", code=Code.OVERFLOW)
    padded = onnx.NodeProto()
    padded.CopyFrom(message)
    for attribute in padded.attribute:
        if attribute.name == "auto_pad":
            attribute.CopyFrom(onnx.helper.make_attribute("pads", pads))
    return _draft_behind(emit, padded, node)


def _output_shape(node: onnx.NodeProto, known: NodeFacts) -> tuple[Dim, ...] | None:
    """Return the shape of the output, dims None where unknown; None if the rank is unknown."""
    weight, _ = _inputs_of(node) or (1, None)
    data, filters = known.inputs[0], known.inputs[weight]
    if data is None or data.shape is None or len(data.shape) < 3:
        return None
    strides = known.attributes.get("strides")
    steps = strides if isinstance(strides, tuple) else (1,) * len(data.shape)
    channels = filters.shape[0] if filters is not None and filters.shape else None
    windows = (
        size if step == 1 else int(-(-size // step)) if isinstance(size, int) else None
        for size, step in zip(data.shape[2:], steps, strict=False)
    )
    return (data.shape[0], channels, *windows)


_POOLS = frozenset({"AveragePool", "MaxPool"})
#: Operators across which onnxruntime moves a Pad, or merges it.
_PASSED = frozenset({"Cast", "Identity", "Transpose"})


def insert_barriers(index: Index, original: Index, opset: int) -> Index:
    """Insert a Reshape in front of each pool that a Pad feeds, but not in the original, in a copy.

    `opset` is the version of the default domain where it is not imported.
    """
    fed = _padded_pools(index)
    if not fed:
        return index
    before = {(place, node.output[0]) for place, node in _padded_pools(original).values()}
    newly_fed = {
        position: (place, node)
        for position, (place, node) in fed.items()
        if (place, node.output[0]) not in before
    }
    if not newly_fed:
        return index
    patch = Patch(index, newly_fed)
    for position, (place, message) in newly_fed.items():
        emit, node = Emitter(opset), patch.nodes[position]
        kernel = read_attributes(message).get("kernel_shape")
        if isinstance(kernel, tuple):
            sizes = emit.ints([0] * (2 + len(kernel)), "same_sizes")
        else:  # an attribute of a function, which each call gives
            sizes = emit.op("Shape", node.inputs[0])
        emit.op("Reshape", node.inputs[0], sizes)
        patch.edit(GraphEdit([_draft_behind(emit, message, node)]), place)
    return Index(patch.apply())


def _padded_pools(index: Index) -> dict[int, tuple[Place, onnx.NodeProto]]:
    """Map positions in `traversal.nodes` to the pools that a Pad of zeros feeds, with their places."""
    pools = index.having(*_POOLS)
    if not pools or not index.having("Pad"):
        return {}
    functions = {(f.domain, f.name, f.overload): f for f in index.model.functions}
    scopes = [scope for scope, _ in constant_folding.scopes(index.model)]
    scope_at = {place: scope for (place, _), scope in zip(index.graphs, scopes, strict=True)}
    padded_pools = {}
    for position in pools:
        place, node = index.place(position), index.nodes[position]
        if len(node.output) == 1 and _is_padded(scope_at, functions, place, node.input[0]):
            padded_pools[position] = place, node
    return padded_pools


def _is_padded(
    scope_at: Mapping[Place, constant_folding.ConstantScope],
    functions: Mapping[tuple[str, str, str], onnx.FunctionProto],
    place: Place,
    name: str,
) -> bool:
    """Return whether a Pad of zeros gives a value; calls of functions count as their bodies."""
    while True:
        scope = scope_at[place]
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
            return not (read_attributes(node).get("value", 0.0) if fill is None else fill.any())
        elif node.op_type in _PASSED and node.input:
            name = node.input[0]
        else:
            return False
