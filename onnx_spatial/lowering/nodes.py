"""Collect the nodes and constants of one operator's lowering, and estimate their time.

The same node or constant twice is one. Each node is priced as it is added (`cost_model`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnx_spatial.errors import Code, ConversionError
from onnx_spatial.lowering import cost_model
from onnx_spatial.lowering.cost_model import Work
from onnx_spatial.operators.operator import INT64_MAX

T = TypeVar("T")

#: Types of node attributes.
Attribute = int | str | Sequence[int] | ir.Attr

#: The opset that brought an operator, or a form of it; older ones need another way.
SINCE = {
    **dict.fromkeys(("ConstantOfShape", "Less of integers", "NonZero", "Where"), 9),
    "integers in Constant": 9,  # functions have no initializers
    "inputs of Slice": 10,
    **dict.fromkeys(("GatherElements", "GatherND", "negative indices of Gather"), 11),
    **dict.fromkeys(("Range", "inputs of Pad"), 11),
    "Max of integers": 12,
    **dict.fromkeys(("bfloat16 in Gather", "parts of Split"), 13),
    "allowzero": 14,
    **dict.fromkeys(("CastLike", "part of Shape"), 15),
    "BitCast": 26,
}


class NewerOpsetError(ConversionError):
    """Lowering that the model's opset cannot express; the message names the first one that can."""

    code = Code.OPSET_TOO_OLD

    def __init__(self, what: str, opset: int) -> None:
        super().__init__(f"{what} need opset {opset}")


class NodeList:
    """Nodes and constants of one operator's lowering.

    Attributes:
        opset: version of the default domain in force.
        nodes: in execution order.
        constants: values of constants, in order of first use, with a hint for their names.
        weights: of each case of estimated sizes in the time; they sum up to the number of cases.
    """

    def __init__(self, opset: int) -> None:
        self.weights: tuple[float, ...] = (1.0,)
        self._case = 0
        self.opset = opset
        self.nodes: list[ir.Node] = []
        self.constants: list[tuple[ir.Value, str]] = []
        self._constant_of: dict[tuple[str, tuple[int, ...], bytes], ir.Value] = {}
        self._outputs_of: dict[tuple[object, ...], tuple[ir.Value, ...]] = {}
        self._works_of: dict[ir.Node, list[Work]] = {}
        self._folded: set[ir.Value] = set()

    def op(
        self,
        op_type: str,
        *inputs: ir.Value | None,
        work: Callable[[], Work] | None = None,
        **attributes: Attribute,
    ) -> ir.Value:
        """Add a node of the default domain with one output and return that.

        Args:
            op_type: its type.
            inputs: its inputs, None for one that is left out.
            work: returns its work, by estimates of sizes; None for arithmetic on sizes.
            attributes: its attributes.
        """
        return self.add_node(op_type, inputs, 1, work, attributes)[0]

    def add_node(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        outputs: int,
        work: Callable[[], Work] | None,
        attributes: Mapping[str, Attribute],
    ) -> tuple[ir.Value, ...]:
        """Add a node with this number of outputs and return them; an equal node is reused."""
        hashable = ((name, _hashable_value(value)) for name, value in attributes.items())
        key = (op_type, outputs, *map(id, inputs), *hashable)
        if key not in self._outputs_of:
            node_attributes = [_make_attribute(name, value) for name, value in attributes.items()]
            node = ir.Node("", op_type, inputs, node_attributes, num_outputs=outputs)
            self.nodes.append(node)
            self._works_of[node] = self.in_each_case(work or cost_model.small)
            if all(v is None or self.is_constant(v) for v in inputs):
                self._folded.update(node.outputs)  # runtimes compute it once, when they load
            self._outputs_of[key] = tuple(node.outputs)
        return self._outputs_of[key]

    @contextmanager
    def inserted(self, place: int) -> Iterator[None]:
        """Add nodes at a place between those that are there, none of which is reused."""
        nodes_behind = self.nodes[place:]
        outputs_of = self._outputs_of
        self.nodes = self.nodes[:place]
        self._outputs_of = {}
        yield
        self.nodes += nodes_behind
        self._outputs_of = outputs_of

    def note_constant(self, value: ir.Value) -> None:
        """Note that a value is known before the model runs: what it alone leads to takes no time."""
        self._folded.add(value)

    def is_constant(self, value: ir.Value) -> bool:
        """Tell whether a value is a constant, or computed from constants only."""
        return value.const_value is not None or value in self._folded

    def works(self, case: int = 0) -> list[Work]:
        """Return the work of the nodes that each run executes, in a case of estimated sizes."""
        executed = (node for node in self.nodes if node.outputs[0] not in self._folded)
        works_of_cases = (self._works_of[node] for node in executed)
        return [works[min(case, len(works) - 1)] for works in works_of_cases]

    @property
    def cost(self) -> float:
        """Estimated time of one run, in microseconds."""
        nanoseconds = (
            weight * cost_model.total_time(self.works(case))
            for case, weight in enumerate(self.weights)
        )
        return sum(nanoseconds) / 1000

    def in_each_case(self, compute: Callable[[], T], cases: int = 0) -> list[T]:
        """Compute something for each case of estimated sizes."""
        results = []
        for case in range(cases or len(self.weights)):
            self._case = case
            results.append(compute())
        self._case = 0
        return results

    def constant(self, array: npt.NDArray[np.generic], hint: str) -> ir.Value:
        """Return a constant tensor; equal ones are shared."""
        strings = array.dtype.kind == "O"
        data = repr(array.tolist()).encode() if strings else array.tobytes()
        key = (array.dtype.name, array.shape, data)
        if key not in self._constant_of:
            if strings:
                texts = [str(text).encode() for text in array.reshape(-1).tolist()]
                tensor: ir.TensorProtocol = ir.StringTensor(texts, shape=ir.Shape(array.shape))
            else:
                tensor = ir.Tensor(np.ascontiguousarray(array).reshape(array.shape))
            value = ir.Value(
                type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor
            )
            self._constant_of[key] = value
            self.constants.append((value, hint))
        return self._constant_of[key]

    def ints(self, values: Sequence[int], hint: str) -> ir.Value:
        """Return a constant 1-D int64 tensor.

        Raises:
            ConversionError: a value does not fit into 64 bits.
        """
        if any(abs(value) > INT64_MAX for value in values):
            raise ConversionError("its sizes come to more than 64-bit integers hold")
        return self.constant(np.array(values, np.int64).reshape(-1), hint)

    def prune(self, output: ir.Value) -> None:
        """Remove the nodes and constants that `output` does not depend on."""
        needed = {output}
        for node in reversed(self.nodes):
            if needed.intersection(node.outputs):
                needed.update(v for v in node.inputs if v is not None)
        for node in self.nodes:
            if not needed.intersection(node.outputs):
                for index in range(len(node.inputs)):
                    node.replace_input_with(index, None)
        self.nodes = [node for node in self.nodes if needed.intersection(node.outputs)]
        self.constants = [(value, hint) for value, hint in self.constants if value in needed]
        kept = ((key, value) for key, value in self._constant_of.items() if value in needed)
        self._constant_of = dict(kept)


def _make_attribute(name: str, value: Attribute) -> ir.Attr:
    # `ir.node` would look for the type of each value: a third of the time that a node takes.
    if isinstance(value, ir.Attr):
        return value
    if isinstance(value, int):
        return ir.AttrInt64(name, value)
    return ir.AttrString(name, value) if isinstance(value, str) else ir.AttrInt64s(name, value)


def _hashable_value(value: Attribute) -> object:
    if isinstance(value, ir.Attr):
        return id(value)
    return value if isinstance(value, int | str) else tuple(value)
