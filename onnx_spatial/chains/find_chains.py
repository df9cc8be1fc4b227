"""List the chains of a model that are operators, and put named operators in their place, in memory.

    x -> Pad -> Transpose -> SpaceToDepth -> Transpose -> y
    x -> SpaceToBatchND(block_shape, paddings) -> Transpose -> y

    x -> [Transpose] -> [Pad] -> ExtractPatches -> [Reshape] -> [Transpose] -> [Reshape] -> y

For each path of data (`paths`) the parts are sought whose map is that of SpaceToBatch or BatchToSpace
(`blocks`), or that of patches (`patches`). A chain is listed only if its map is that of the operator for
all sizes that the original runs with.

The block is an attribute. Pads and crops are an attribute too where they are known, else nodes compute
them from the dims of values. The nodes around patches arrange their digits as the chain does. The nodes
of a chain go, unless others read them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain as flatten
from pathlib import Path as FilePath
from typing import Any

import onnx
import onnx_ir as ir

from onnx_spatial import analysis
from onnx_spatial.chains.blocks import Blocks, find_blocks, paths_of_blocks
from onnx_spatial.chains.chain_map import NodeChain, ValueDim, compute_size, graph_scopes
from onnx_spatial.chains.movements import Movement
from onnx_spatial.chains.one_hot import find_one_hot
from onnx_spatial.chains.patches import Patches, find_patches, paths_of_patches
from onnx_spatial.chains.paths import MOVING, DataGraph
from onnx_spatial.chains.pricing import TYPICAL, estimate_dims
from onnx_spatial.chains.reading import MODEL_SECONDS, limit_of, parts_in_order
from onnx_spatial.lowering.emitter import AxisPart, Emitter, Size, Tensor, pad
from onnx_spatial.maps.facts import Budget
from onnx_spatial.model import traversal
from onnx_spatial.model.graph import imports, new_nodes
from onnx_spatial.model.graph.new_nodes import Draft, GraphEdit
from onnx_spatial.model.graph.patch_proto import Patch
from onnx_spatial.model.graph.remove_unused import remove_unused
from onnx_spatial.operators import BatchToSpace, Dim, ExtractPatches, SpaceToBatch
from onnx_spatial.operators.spellings import chain_ops, python_ops
from onnx_spatial.operators.spellings.chain_ops import DOMAIN

#: Steps (`Budget`) for a path, and for a model.
_PATH_STEPS, _MODEL_STEPS = 200_000, 1_000_000

#: Operator type of patches, by the number of spatial axes; converters have none for one axis.
_PATCHES = {2: "ExtractImagePatches", 3: "ExtractVolumePatches"}


@dataclass(frozen=True)
class Chain(NodeChain):
    """A chain of standard nodes that is a spatial operator.

    Attributes:
        blocks: the operator; None if it is `patches`.
        patches: the operator, if the chain is patches.
        one_hot: whether a one-hot Conv moves the data.
        cost: estimated microseconds of the nodes in a run, if the operator alone may be faster.
    """

    blocks: Blocks | None = None
    patches: Patches | None = None
    one_hot: bool = False
    cost: float = 0.0

    @property
    def op_type(self) -> str:
        """The operator type that the chain is."""
        if self.blocks is not None:
            return "SpaceToBatchND" if self.blocks.kind is SpaceToBatch else "BatchToSpaceND"
        assert self.patches is not None
        return _PATCHES.get(self.patches.axes, self.patches.operator.name)


def list_chains(
    proto: onnx.ModelProto,
    operators: analysis.Analysis | None = None,
    folder: FilePath | None = None,
    notes: list[str] | None = None,
) -> list[Chain]:
    """Return the chains of a model, in the order of its graphs.

    Args:
        proto: the model; it is not changed.
        operators: its named spatial operators; None: it has none.
        folder: where external data lies.
        notes: gets a line of text for each search that was stopped before its end.
    """
    local = {(f.domain, f.name) for f in proto.functions}
    copying = find_one_hot(proto, folder)
    graphs = []
    for place, graph in traversal.graphs(proto):
        data = DataGraph(graph, local, copying.get(place, ()))
        graphs.append((place, data, paths_of_blocks(data), paths_of_patches(data)))
    if not any(of_blocks or of_patches for *_, of_blocks, of_patches in graphs):
        return []
    scopes = graph_scopes(proto, operators, folder)
    chains: list[Chain] = []
    budget = Budget(_MODEL_STEPS, MODEL_SECONDS)
    for (place, data, of_blocks, of_patches), scope in zip(graphs, scopes, strict=True):
        known = replace(scope, one_hot=copying.get(place, {}))
        of_graph: dict[str, Chain] = {}
        for path in of_blocks:
            if budget.is_exhausted:
                break
            share = Budget(_PATH_STEPS, within=budget)
            for part, blocks in find_blocks(known, path, share):
                of_graph.setdefault(part.values[-1], Chain.of(known, part, blocks=blocks))
            if share.is_exhausted and notes is not None:
                steps = _MODEL_STEPS if budget.is_exhausted else _PATH_STEPS
                limit = limit_of(budget, steps)
                between = f"between {path.values[0]!r} and {path.values[-1]!r} in {place}"
                notes.append(f"the search for chains stopped after {limit}, {between}")
        patches = [
            Chain.of(known, part, patches=found, one_hot=one_hot, cost=cost)
            for part, found, one_hot, cost in find_patches(known, data, of_patches, budget)
        ]
        chains += _without_overlaps(list(of_graph.values()), patches)
    return chains


def _without_overlaps(blocks: list[Chain], patches: list[Chain]) -> list[Chain]:
    """Return the chains of a graph that can be rewritten together.

    Patches are more than the block operators that a part of their nodes are, formally, on one image.
    Patches between two block operators go: these and the Conv are a dilated Conv. So do windows side by
    side whose places are in the batch: that is a SpaceToBatch.
    """
    nodes_of = {id(chain): {n.output[0] for n in chain.nodes} for chain in (*blocks, *patches)}
    kept: list[Chain] = []
    for chain in patches:
        own = nodes_of[id(chain)]
        inside = any(nodes_of[id(each)] <= own for each in blocks)
        if inside and chain.patches is not None and chain.patches.fills_batches:
            continue
        others = [each for each in blocks if not nodes_of[id(each)] <= own]
        starts, ends = ({getattr(o, name) for o in others} for name in ("output", "source"))
        between = chain.source in starts and chain.output in ends
        if not between and all(nodes_of[id(each)].isdisjoint(own) for each in others):
            kept.append(chain)
            blocks = others
    return [*blocks, *kept]


# Operators in the place of chains

#: The name of the pads or crops of each block operator.
_AMOUNTS = {SpaceToBatch: "paddings", BatchToSpace: "crops"}


def with_operators(
    proto: onnx.ModelProto, chains: Sequence[Chain | Movement]
) -> tuple[onnx.ModelProto, list[str]]:
    """Return a copy of a model with a named operator in the place of each chain; `proto` stays as it is.

    Also return the name of the output of each operator; "" for a chain that vanishes.
    """
    index = traversal.Index(proto)
    patch = Patch(index)
    graphs = _Graphs(index, patch.nodes)
    unread: dict[traversal.Place, set[str]] = {}
    operators: list[ir.Node | None] = []
    for each in chains:
        last = graphs.nodes[each.place, each.output]
        read = unread.setdefault(each.place, set())
        read.update(v.name for v in last.inputs if v is not None and v.name)
        make = _draft_movement if isinstance(each, Movement) else _draft_chain
        draft, operator = make(each, last, graphs)  # type: ignore[arg-type]
        operators.append(operator)
        patch.edit(GraphEdit([draft]), each.place)
        graphs.replaced.update(draft.results)
    result = patch.apply()
    remove_unused(traversal.Index(result), unread)
    _restore_names(result, graphs.copies)
    imports.import_where_used(result, DOMAIN)
    return result, [(node and node.outputs[0].name) or "" for node in operators]


def _restore_names(model: onnx.ModelProto, copies: Sequence[tuple[ir.Node, str]]) -> None:
    """Give copies the names of the functions that they are copies of, where these are gone."""
    names = {copy.name: name for copy, name in copies}
    nodes = [node for _, _, node in traversal.nodes(model)]
    taken = {node.name for node in nodes}
    for node in nodes:
        name = names.get(node.name)
        if name and name not in taken:
            node.name = name
            taken.add(name)


class _Graphs:
    """The nodes and values of a model by graph and name, and the opset of each graph."""

    def __init__(self, index: traversal.Index, nodes: Mapping[int, ir.Node]) -> None:
        self.nodes: dict[tuple[traversal.Place, str], ir.Node] = {}
        self._values: dict[tuple[traversal.Place, str], ir.Value] = {}
        #: Copies of functions inside chains, and the names of these.
        self.copies: list[tuple[ir.Node, str]] = []
        #: The values that took the place of others since.
        self.replaced: dict[ir.Value, ir.Value] = {}
        self._model = index.model
        for position, node in nodes.items():
            place = index.place(position)
            self.nodes.update({(place, v.name): node for v in node.outputs if v.name})
            for value in (*node.inputs, *node.outputs):
                if value is not None and value.name:
                    self._values[place, value.name] = value

    def opset(self, place: traversal.Place) -> int:
        """Return the version of the default domain in a graph."""
        return analysis.opset_of(self._model, place) or 1

    def value(self, place: traversal.Place, name: str) -> ir.Value:
        """Return a value that is visible in a graph."""
        while (place, name) not in self._values and place.steps:
            place = place.outer
        value = self._values[place, name]
        return self.replaced.get(value, value)


def _draft_movement(
    chain: Movement, last: ir.Node, graphs: _Graphs
) -> tuple[Draft, ir.Node | None]:
    """Draft the Rearrange, and behind it the functions of the chain, in the place of its last node."""
    emit = Emitter(graphs.opset(chain.place))
    assert chain.operator is not None
    result, operator = graphs.value(chain.place, chain.source), None
    if not chain.vanishes:
        if chain.selections:
            result = _take_parts(emit, result, chain)
        fields = asdict(chain.operator)
        attributes = {field: ir.AttrInt64s(field, values) for field, values in fields.items()}
        operator = ir.node(chain.operator.name, [result], attributes, domain=DOMAIN)
        emit.nodes.append(operator)
        result = operator.outputs[0]
    moved = {chain.source: result}
    for message in chain.nodes:
        if message.op_type in MOVING:
            result = moved[message.input[0]]
        else:
            node = graphs.nodes[chain.place, message.output[0]]
            inputs = [
                moved.get(v.name or "", graphs.replaced.get(v, v)) if v is not None else None
                for v in node.inputs
            ]
            copy = new_nodes.copy_node(node, inputs, message)
            graphs.copies.append((copy, node.name or ""))
            emit.nodes.append(copy)
            result = copy.outputs[0]
        moved |= dict.fromkeys(filter(None, message.output), result)
    draft = Draft(last, emit.nodes, emit.constants, {last.outputs[0]: result}, successor=operator)
    return draft, operator


def _take_parts(emit: Emitter, value: ir.Value, chain: Movement) -> ir.Value:
    """Emit a Slice that takes the parts of the data that a chain reads."""
    x = emit.tensor(value, estimate_dims(chain.input_shape or (), TYPICAL))
    return emit.slice(x, {s.axis: AxisPart(s.start, s.size) for s in chain.selections}).value


def _draft_chain(chain: Chain, last: ir.Node, graphs: _Graphs) -> tuple[Draft, ir.Node]:
    """Draft the operator and the nodes around it in the place of the last node of a chain."""
    emit, source = Emitter(graphs.opset(chain.place)), graphs.value(chain.place, chain.source)
    if chain.patches is not None and chain.input_shape is not None:
        shape, known_type = chain.input_shape, chain.element_type
        operator, result = write_patches(emit, chain.patches, source, shape, known_type)
    else:
        operator, result = _emit_blocks(emit, chain, source, graphs)
    draft = Draft(last, emit.nodes, emit.constants, {last.outputs[0]: result}, successor=operator)
    return draft, operator


def _emit_blocks(
    emit: Emitter, chain: Chain, source: ir.Value, graphs: _Graphs
) -> tuple[ir.Node, ir.Value]:
    """Emit a block operator between its Transposes; return it and the result."""
    blocks = chain.blocks
    assert blocks is not None
    table = _AMOUNTS[blocks.kind]
    pads = list(flatten.from_iterable(zip(blocks.begins, blocks.ends, strict=True)))
    attributes: dict[str, Sequence[int]] = {"block_shape": list(blocks.block)}
    inputs = [_emit_transpose(emit, source, blocks.before)]
    known = [amount.constant for amount in pads]
    if all(amount is not None for amount in known):
        attributes[table] = [amount for amount in known if amount is not None]
    else:

        def dim_size(dim: ValueDim) -> Size:
            return emit.length(graphs.value(chain.place, dim.value), dim.axis)

        entries: list[Size] = [compute_size(amount, emit, dim_size) for amount in pads]
        inputs.append(emit.reshape_to(emit.vector(entries, table), [-1, 2]))
    operator = ir.node(chain.op_type, inputs, attributes, domain=DOMAIN)
    emit.nodes.append(operator)
    return operator, _emit_transpose(emit, operator.outputs[0], blocks.behind)


def _emit_transpose(emit: Emitter, value: ir.Value, perm: Sequence[int]) -> ir.Value:
    return value if list(perm) == sorted(perm) else emit.op("Transpose", value, perm=list(perm))


def write_patches(
    emit: Emitter, patches: Patches, source: ir.Value, shape: Sequence[Dim], element_type: int
) -> tuple[ir.Node, ir.Value]:
    """Emit the operator and the nodes around it; return the operator and the result.

    Args:
        emit: collects the nodes.
        patches: the patches.
        source: their data.
        shape: of the data, as far as it is known.
        element_type: ONNX element type of the data; 0 if it is unknown.
    """
    op, value = patches.operator, _emit_transpose(emit, source, patches.before)
    known: list[Dim] = [shape[axis] for axis in patches.before]
    pads = dict(zip(op.spatial_axes, patches.pads, strict=True))
    if any(map(any, patches.pads)):
        types = frozenset({element_type}) if element_type else frozenset[int]()
        x = emit.tensor(value, _dims_of(emit, value, known))
        value = pad(emit, x, [pads.get(axis, (0, 0)) for axis in range(op.rank)], types).value
        known = [
            dim + sum(pads.get(axis, (0, 0))) if isinstance(dim, int) else None
            for axis, dim in enumerate(known)
        ]
    op_type, attributes = _spell_operator(op)
    operator = ir.node(op_type, [value], attributes, domain=chain_ops.DOMAIN)
    emit.nodes.append(operator)
    return operator, _arrange_digits(emit, patches, operator.outputs[0], known)


def _spell_operator(op: ExtractPatches) -> tuple[str, dict[str, Any]]:
    """Return operator type and attributes: those of TensorFlow, or of `chain_ops` for other patches."""
    padding = {"valid": "VALID", "same_upper": "SAME"}.get(op.auto_pad)
    usual = op.layout == "channels_last" and op.major == "place" and len(op.kernel) == 2
    if not usual or padding is None or op.clamp_negative:
        return op.name, {python_ops.PARAMETERS: python_ops.as_json(op)}
    rows = {"ksizes": op.kernel, "strides": op.strides, "rates": op.rates}
    lists = {name: [1, *values, 1] for name, values in rows.items()}
    return "ExtractImagePatches", {**lists, "padding": padding}


def _dims_of(emit: Emitter, value: ir.Value, known: Sequence[Dim]) -> list[Size]:
    """Return the dims of a value; nodes read those that are not known."""
    return [
        dim if isinstance(dim, int) else emit.length(value, axis) for axis, dim in enumerate(known)
    ]


def _arrange_digits(
    emit: Emitter, patches: Patches, value: ir.Value, image: Sequence[Dim]
) -> ir.Value:
    """Emit the nodes that bring the digits of the operator's output into the order of the result."""
    op, order = patches.operator, patches.order
    axes = [tuple(d for d in axis if d in order) for axis in patches.digits]
    parts = parts_in_order(axes, order)
    if parts == list(patches.groups) and len(parts) == len(axes):
        return _emit_transpose(emit, value, [axes.index(part) for part in parts])
    dims = _dims_of(emit, value, op.output_shape(image))
    size: dict[int, Size] = {
        axis[0]: d for axis, d in zip(axes, dims, strict=True) if len(axis) == 1
    }
    size |= {1 + patches.axes + i: k for i, k in enumerate(op.kernel)}
    channel = image[op.channel_axis]
    size[2 * patches.axes + 1] = (
        channel
        if isinstance(channel, int)
        else emit.div(dims[op.channel_axis], math.prod(op.kernel))
    )
    x = emit.tensor(value, dims)
    split = [part for axis in axes for part in _split_axis(axis, parts)]
    x = _emit_reshape(emit, x, [emit.product([size[d] for d in part]) for part in split])
    x = emit.transpose(x, [split.index(part) for part in parts])
    groups = [emit.product([size[d] for d in group]) for group in patches.groups]
    return _emit_reshape(emit, x, groups).value


def _emit_reshape(emit: Emitter, x: Tensor, dims: Sequence[Size]) -> Tensor:
    """Reshape to dims of 1 or more; with -1 where one of them is new and unknown."""
    kept = [axis < x.rank and dim == x.dims[axis] for axis, dim in enumerate(dims)]
    entries = [
        dim if isinstance(dim, int) else 0 if known else -1
        for dim, known in zip(dims, kept, strict=True)
    ]
    if entries.count(-1) != 1:
        return emit.reshape(x, dims)
    return emit.tensor(emit.reshape_to(x.value, entries), dims)


def _split_axis(axis: tuple[int, ...], parts: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return the parts that an axis consists of, in its order."""
    return sorted((part for part in parts if part[0] in axis), key=lambda part: axis.index(part[0]))
