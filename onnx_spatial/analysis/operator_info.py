"""Describe a spatial operator: its node, and what is known of it at one call site, or at all of them.

    float[2, n]   and   float[2, n]      float[2, ?]        n may be another size in each call
    pads = [0, 1] and   pads = [0, 2]    pads: unknown

What call sites disagree on becomes unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import onnx

from onnx_spatial.errors import Code, OperatorError, SpatialError
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.inference import constant_folding, shape_inference
from onnx_spatial.operators import Dim
from onnx_spatial.operators.spellings import Call, Conflict, InputFacts, NodeFacts, read
from onnx_spatial.operators.spellings.call import ANY_INTEGER, AttributeValue, UnreadAttribute

_KINDS = onnx.AttributeProto
_READABLE = {_KINDS.INT, _KINDS.INTS, _KINDS.FLOAT, _KINDS.FLOATS, _KINDS.STRING}


def read_attributes(node: onnx.NodeProto) -> dict[str, AttributeValue]:
    """Return attributes as Python values; a reference to a function's attribute is a `Conflict`."""
    return {a.name: _attribute_value(a) for a in node.attribute if a.name != shape_inference.NUMBER}


def _attribute_value(attribute: onnx.AttributeProto) -> AttributeValue:
    if attribute.ref_attr_name:
        return Conflict()
    if attribute.type not in _READABLE:
        return UnreadAttribute()
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return tuple(value) if isinstance(value, list) else value


def input_facts(known: onnx.TypeProto | None) -> InputFacts:
    """Return element type and shape of an input."""
    element_type = shape_inference.element_type(known)
    dtype = None if element_type is None else dtype_name(element_type)
    return InputFacts(dtype, shape_inference.dims(known))


@cache
def dtype_name(element_type: int) -> str:
    """Return the numpy name of an ONNX element type; "string" for strings."""
    if element_type == onnx.TensorProto.STRING:
        return "string"
    try:
        return onnx.helper.tensor_dtype_to_np_dtype(element_type).name
    except KeyError:
        return f"element type {element_type}"


@cache
def element_type_named(dtype: str) -> int | None:
    """Return the ONNX element type with this `dtype_name`; None if there is none."""
    types = onnx.TensorProto.DataType.values()
    return next((int(t) for t in types if t and dtype_name(t) == dtype), None)


def join_facts(at_sites: Sequence[NodeFacts]) -> NodeFacts:
    """Join the facts of one node at several call sites."""
    if len(at_sites) == 1:
        return at_sites[0]
    width = max(len(facts.inputs) for facts in at_sites)
    inputs = tuple(
        join_inputs([facts.inputs[i] for facts in at_sites if i < len(facts.inputs)])
        for i in range(width)
    )
    return replace(at_sites[0], inputs=inputs, attributes=_join_attributes(at_sites))


def _join_attributes(at_sites: Sequence[NodeFacts]) -> dict[str, AttributeValue]:
    """Return the attributes at any of several call sites; a `Conflict` where one has another value."""
    joined: dict[str, AttributeValue] = {}
    for name in dict.fromkeys(name for facts in at_sites for name in facts.attributes):
        first, *others = (facts.attributes.get(name, Conflict()) for facts in at_sites)
        joined[name] = first if others.count(first) == len(others) else Conflict()
    return joined


def join_inputs(at_sites: Sequence[InputFacts | None]) -> InputFacts | None:
    """Join the facts of one input; None if the input is missing at every call site."""
    known = [facts for facts in at_sites if facts is not None]
    if not known:
        return None
    first, *others = known
    if not others:
        return first
    dtype = first.dtype if all(other.dtype == first.dtype for other in others) else None
    shape, value = first.shape, first.value
    for other in others:
        shape = join_shapes(shape, other.shape)
        if value is not None and not (
            other.value is not None and np.array_equal(other.value, value)
        ):
            value = None
    return InputFacts(dtype, shape, value)


def join_shapes(a: tuple[Dim, ...] | None, b: tuple[Dim, ...] | None) -> tuple[Dim, ...] | None:
    """Join two shapes of one value; None if the ranks differ."""
    if a is None or b is None or len(a) != len(b):
        return None
    # The same symbolic dim may have another size in another call.
    return tuple(x if x == y and isinstance(x, int) else None for x, y in zip(a, b, strict=True))


@dataclass
class OperatorInfo:
    """A spatial operator: its node in the model as given, and what was inferred.

    Attributes:
        index: position in the order of `model.traversal.nodes`.
        place: the graph that holds the node.
        node: its message.
        opset: version of the default domain there; None if it is not imported.
        facts: facts on which all call sites agree.
        element_types: ONNX element types of the data input, over all call sites.
        call: the operator and its parameters; None if a rule is broken or the domain is unknown.
        error: the broken rule.
        error_code: its code.
        known_domain: whether the domain is known to hold spatial operators.
        output_shape: shape of the output, as far as it is known.
        dead: whether the node is in a function without calls.
    """

    index: int
    place: traversal.Place
    node: onnx.NodeProto
    opset: int | None
    known_domain: bool
    facts: NodeFacts
    element_types: frozenset[int] = frozenset()
    call: Call | None = None
    error: str | None = None
    error_code: Code | None = None
    output_shape: tuple[Dim, ...] | None = None
    dead: bool = False

    def refuse(self, error: SpatialError) -> None:
        """Keep why the operator cannot be converted."""
        self.error, self.error_code = str(error), error.code


def opset_of(model: onnx.ModelProto, place: traversal.Place) -> int | None:
    """Return the version of the default domain in a graph; None if it is not imported there."""
    imports = model.opset_import
    for function in model.functions:
        if place.function == (function.domain, function.name, function.overload):
            imports = function.opset_import
    return op_traits.opset_of(imports)


@dataclass
class CallSite:
    """A spatial node in the inlined model.

    Attributes:
        info: the operator in the model as given.
        node: its node in the inlined model.
        graph: the number of its graph.
        scope: the values visible to the node.
        types: types of its inputs, one list for each inference (a Loop body is inferred twice).
        declared: element type that the model declares for its output.
    """

    info: OperatorInfo
    node: onnx.NodeProto
    graph: int = 0
    scope: constant_folding.ConstantScope | None = None
    types: list[list[onnx.TypeProto | None]] = field(default_factory=list)
    declared: int | None = None

    def facts(self) -> NodeFacts:
        """Return what is known of the node at this call site."""
        inputs = tuple(
            self._input_facts(index, name) if name else None
            for index, name in enumerate(self.node.input)
        )
        return replace(self.info.facts, inputs=inputs, attributes=read_attributes(self.node))

    def _input_facts(self, index: int, name: str) -> InputFacts:
        """Return what is known of an input: its value, else what all inferences agree on."""
        facts = join_inputs([input_facts(t) for t in self._types_of(index)]) or InputFacts()
        if not index:  # data is never looked at
            return facts
        value = self._known_value(name)
        if value is None:
            value = _empty_parameter(facts)
        return facts if value is None else InputFacts.of(value)

    def _types_of(self, index: int) -> list[onnx.TypeProto | None]:
        """Return the types of an input in each inference, else its declared type."""
        inferred = [types[index] for types in self.types if index < len(types)]
        if not inferred and self.scope is not None and index < len(self.node.input):
            return [self.scope.type(self.node.input[index])]
        return inferred

    def _known_value(self, name: str) -> constant_folding.Array | None:
        return None if self.scope is None else self.scope.value(name)

    def known_parameters(self) -> int:
        """Return the number of parameters whose values are known."""
        return sum(self._known_value(name) is not None for name in self.node.input[1:] if name)

    def check_inputs(self) -> None:
        """Check that the data is a tensor and that stored parameters can be read.

        Raises:
            OperatorError: one of these does not hold.
        """
        kinds = {t.WhichOneof("value") for t in self._types_of(0) if t is not None}
        if other := kinds - {None, "tensor_type"}:
            kind = min(other).removesuffix("_type").replace("_", " ")
            raise OperatorError(
                f"the data input is of {kind} type, not a dense tensor", code=Code.PARAMETER
            )
        for name in self.node.input[1:]:
            tensor = self.scope.damaged(name) if self.scope is not None else None
            if tensor is not None:
                declared = f"{dtype_name(tensor.data_type)}{list(tensor.dims)}"
                raise OperatorError(
                    f"the stored tensor {name!r} is damaged: it does not hold {declared}",
                    code=Code.DAMAGED,
                )

    def element_types(self) -> list[int]:
        """Return the ONNX element types of the data input, else the one declared for the output.

        Behind an operator that onnx does not know nothing is inferred; the output, which has the same
        type, may be declared nevertheless.
        """
        types = [t for t in map(shape_inference.element_type, self._types_of(0)) if t is not None]
        if not types and self.declared is not None:
            types = [self.declared]
        return types


def _empty_parameter(fact: InputFacts) -> constant_folding.Array | None:
    """Return a parameter without elements, whatever computes it; None for others."""
    dims = [dim for dim in fact.shape or () if isinstance(dim, int)]
    if 0 not in dims or len(dims) < len(fact.shape or ()) or fact.dtype not in ANY_INTEGER:
        return None
    return np.zeros(dims, fact.dtype)


def output_type(call_site: CallSite, types: list[onnx.TypeProto | None]) -> onnx.TypeProto | None:
    """Return the output's type for these input types; None if the element type is unknown."""
    element_type = shape_inference.element_type(types[0]) if types else None
    if element_type is None:
        return None
    facts = call_site.facts()
    facts = replace(facts, inputs=(input_facts(types[0]), *facts.inputs[1:]))
    try:
        shape = _output_shape(read(facts), facts)
    except OperatorError:
        shape = None
    return onnx.helper.make_tensor_type_proto(element_type, shape)


def join_call_sites(info: OperatorInfo, call_sites: Sequence[CallSite], symbols: set[str]) -> None:
    """Join all call sites into `info`, with the first rule that one of them breaks."""
    at_sites = [with_own_names(site.facts(), symbols) for site in call_sites] or [info.facts]
    info.facts = join_facts(at_sites)
    info.element_types = frozenset(t for site in call_sites for t in site.element_types())
    try:
        _check_output_and_attributes(info.node)
        for call_site in call_sites:
            call_site.check_inputs()
        for facts in at_sites if len(at_sites) > 1 else ():
            read(facts)
        info.call = read(info.facts)
        info.output_shape = _output_shape(info.call, info.facts)
    except OperatorError as error:
        info.call = None
        info.refuse(error)


def _output_shape(call: Call, facts: NodeFacts) -> tuple[Dim, ...] | None:
    """Return the shape of the output for what is known of the data; None for an unknown rank."""
    data = facts.inputs[0]
    shape = data.shape if data is not None else None
    if shape is None:
        if call.rank is None:
            return None
        shape = (None,) * call.rank
    return call.output_shape(shape)


def with_own_names(facts: NodeFacts, symbols: set[str]) -> NodeFacts:
    """Replace dims that inference named, not the model, by None."""
    inputs = []
    for fact in facts.inputs:
        if fact is not None and fact.shape is not None:
            shape = tuple(d if isinstance(d, int) or d in symbols else None for d in fact.shape)
            fact = fact if shape == fact.shape else replace(fact, shape=shape)
        inputs.append(fact)
    return replace(facts, inputs=tuple(inputs))


def _check_output_and_attributes(node: onnx.NodeProto) -> None:
    """Check that a node has one output, and no attribute twice."""
    if not node.output or not node.output[0]:
        raise OperatorError("the node has no output")
    names = [a.name for a in node.attribute]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise OperatorError(f"attribute {repeated[0]} is set more than once", code=Code.ATTRIBUTE)
    if any(node.output[1:]):
        raise OperatorError(f"the operator has one output, but the node has {len(node.output)}")
