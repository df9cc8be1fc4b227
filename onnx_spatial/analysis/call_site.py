"""A node where it is run: in the graph, or in one of the calls of the function that holds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import onnx

from onnx_spatial.analysis.merge_call_sites import join, join_inputs
from onnx_spatial.analysis.node_info import attributes, dtype_name, input_facts
from onnx_spatial.analysis.operator_info import OperatorInfo
from onnx_spatial.errors import OperatorError
from onnx_spatial.model.inference import constant_folding, shape_inference
from onnx_spatial.operators import Dim
from onnx_spatial.operators.spellings import Call, InputFacts, NodeFacts, read


@dataclass
class CallSite:
    """A node of ours in the inlined model.

    Attributes:
        info: the node.
        node: what stands for it here.
        scope: the values that can be seen here.
        types: of its inputs, each time that they were inferred.
        declared: element type that the model declares of its output.
        ranked: whether a rank of the data that is known is that of every run (`InputFacts.ranked`).
    """

    info: OperatorInfo
    node: onnx.NodeProto
    scope: constant_folding.ConstantScope | None = None
    types: list[list[onnx.TypeProto | None]] = field(default_factory=list)
    declared: int | None = None
    ranked: bool = True

    def facts(self) -> NodeFacts:
        """What is known of the node here."""
        inputs: list[InputFacts | None] = []
        for index, name in enumerate(self.node.input):
            if not name:
                inputs.append(None)
                continue
            seen = [t[index] for t in self.types if index < len(t)]
            if not seen and self.scope is not None:
                seen = [self.scope.type(name)]
            fact = join_inputs([input_facts(t) for t in seen]) or InputFacts()
            # Only parameters are of interest as values: data is never looked at.
            value = self.scope.value(name) if index and self.scope is not None else None
            if value is not None:
                fact = InputFacts.of(value)
            inputs.append(fact if index else replace(fact, ranked=self.ranked))
        base = self.info.facts
        return replace(base, inputs=tuple(inputs), attributes=attributes(self.node))

    def has_rank(self) -> bool:
        """Whether the rank of the data is known."""
        data = next(iter(self.facts().inputs), None)
        return data is not None and data.shape is not None

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
                raise OperatorError(
                    f"the stored tensor {name!r} is damaged: it does not hold {declared}, as it says"
                )

    def _data_types(self) -> list[onnx.TypeProto | None]:
        """Types of the data input that were seen, or what is declared of it."""
        seen = [types[0] for types in self.types if types]
        if not seen and self.scope is not None and self.node.input:
            seen = [self.scope.type(self.node.input[0])]
        return seen

    def element_types(self) -> list[int]:
        """ONNX element types of the data input that were seen, or at least declared.

        Behind an operator that onnx does not know nothing is: the output's type, which is the same,
        may be declared all the same.
        """
        found = [t for t in map(shape_inference.element_type, self._data_types()) if t is not None]
        if not found and self.declared is not None:
            found = [self.declared]
        return found


def output_type(occurrence: CallSite, types: list[onnx.TypeProto | None]) -> onnx.TypeProto | None:
    """Type of the output for those of the inputs; None where even the element type is unknown."""
    element_type = shape_inference.element_type(types[0]) if types else None
    if element_type is None:
        return None
    facts = occurrence.facts()
    facts = replace(facts, inputs=(input_facts(types[0]), *facts.inputs[1:]))
    try:
        shape = _output_shape(read(facts), facts)
    except OperatorError:
        shape = None
    return onnx.helper.make_tensor_type_proto(element_type, shape)


def conclude(info: OperatorInfo, occurrences: Sequence[CallSite], symbols: set[str]) -> None:
    """What all occurrences agree on; the first rule that any of them breaks."""
    each = [_with_own_names(o.facts(), symbols) for o in occurrences] or [info.facts]
    info.facts = join(each)
    info.element_types = frozenset(t for o in occurrences for t in o.element_types())
    try:
        _check_node(info.node)
        for occurrence in occurrences:
            occurrence.check()
        for facts in each:
            read(facts)
        info.call = read(info.facts)
        info.output_shape = _output_shape(info.call, info.facts)
    except OperatorError as error:
        info.call, info.error = None, str(error)


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


def _check_node(node: onnx.NodeProto) -> None:
    if not node.output or not node.output[0]:
        raise OperatorError("the node gives no output")
    names = [a.name for a in node.attribute]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise OperatorError(f"attribute {repeated[0]} is given more than once")
    if any(node.output[1:]):
        raise OperatorError(f"the operator has one output, the node {len(node.output)}")
