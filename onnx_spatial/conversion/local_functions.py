"""Add local functions that define the spatial operators of a model.

    node a: SpaceToBatchND, node b: SpaceToBatchND        function SpaceToBatchND (x, block, pads) => (y)
    both stay, and call                                   { Pad, Reshape, Transpose, Reshape }

A body has the nodes of mode "lower" under names of its own: no name in it comes from the model, so that
equal bodies are equal messages. Each operator gets the smallest body for its known sizes. Operators with
outputs of unknown size share one body per operator type, spelling and rank, unless that takes a quarter
more nodes than a body for each: it reads block shapes, pads and crops from its inputs and attributes.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import onnx
import onnx_ir as ir

from onnx_spatial import analysis
from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.conversion import report
from onnx_spatial.conversion.marked_functions import Spelled, mark
from onnx_spatial.conversion.options import ConvertOptions
from onnx_spatial.conversion.report import EditResult
from onnx_spatial.errors import Code, ConversionError, OperatorError
from onnx_spatial.lowering import Emitter, Lowered, Request, lower_preferring
from onnx_spatial.lowering.nodes import SINCE
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.graph import imports
from onnx_spatial.model.graph.new_nodes import Names
from onnx_spatial.operators.spellings import (
    Call,
    Conflict,
    InputFacts,
    NodeFacts,
    python_ops,
    read,
)

#: FunctionProto came with this IR version.
MIN_IR_VERSION = 8
#: Constant takes a list of integers, and a reference to one, since this opset.
REFERENCE_OPSET = 12

#: The size of a shared body, at most, relative to that of the bodies that it replaces.
_SHARED_SIZE = 1.25

#: Domain of the functions for nodes in a domain of ONNX's own, which may hold no functions.
DOMAIN = "onnx_spatial"
_ONNX_DOMAINS = ("ai.onnx.ml", "ai.onnx.preview", "ai.onnx.training")

#: Function names in place of standard operators' names: for a node of such a name, onnx's reference
#: evaluator ignores the domain and runs the standard operator.
_RENAMED = {"SpaceToDepth": "SpaceToBatchND", "DepthToSpace": "BatchToSpaceND"}
_OUTPUT = "y"


@dataclass(frozen=True)
class _Body:
    """Inputs, output, attributes and nodes of a function that has no name yet, and its lowering."""

    function: onnx.FunctionProto
    lowered: Lowered

    @property
    def key(self) -> bytes:
        """Equal for equal bodies."""
        data: bytes = self.function.SerializeToString(deterministic=True)
        return data


@dataclass
class _FunctionCall:
    """An operator, the version of the default domain at its place, and the body of its function."""

    info: OperatorInfo
    call: Call
    opset: int
    body: _Body

    @property
    def spelled(self) -> Spelled:
        return Spelled(self.info.node.domain, self.info.node.op_type)

    @property
    def family(self) -> tuple[object, ...] | None:
        """Key of the operators that one body could serve; None for one with an output of known shape."""
        call, facts, shape = self.call, self.info.facts, self.info.output_shape
        if shape is not None and all(isinstance(d, int) for d in shape):
            return None
        data = facts.inputs[0]
        rank = None if data is None or data.shape is None else len(data.shape)
        names = tuple(sorted(a.name for a in self.info.node.attribute))
        missing = tuple(fact is None for fact in facts.inputs)
        known_type = bool(self.info.element_types)
        kind = (self.spelled, call.dialect, *call.family, call.rank or rank)
        return (*kind, names, missing, known_type, self.opset)


def add_functions(
    model: onnx.ModelProto, infos: Sequence[OperatorInfo], options: ConvertOptions, *, opset: int
) -> EditResult:
    """Add local functions to a copy of a model and let its spatial operators call them.

    An operator that cannot be converted gets its `error` set and stays as it is. `opset` is the version
    of the default domain where it is not imported.
    """
    calls: list[_FunctionCall] = []
    for info in infos:
        if info.call is None:
            continue
        version = info.opset or opset
        try:
            body = _write_body(info.call, info.facts, info.element_types, version, (), options)
            calls.append(_FunctionCall(info, info.call, version, body))
        except ConversionError as error:
            info.refuse(error)
    result = EditResult(operator_at={info.index: report.left(info) for info in infos})
    if not calls:
        return result
    _share_bodies(calls, options)
    result.model = onnx.ModelProto()
    result.model.CopyFrom(model)
    if model.ir_version < MIN_IR_VERSION:
        _raise_ir_version(result.model)
    _let_call(result.model, calls, result)
    return result


def _raise_ir_version(model: onnx.ModelProto) -> None:
    """Give a model the first IR version that has local functions, without a change of its meaning."""
    if not traversal.has_defaults(model):  # in the new version the inputs could be fed
        stored = {tensor.name for tensor in model.graph.initializer}
        for index in reversed(range(len(model.graph.input))):
            if model.graph.input[index].name in stored:
                del model.graph.input[index]
    model.ir_version = MIN_IR_VERSION


# Bodies


def _write_body(
    call: Call,
    facts: NodeFacts,
    element_types: frozenset[int],
    opset: int,
    references: Sequence[str],
    options: ConvertOptions,
) -> _Body:
    """Lower an operator into the body of a function.

    Args:
        call: the operator.
        facts: what is known of the nodes that will call the function.
        element_types: ONNX element types of the data; empty if unknown.
        opset: version of the default domain.
        references: attributes to read from the call, each one of `Call.referable`:
            block_shape = Constant <value_ints = @block_shape> ()
        options: how operators are converted.

    Raises:
        ConversionError: the operator cannot be lowered.
    """
    spelled_names = call.input_names(facts.attributes)
    count = len(facts.inputs)
    names = [*spelled_names[:count], *(f"input_{i}" for i in range(len(spelled_names), count))]
    inputs = [
        ir.Value(name=name) if fact is not None else None
        for name, fact in zip(names, facts.inputs, strict=True)
    ]
    emit = Emitter(opset)
    for attribute in references:
        call = call.with_reference(attribute, len(inputs))
        vector = next(p.vector for p in call.parameters if p.vector.input == len(inputs))
        attribute_value = facts.attributes[attribute]
        if isinstance(attribute_value, tuple):
            length = len(attribute_value)
            inputs.append(_read_attribute(emit, attribute, None))
        else:  # a scalar attribute is broadcast to all entries
            length = vector.length
            inputs.append(_read_attribute(emit, attribute, length))
        facts = replace(facts, inputs=(*facts.inputs, InputFacts("int64", (length,))))
    # Referenced attributes were checked when each call was read.
    legal = frozenset(range(len(names), len(inputs)))
    request = Request.of(call, facts, inputs, element_types, opset)
    request = replace(request, checked=options.checked, legal=legal)
    lowered = lower_preferring(request, options.prefer, options.max_rank)
    lowered.output.name = _OUTPUT
    function = onnx.FunctionProto(input=names, output=[_OUTPUT])
    function.attribute.extend(facts.attributes)
    function.opset_import.append(onnx.helper.make_opsetid("", opset))
    constants = [*emit.constants, *lowered.emitted.constants]
    needed = SINCE["integers in Constant"]
    if constants and opset < needed:
        raise ConversionError(
            f"the model's opset is {opset}; a function with integer constants needs {needed} "
            '(use mode "lower", or export the model again with a newer opset)',
            code=Code.OPSET_TOO_OLD,
        )
    nodes = [*emit.nodes, *lowered.emitted.nodes]
    function.node.extend(_serialize_nodes(constants, nodes, {*names, _OUTPUT}))
    return _Body(function, lowered)


def _read_attribute(emit: Emitter, name: str, repeated: int | None) -> ir.Value:
    """Write the integers of an attribute of the call as a 1-D value."""
    if repeated is None:
        reference = ir.RefAttr("value_ints", name, ir.AttributeType.INTS)
        return emit.op("Constant", value_ints=reference)
    number = emit.op("Constant", value_int=ir.RefAttr("value_int", name, ir.AttributeType.INT))
    return emit.op("Expand", number, emit.ints([repeated], "count"))


def _serialize_nodes(
    constants: Sequence[tuple[ir.Value, str]], nodes: Sequence[ir.Node], taken: set[str]
) -> Iterator[onnx.NodeProto]:
    """Serialize nodes and constants; values are named after their operators."""
    numbers: Counter[str] = Counter()

    def fresh(base: str) -> str:
        while True:
            numbers[base] += 1
            name = base if numbers[base] == 1 else f"{base}_{numbers[base]}"
            if name not in taken:
                taken.add(name)
                return name

    for value, hint in constants:
        value.name = fresh(hint)
        assert value.const_value is not None
        tensor = ir.serde.serialize_tensor(value.const_value)
        yield onnx.helper.make_node("Constant", [], [value.name], value.name, value=tensor)
    for node in nodes:
        node.name = fresh(node.op_type)
        for place, output in enumerate(node.outputs):
            output.name = output.name or (fresh(f"{node.name}_{place}") if place else node.name)
    yield from map(ir.serde.serialize_node, nodes)


def _share_bodies(calls: Sequence[_FunctionCall], options: ConvertOptions) -> None:
    """Give each family one body where that makes the model hardly larger, or smaller."""
    families: dict[tuple[object, ...], list[_FunctionCall]] = {}
    for call in calls:
        if call.family is not None:
            families.setdefault(call.family, []).append(call)
    for family in families.values():
        sizes = {call.body.key: len(call.body.function.node) for call in family}
        shared = _join_bodies(family, options) if len(sizes) > 1 else None
        if shared and len(shared.function.node) < _SHARED_SIZE * sum(sizes.values()):
            for call in family:
                call.body = shared


def _join_bodies(calls: Sequence[_FunctionCall], options: ConvertOptions) -> _Body | None:
    """Return a body for all calls, which reads by reference what differs; None if there is none."""
    first = calls[0]
    facts = analysis.join_facts([call.info.facts for call in calls])
    differing = [n for n, value in facts.attributes.items() if isinstance(value, Conflict)]
    if differing and (first.opset < REFERENCE_OPSET or set(differing) - first.call.referable):
        return None
    facts = replace(facts, attributes=first.info.facts.attributes)
    types = frozenset[int]().union(*(call.info.element_types for call in calls))
    try:
        return _write_body(read(facts), facts, types, first.opset, differing, options)
    except (ConversionError, OperatorError):
        return None


# Calls


def _let_call(model: onnx.ModelProto, calls: Sequence[_FunctionCall], result: EditResult) -> None:
    """Add the functions to a model, and let the operators call them, in place."""
    wrapped = {call.info.index for call in calls}
    nodes = list(traversal.nodes(model))
    taken = {(f.domain, f.name) for f in model.functions}
    taken |= {(n.domain, n.op_type) for i, (_, _, n) in enumerate(nodes) if i not in wrapped}
    functions: dict[tuple[Spelled, bytes], onnx.FunctionProto] = {}
    for call in calls:
        key = (call.spelled, call.body.key)
        if key not in functions:
            functions[key] = _name_function(call, taken)
        function, info = functions[key], call.info
        _, _, node = nodes[info.index]
        node.domain, node.op_type = function.domain, function.name
        name = f"{function.domain}:{function.name}"
        lowered = call.body.lowered
        result.operator_at[info.index] = report.converted(
            info, "function", lowered.lowering, len(function.node), name, notes=lowered.notes
        )
        result.note_outputs(info, info.node.output[:1], info.output_shape)
    for domain in dict.fromkeys(function.domain for function in functions.values()):
        imports.import_where_used(model, domain)
    _tell_apart(model, [nodes[index] for index in sorted(wrapped)])
    # In front: onnx's reference evaluator knows only the functions above the one that it reads.
    functions_of_model = list(model.functions)
    del model.functions[:]
    model.functions.extend([*functions.values(), *functions_of_model])


def _tell_apart(
    model: onnx.ModelProto,
    wrapped: Sequence[tuple[traversal.Place, traversal.GraphLike, onnx.NodeProto]],
) -> None:
    """Rename nodes that bear the name of another one in their graph: onnxruntime refuses two."""
    names: Names | None = None
    count = Counter((place, node.name) for place, _, node in traversal.nodes(model))
    for place, _, node in wrapped:
        if node.name and count[place, node.name] > 1:
            count[place, node.name] -= 1
            names = names or Names(traversal.Index(model))
            node.name = names.fresh(node.name)


def _name_function(call: _FunctionCall, taken: set[tuple[str, str]]) -> onnx.FunctionProto:
    """Return the function of a call under a name that is free."""
    function = onnx.FunctionProto()
    function.CopyFrom(call.body.function)
    domain, op_type = call.spelled
    # onnx and onnxruntime look for no other operators in these domains.
    is_of_onnx = op_traits.is_standard_domain(domain) or domain.startswith(_ONNX_DOMAINS)
    function.domain = DOMAIN if is_of_onnx or domain == python_ops.DOMAIN else domain
    base = _RENAMED.get(op_type, op_type)
    # Overloads would say it better, but onnx's reference evaluator and onnxruntime 1.23 take the
    # wrong one without a word.
    names = itertools.chain([base], (f"{base}_{number}" for number in itertools.count(2)))
    function.name = next(n for n in names if (function.domain, n) not in taken)
    taken.add((function.domain, function.name))
    function.doc_string = f"{op_type} of {domain or 'ai.onnx'} in standard operators"
    mark(function, call.spelled)
    return function
