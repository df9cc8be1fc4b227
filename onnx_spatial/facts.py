"""Find the operators of a model and everything that is known of them before it runs.

A node in a function is looked at in each of its calls: onnx's inliner turns them into occurrences
with their own shapes, attributes and constants, and what they agree on is what is known of the node.
Passes of constant folding and shape inference alternate until nothing new is found, because a
parameter may be computed from the shape behind another operator.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np
import onnx

from onnx_spatial.dialects import (
    DOMAINS,
    Call,
    Conflict,
    InputFacts,
    NodeFacts,
    read,
    recognise,
)
from onnx_spatial.dialects.node import AttributeValue
from onnx_spatial.errors import OperatorError
from onnx_spatial.graph import constants, functions, shapes, walk
from onnx_spatial.graph.skeleton import skeleton
from onnx_spatial.ops import Dim

logger = logging.getLogger(__name__)

#: Passes of folding and inference; each resolves the parameters computed behind one more operator.
_MAX_PASSES = 32


@dataclass
class Finding:
    """One operator node of the model, as the file holds it, with what is known of it.

    Attributes:
        index: position in the order of `graph.walk.nodes`.
        place: graph that holds it.
        node: its message.
        opset: version of the default domain where it stands; None if that is not imported.
        facts: what is known in all of its occurrences.
        element_types: ONNX element types of the data input, over all occurrences.
        call: the operator that it asks for; None if it breaks a rule or is in an unknown domain.
        error: the rule it breaks.
        known_domain: whether it is ours to convert.
        output_shape: shape of its output, as far as it is known.
        dead: it stands in a function that nothing calls.
    """

    index: int
    place: walk.Place
    node: onnx.NodeProto
    opset: int | None
    known_domain: bool
    facts: NodeFacts
    element_types: frozenset[int] = frozenset()
    call: Call | None = None
    error: str | None = None
    output_shape: tuple[Dim, ...] | None = None
    dead: bool = False


@dataclass
class _Occurrence:
    """A node of ours in the inlined model."""

    finding: Finding
    node: onnx.NodeProto
    scope: constants.Scope | None = None
    types: list[list[onnx.TypeProto | None]] = field(default_factory=list)

    def facts(self) -> NodeFacts:
        inputs: list[InputFacts | None] = []
        for index, name in enumerate(self.node.input):
            if not name:
                inputs.append(None)
                continue
            seen = [t[index] for t in self.types if index < len(t)]
            if not seen and self.scope is not None:
                seen = [self.scope.type(name)]
            fact = _join_inputs([input_facts(t) for t in seen]) or InputFacts()
            # Only parameters are of interest as values: data is never looked at.
            value = self.scope.value(name) if index and self.scope is not None else None
            if value is not None:
                fact = InputFacts.of(value)
            inputs.append(fact)
        base = self.finding.facts
        return replace(base, inputs=tuple(inputs), attributes=attributes(self.node))

    def check(self) -> None:
        """See that the data is a tensor, and that stored parameters can be read.

        Raises:
            OperatorError: they are not.
        """
        kinds = {t.WhichOneof("value") for t in self._data_types() if t is not None}
        if other := kinds - {None, "tensor_type"}:
            kind = min(other).removesuffix("_type").replace("_", " ")
            raise OperatorError(f"the data input is of {kind} type, not a dense tensor")
        for name in self.node.input[1:]:
            tensor = self.scope.damaged(name) if self.scope is not None else None
            if tensor is not None:
                declared = f"{dtype_name(tensor.data_type)}{list(tensor.dims)}"
                raise OperatorError(f"the stored tensor {name!r} does not hold a {declared}")

    def _data_types(self) -> list[onnx.TypeProto | None]:
        """Types of the data input that were seen, or what is declared of it."""
        seen = [types[0] for types in self.types if types]
        if not seen and self.scope is not None and self.node.input:
            seen = [self.scope.type(self.node.input[0])]
        return seen

    def element_types(self) -> list[int]:
        """ONNX element types of the data input that were seen, or at least declared."""
        found = map(shapes.element_type, self._data_types())
        return [t for t in found if t is not None]


def find(
    model: onnx.ModelProto, domains: Iterable[str] = (), folder: Path | None = None
) -> list[Finding]:
    """The operator nodes of `model`, in walking order.

    Args:
        model: a parsed model; it is not changed.
        domains: operator domains of the user's own, beside `dialects.DOMAINS`.
        folder: where external data lies; parameters are read from there.
    """
    accepted = DOMAINS | set(domains)
    copy = skeleton(model, folder)
    findings = []
    local = {(f.domain, f.name) for f in model.functions}
    for index, ((place, _, node), (_, _, probe)) in enumerate(
        zip(walk.nodes(model), list(walk.nodes(copy)), strict=True)
    ):
        if probe.domain == shapes.DOMAIN:  # the file's own are none of ours
            probe.domain = f"{shapes.DOMAIN}.other"
        if not recognise(node.op_type, node.domain, len(node.input)):
            continue
        if (node.domain, node.op_type) in local:
            continue  # a call of a function that says itself what it means
        facts = NodeFacts(node.op_type, node.domain, (), attributes(node))
        opset = opset_of(model, place)
        finding = Finding(index, place, node, opset, node.domain in accepted, facts)
        findings.append(finding)
        if finding.known_domain:
            _make_probe(probe, len(findings) - 1)
    if any(f.known_domain for f in findings):
        _resolve(copy, findings)
    return findings


def inferred(
    model: onnx.ModelProto, findings: Sequence[Finding], folder: Path | None = None
) -> onnx.ModelProto:
    """A copy without weights that declares all that is known of the values, node by node the same.

    Args:
        model: the model that the findings are of.
        findings: its operators.
        folder: where external data lies.
    """
    copy = skeleton(model, folder)
    nodes = [node for _, _, node in walk.nodes(copy)]
    for number, finding in enumerate(findings):
        if finding.known_domain:
            _make_probe(nodes[finding.index], number)
    for function in copy.functions:
        function.opset_import.append(onnx.helper.make_opsetid(shapes.DOMAIN, 1))
    drop_doubtful_shapes(copy)

    def rule(number: int, types: list[onnx.TypeProto | None]) -> onnx.TypeProto | None:
        element_type = shapes.element_type(types[0]) if types else None
        if element_type is None:
            return None
        return onnx.helper.make_tensor_type_proto(element_type, findings[number].output_shape)

    return shapes.infer(copy, rule)


def opset_of(model: onnx.ModelProto, place: walk.Place) -> int | None:
    """Version of the default domain at a place; None if it is not imported there."""
    imports = model.opset_import
    for function in model.functions:
        if place.function == (function.domain, function.name, function.overload):
            imports = function.opset_import
    return next((o.version for o in imports if o.domain in ("", "ai.onnx")), None)


def _make_probe(node: onnx.NodeProto, number: int) -> None:
    node.domain, node.op_type = shapes.DOMAIN, shapes.PROBE
    del node.output[1:]
    _drop_number(node)
    node.attribute.append(onnx.helper.make_attribute(shapes.NUMBER, number))


def _drop_number(node: onnx.NodeProto) -> None:
    """Forget a number that the file itself holds."""
    for index in reversed(range(len(node.attribute))):
        if node.attribute[index].name == shapes.NUMBER:
            del node.attribute[index]


def attributes(node: onnx.NodeProto) -> dict[str, AttributeValue]:
    """Attributes as Python values; one that a function's caller gives is a `Conflict`."""
    found: dict[str, AttributeValue] = {}
    kinds = onnx.AttributeProto
    for attribute in node.attribute:
        if attribute.name == shapes.NUMBER:
            continue
        if attribute.ref_attr_name:
            found[attribute.name] = Conflict()
        elif attribute.type == kinds.INT:
            found[attribute.name] = attribute.i
        elif attribute.type == kinds.INTS:
            found[attribute.name] = tuple(attribute.ints)
        elif attribute.type == kinds.FLOAT:
            found[attribute.name] = attribute.f
        elif attribute.type == kinds.FLOATS:
            found[attribute.name] = tuple(attribute.floats)
        elif attribute.type == kinds.STRING:
            found[attribute.name] = attribute.s.decode("utf-8", "replace")
        else:
            found[attribute.name] = object()
    return found


def _resolve(copy: onnx.ModelProto, findings: list[Finding]) -> None:
    """Fill in facts, calls and errors of `findings`, whose nodes in `copy` are probes."""
    for function in copy.functions:
        function.opset_import.append(onnx.helper.make_opsetid(shapes.DOMAIN, 1))
    copy.opset_import.append(onnx.helper.make_opsetid(shapes.DOMAIN, 1))
    inlined = _inline(copy)
    occurrences = []
    for _, _, node in walk.nodes(inlined):
        if node.domain == shapes.DOMAIN:
            number = next(a for a in node.attribute if a.name == shapes.NUMBER)
            occurrences.append(_Occurrence(findings[number.i], node))
            number.i = len(occurrences) - 1
    seen = {id(o.finding) for o in occurrences}
    symbols = shapes.symbols(copy)
    drop_doubtful_shapes(inlined)
    _infer_until_stable(inlined, occurrences)

    # Functions that nothing calls: only what stands in the function itself is known.
    for scope, graph in constants.scopes(copy):
        for node in graph.node:
            if node.domain == shapes.DOMAIN:
                number = next(a for a in node.attribute if a.name == shapes.NUMBER)
                if id(findings[number.i]) not in seen:
                    findings[number.i].dead = True
                    occurrences.append(_Occurrence(findings[number.i], node, scope))

    by_finding: dict[int, list[_Occurrence]] = {}
    for occurrence in occurrences:
        by_finding.setdefault(id(occurrence.finding), []).append(occurrence)
    for finding in findings:
        if finding.known_domain:
            _conclude(finding, by_finding.get(id(finding), []), symbols)


def _inline(copy: onnx.ModelProto) -> onnx.ModelProto:
    try:
        return functions.inline(copy)
    except Exception as error:  # the calls stay, and less is known of what they hold
        logger.info("onnx inliner gave up: %s", error)
        return copy


def drop_doubtful_shapes(model: onnx.ModelProto) -> None:
    """Forget declared shapes behind our operators: exporters that do not know the operators guess.

    What stands behind other people's operators is kept, nothing could replace it.
    """
    nodes = [node for _, _, node in walk.nodes(model)]
    ours = {n.output[0] for n in nodes if n.domain == shapes.DOMAIN and n.output}
    standard = {
        name
        for node in nodes
        if node.domain in ("", "ai.onnx", "ai.onnx.ml", shapes.DOMAIN)
        for name in node.output
    }
    doubtful = shapes.downstream(model.graph, ours) & standard
    for _, graph in walk.graphs(model):
        kept = [v for v in graph.value_info if v.name not in doubtful]
        del graph.value_info[:]
        graph.value_info.extend(kept)
        if isinstance(graph, onnx.GraphProto):
            for output in graph.output:
                if output.name in doubtful and output.type.HasField("tensor_type"):
                    output.type.tensor_type.ClearField("shape")


def _infer_until_stable(model: onnx.ModelProto, occurrences: list[_Occurrence]) -> None:
    known = -1
    inferred = model
    for _ in range(_MAX_PASSES):
        for scope, graph in constants.scopes(inferred):
            for node in graph.node:
                if node.domain == shapes.DOMAIN:
                    number = next(a.i for a in node.attribute if a.name == shapes.NUMBER)
                    occurrences[number].scope = scope
        inputs = [f for o in occurrences for f in o.facts().inputs if f is not None]
        now = sum((f.value is not None) + (f.dtype is not None) for f in inputs)
        if now == known:
            return
        known = now
        for occurrence in occurrences:
            occurrence.types.clear()

        def rule(number: int, types: list[onnx.TypeProto | None]) -> onnx.TypeProto | None:
            occurrences[number].types.append([_copy(t) for t in types])
            return _output_type(occurrences[number], types)

        inferred = shapes.infer(model, rule)


def _copy(known: onnx.TypeProto | None) -> onnx.TypeProto | None:
    if known is None:
        return None
    copy = onnx.TypeProto()
    copy.CopyFrom(known)
    return copy


def _output_type(
    occurrence: _Occurrence, types: list[onnx.TypeProto | None]
) -> onnx.TypeProto | None:
    element_type = shapes.element_type(types[0]) if types else None
    if element_type is None:
        return None
    facts = occurrence.facts()
    facts = replace(facts, inputs=(input_facts(types[0]), *facts.inputs[1:]))
    try:
        shape = _output_shape(read(facts), facts)
    except OperatorError:
        shape = None
    return onnx.helper.make_tensor_type_proto(element_type, shape)


def _output_shape(call: Call, facts: NodeFacts) -> tuple[Dim, ...] | None:
    data = facts.inputs[0]
    shape = data.shape if data is not None else None
    if shape is None:
        if call.rank is None:
            return None
        shape = (None,) * call.rank
    return call.output_shape(shape)


def _with_own_names(facts: NodeFacts, symbols: set[str]) -> NodeFacts:
    """Dims named by the inference, not by the model, are just unknown."""
    inputs = []
    for fact in facts.inputs:
        if fact is not None and fact.shape is not None:
            known = (d if isinstance(d, int) or d in symbols else None for d in fact.shape)
            fact = replace(fact, shape=tuple(known))
        inputs.append(fact)
    return replace(facts, inputs=tuple(inputs))


def _conclude(finding: Finding, occurrences: Sequence[_Occurrence], symbols: set[str]) -> None:
    """What all occurrences agree on; the first rule that any of them breaks."""
    each = [_with_own_names(o.facts(), symbols) for o in occurrences] or [finding.facts]
    finding.facts = join(each)
    finding.element_types = frozenset(t for o in occurrences for t in o.element_types())
    try:
        _check_node(finding.node)
        for occurrence in occurrences:
            occurrence.check()
        for facts in each:
            read(facts)
        finding.call = read(finding.facts)
        finding.output_shape = _output_shape(finding.call, finding.facts)
    except OperatorError as error:
        finding.call, finding.error = None, str(error)


def _check_node(node: onnx.NodeProto) -> None:
    if not node.output or not node.output[0]:
        raise OperatorError("the node gives no output")
    names = [a.name for a in node.attribute]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise OperatorError(f"attribute {repeated[0]} is given more than once")
    if any(node.output[1:]):
        raise OperatorError(f"the operator has one output, the node {len(node.output)}")


def input_facts(known: onnx.TypeProto | None) -> InputFacts:
    """What a type says of an input."""
    element_type = shapes.element_type(known)
    if element_type is None:
        return InputFacts(None, shapes.dims(known))
    return InputFacts(dtype_name(element_type), shapes.dims(known))


@cache
def dtype_name(element_type: int) -> str:
    """ONNX element type -> numpy name; "string" for strings."""
    if element_type == onnx.TensorProto.STRING:
        return "string"
    try:
        return onnx.helper.tensor_dtype_to_np_dtype(element_type).name
    except KeyError:
        return f"element type {element_type}"


def join(each: Sequence[NodeFacts]) -> NodeFacts:
    """What several nodes of the same operator type agree on."""
    width = max(len(f.inputs) for f in each)
    inputs = tuple(
        _join_inputs([f.inputs[i] for f in each if i < len(f.inputs)]) for i in range(width)
    )
    return replace(each[0], inputs=inputs, attributes=_join_attributes(each))


def _join_attributes(each: Sequence[NodeFacts]) -> dict[str, AttributeValue]:
    first, *others = (f.attributes for f in each)
    return {
        name: value if all(o.get(name) == value for o in others) else Conflict()
        for name, value in first.items()
    }


def _join_inputs(each: Sequence[InputFacts | None]) -> InputFacts | None:
    known = [f for f in each if f is not None]
    if not known:
        return None
    first = known[0]
    dtype = first.dtype if all(f.dtype == first.dtype for f in known) else None
    shape = first.shape
    for other in known[1:]:
        shape = _join_shapes(shape, other.shape)
    value = first.value
    if value is not None and not all(
        f.value is not None and np.array_equal(f.value, value) for f in known[1:]
    ):
        value = None
    return InputFacts(dtype, shape, value)


def _join_shapes(a: tuple[Dim, ...] | None, b: tuple[Dim, ...] | None) -> tuple[Dim, ...] | None:
    if a is None or b is None or len(a) != len(b):
        return None
    # A name stands for one size within one call only.
    return tuple(x if x == y and isinstance(x, int) else None for x, y in zip(a, b, strict=True))
