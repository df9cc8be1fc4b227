"""Write the body of a local function: the nodes of mode "lower", under names of its own.

No name in it comes from the model, so that equal bodies are equal messages. Attributes that differ among
the calls of the function are read by reference:

    block_shape = Constant <value_ints = @block_shape> ()
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import onnx
import onnx_ir as ir

from onnx_spatial.conversion.options import ConvertOptions
from onnx_spatial.errors import Code, ConversionError
from onnx_spatial.lowering import Emitter, Request, lower_preferring
from onnx_spatial.operators.spellings import Call, InputFacts, NodeFacts

#: Constant takes a list of integers, and a reference to one, since this opset.
REFERENCE_OPSET = 12

#: Constant takes integers since this opset. A graph has initializers, a function has not.
INTEGER_CONSTANT = 9

_OUTPUT = "y"


@dataclass(frozen=True)
class Body:
    """Inputs, output, attributes and nodes of a function that has no name yet.

    Attributes:
        function: the message.
        strategy: its lowering.
    """

    function: onnx.FunctionProto
    strategy: str

    @property
    def key(self) -> bytes:
        """Equal for equal bodies."""
        data: bytes = self.function.SerializeToString(deterministic=True)
        return data


@dataclass(frozen=True)
class BodyRequest:
    """Request for a body.

    Attributes:
        call: the operator.
        facts: what is known of the nodes that will call the function.
        element_types: ONNX element types of the data; empty if unknown.
        opset: version of the default domain.
        references: attributes to read from the call, each one of `Call.referable`.
    """

    call: Call
    facts: NodeFacts
    element_types: frozenset[int]
    opset: int
    references: Sequence[str] = ()


def build(body_request: BodyRequest, options: ConvertOptions) -> Body:
    """Lower an operator into the body of a function.

    Raises:
        ConversionError: the operator cannot be lowered.
    """
    call, facts = body_request.call, body_request.facts
    names, count = call.input_names(facts.attributes), len(facts.inputs)
    names = [*names[:count], *(f"input_{i}" for i in range(len(names), count))]
    formals = [ir.Value(name=name) for name in names]
    known = zip(formals, facts.inputs, strict=True)
    inputs = [formal if fact is not None else None for formal, fact in known]
    emit = Emitter(body_request.opset)
    for name in body_request.references:
        call = call.with_reference(name, len(inputs))
        given = facts.attributes[name]
        (vector, *_) = (p.vector for p in call.parameters if p.vector.input == len(inputs))
        # A single integer stands for each entry.
        count = len(given) if isinstance(given, tuple) else vector.length
        value = _reference(emit, name, None if isinstance(given, tuple) else count)
        facts = replace(facts, inputs=(*facts.inputs, InputFacts("int64", (count,))))
        inputs.append(value)
    request = Request.of(call, facts, inputs, body_request.element_types, body_request.opset)
    # Referenced attributes were checked when each call was read.
    legal = frozenset(range(len(formals), len(inputs)))
    request = replace(request, checked=options.checked, legal=legal)
    lowered = lower_preferring(request, options.prefer, options.max_rank)
    lowered.output.name = _OUTPUT
    function = onnx.FunctionProto(input=names, output=[_OUTPUT])
    function.attribute.extend(facts.attributes)
    function.opset_import.append(onnx.helper.make_opsetid("", body_request.opset))
    constants = [*emit.constants, *lowered.emitted.constants]
    if constants and body_request.opset < INTEGER_CONSTANT:
        raise ConversionError(
            f"the model's opset is {body_request.opset}; a function with integer constants needs "
            f'{INTEGER_CONSTANT} (use mode "lower", or export the model again with a newer opset)',
            code=Code.OPSET_TOO_OLD,
        )
    nodes = [*emit.nodes, *lowered.emitted.nodes]
    function.node.extend(_messages(constants, nodes, {*names, _OUTPUT}))
    return Body(function, lowered.strategy)


def _reference(emit: Emitter, name: str, repeated: int | None) -> ir.Value:
    """Write the integers of an attribute of the call as a 1-D value."""
    if repeated is None:
        reference = ir.RefAttr("value_ints", name, ir.AttributeType.INTS)
        return emit.op("Constant", value_ints=reference)
    number = emit.op("Constant", value_int=ir.RefAttr("value_int", name, ir.AttributeType.INT))
    return emit.op("Expand", number, emit.ints([repeated], "count"))


def _messages(
    constants: Sequence[tuple[ir.Value, str]], nodes: Sequence[ir.Node], taken: set[str]
) -> Iterator[onnx.NodeProto]:
    """Serialize nodes and constants; values are named after their operators."""
    count: Counter[str] = Counter()

    def fresh(base: str) -> str:
        while True:
            count[base] += 1
            name = base if count[base] == 1 else f"{base}_{count[base]}"
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
    for node in nodes:
        yield ir.serde.serialize_node(node)
