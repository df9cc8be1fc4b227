"""Put named spatial operators in the place of chains of standard nodes, in memory.

    x -> Pad -> Transpose -> SpaceToDepth -> Transpose -> y
    x -> SpaceToBatchND(block_shape, paddings) -> Transpose -> y

The block is an attribute. Pads and crops are an attribute too where they are known, else nodes compute
them from the dims of values. The nodes of a chain go, unless others read them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import chain as flatten

import onnx
import onnx_ir as ir

from onnx_spatial.chains import named_patches
from onnx_spatial.chains.blocks import Blocks
from onnx_spatial.chains.find_chains import Chain
from onnx_spatial.chains.formulas import Formula, ValueDim
from onnx_spatial.chains.movements import Movement
from onnx_spatial.chains.paths import MOVING
from onnx_spatial.chains.pricing import TYPICAL, estimate_dims
from onnx_spatial.lowering.core.builder import Emitter, Size
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.graph import new_nodes, patch_proto
from onnx_spatial.model.graph.new_nodes import Draft, GraphEdit, Names
from onnx_spatial.model.graph.remove_unused import remove_unused
from onnx_spatial.model.graph.strip import strip_types
from onnx_spatial.operators import BatchToSpace, SpaceToBatch
from onnx_spatial.operators.spellings.chain_ops import DOMAIN

__all__ = ["DOMAIN", "op_type_of", "with_operators"]

#: Operator type of each block operator, and the name of its pads or crops.
_OP_TYPES = {
    SpaceToBatch: ("SpaceToBatchND", "paddings"),
    BatchToSpace: ("BatchToSpaceND", "crops"),
}


#: Operator type of patches, by the number of spatial axes; converters have none for one axis.
_PATCHES = {2: "ExtractImagePatches", 3: "ExtractVolumePatches"}


def op_type_of(chain: Chain) -> str:
    """Return the operator type that a chain is, for reports."""
    if chain.blocks is not None:
        return _OP_TYPES[chain.blocks.kind][0]
    assert chain.patches is not None
    return _PATCHES.get(chain.patches.axes, chain.patches.operator.name)


def with_operators(
    proto: onnx.ModelProto, chains: Sequence[Chain | Movement]
) -> tuple[onnx.ModelProto, list[str]]:
    """Return a copy of a model with a named operator in the place of each chain; `proto` stays as it is.

    Also return the name of the output of each operator; "" for a chain that vanishes.
    """
    model = ir.from_proto(strip_types(proto))
    patch = patch_proto.Patch(proto, model)
    graphs = _Graphs(proto, model)
    names = Names(proto)
    unread: dict[traversal.Place, set[str]] = {}
    operators: list[ir.Node | None] = []
    for each in chains:
        last = graphs.nodes[each.place, each.output]
        read = unread.setdefault(each.place, set())
        read.update(v.name for v in last.inputs if v is not None and v.name)
        make = _draft_movement if isinstance(each, Movement) else _draft_chain
        draft, operator = make(each, last, graphs)  # type: ignore[arg-type]
        operators.append(operator)
        initializers = proto.ir_version >= 4 and each.place.function is None
        new_nodes.apply_edit(GraphEdit([draft]), names, initializers=initializers)
        graphs.replaced.update(draft.results)
    result = patch.apply()
    remove_unused(result, unread)
    _restore_names(result, graphs.copies)
    patch_proto.import_where_used(result, DOMAIN)
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

    def __init__(self, proto: onnx.ModelProto, model: ir.Model) -> None:
        self.nodes: dict[tuple[traversal.Place, str], ir.Node] = {}
        self._values: dict[tuple[traversal.Place, str], ir.Value] = {}
        #: Copies of functions inside chains, and the names of these.
        self.copies: list[tuple[ir.Node, str]] = []
        #: The values that took the place of others since.
        self.replaced: dict[ir.Value, ir.Value] = {}
        self._opsets = {
            (f.domain, f.name, f.overload): op_traits.opset_of(f.opset_import)
            for f in proto.functions
        }
        self._default = op_traits.opset_of(proto.opset_import)
        for (place, _, message), node in zip(
            traversal.nodes(proto), traversal.ir_nodes(model), strict=True
        ):
            self.nodes.update({(place, name): node for name in message.output if name})
            for value in (*node.inputs, *node.outputs):
                if value is not None and value.name:
                    self._values[place, value.name] = value

    def opset(self, place: traversal.Place) -> int:
        """Return the version of the default domain in a graph."""
        known = self._default if place.function is None else self._opsets[place.function]
        return known or self._default or 1

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
    dims = list(estimate_dims(chain.input_shape, TYPICAL) or ())
    x = emit.tensor(value, dims)
    for each in chain.selections:
        dims[each.axis] = each.size
    starts = [each.start for each in chain.selections]
    ends = [each.start + each.size for each in chain.selections]
    return emit.slice(x, [each.axis for each in chain.selections], starts, ends, dims).value


def _draft_chain(chain: Chain, last: ir.Node, graphs: _Graphs) -> tuple[Draft, ir.Node]:
    """Draft the operator and the nodes around it in the place of the last node of a chain."""
    emit, source = Emitter(graphs.opset(chain.place)), graphs.value(chain.place, chain.source)
    if chain.patches is not None and chain.input_shape is not None:
        shape, known_type = chain.input_shape, chain.element_type
        operator, result = named_patches.write_patches(
            emit, chain.patches, source, shape, known_type
        )
    else:
        assert chain.blocks is not None
        operator, result = _emit_blocks(
            emit, chain.blocks, source, _Sizes(emit, chain.place, graphs)
        )
    draft = Draft(last, emit.nodes, emit.constants, {last.outputs[0]: result}, successor=operator)
    return draft, operator


def _emit_blocks(
    emit: Emitter, blocks: Blocks[Formula], source: ir.Value, sizes: _Sizes
) -> tuple[ir.Node, ir.Value]:
    """Emit a block operator between its Transposes; return it and the result."""
    op_type, table = _OP_TYPES[blocks.kind]
    pads = list(flatten.from_iterable(zip(blocks.begins, blocks.ends, strict=True)))
    attributes: dict[str, Sequence[int]] = {"block_shape": list(blocks.block)}
    inputs = [_emit_transpose(emit, source, blocks.before)]
    known = [amount.constant for amount in pads]
    if all(amount is not None for amount in known):
        attributes[table] = [amount for amount in known if amount is not None]
    else:
        entries = [sizes.compute(amount) for amount in pads]
        inputs.append(emit.reshape_to(emit.vector(entries, table), [-1, 2]))
    operator = ir.node(op_type, inputs, attributes, domain=DOMAIN)
    emit.nodes.append(operator)
    return operator, _emit_transpose(emit, operator.outputs[0], blocks.behind)


def _emit_transpose(emit: Emitter, value: ir.Value, perm: Sequence[int]) -> ir.Value:
    return value if list(perm) == sorted(perm) else emit.op("Transpose", value, perm=list(perm))


class _Sizes:
    """Nodes that compute sizes from the dims of values."""

    def __init__(self, emit: Emitter, place: traversal.Place, graphs: _Graphs) -> None:
        self._emit, self._dims = emit, dict[ValueDim, Size]()
        self._place, self._graphs = place, graphs

    def compute(self, formula: Formula) -> Size:
        """Compute a formula."""
        result: Size = formula.compute(self._emit, self._dim_size)
        return result

    def _dim_size(self, dim: ValueDim) -> Size:
        if dim not in self._dims:
            value = self._graphs.value(self._place, dim.value)
            self._dims[dim] = self._emit.length(value, dim.axis)
        return self._dims[dim]
