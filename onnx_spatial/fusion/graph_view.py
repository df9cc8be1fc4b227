"""Read-only views of a graph and its nodes, as earlier edits left them, for all rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import onnx
import onnx_ir as ir

from onnx_spatial.analysis import attributes
from onnx_spatial.fusion.layout import Array
from onnx_spatial.fusion.matcher import Matcher
from onnx_spatial.maps.polynomial import Polynomial
from onnx_spatial.maps.sizes import SymbolicValues
from onnx_spatial.model.inference import constant_folding, shape_inference
from onnx_spatial.operators.spellings import Conflict
from onnx_spatial.operators.spellings.call import AttributeValue


@dataclass(frozen=True)
class GraphView:
    """What is known of the values of one graph, by the names of the original.

    Attributes:
        matcher: the nodes.
        scope: types and known values.
        sizes: sizes as polynomials.
        opset: version of the default domain.
    """

    matcher: Matcher
    scope: constant_folding.ConstantScope
    sizes: SymbolicValues
    opset: int

    def known(self, value: ir.Value | None) -> Array | None:
        """Return the elements of a small tensor that is known before the model runs."""
        if value is None:
            return None
        if value.const_value is not None:
            return value.const_value.numpy()
        node = value.producer()
        if node is not None and self.matcher.message(node) is None:
            if node.op_type != "Constant" or "value" not in node.attributes:
                return None
            tensor = node.attributes["value"].value
            return None if tensor is None else tensor.numpy()
        return self.scope.value(value.name) if value.name else None

    def dims(self, name: str | None) -> tuple[Polynomial, ...] | None:
        """Return the dims of a value; None if not even the rank is known."""
        return self.sizes.dims(name) if name else None

    def lengths(self, name: str | None, axes: Sequence[int]) -> list[int | None]:
        """Return the lengths of some axes of a value, None where unknown."""
        dims = self.dims(name)
        return [None if dims is None else dims[axis].constant for axis in axes]

    def attributes(self, message: onnx.NodeProto) -> dict[str, AttributeValue]:
        """Return the attributes of a node; those of its function have the value that all calls give."""
        if message.output and any(a.ref_attr_name for a in message.attribute):
            known = self.scope.producer(message.output[0])
            if known is not None and known.op_type == message.op_type:
                message = known
        return attributes(message)

    def element_types(self, name: str) -> frozenset[int]:
        """Return the ONNX element type of a value; empty if it is unknown."""
        known = shape_inference.element_type(self.scope.type(name))
        return frozenset() if known is None else frozenset({known})


@dataclass(frozen=True)
class NodeView:
    """A node of the graph, and what is known of its inputs before the model runs.

    Attributes:
        node: the node.
        graph: the graph that holds it.
    """

    node: ir.Node
    graph: GraphView

    @property
    def op_type(self) -> str:
        """The operator type."""
        return self.node.op_type

    @property
    def opset(self) -> int:
        """The version of the default domain."""
        return self.graph.opset

    @cached_property
    def input_names(self) -> list[str]:
        """Names of the inputs; "" for one that is missing."""
        return ["" if value is None else value.name or "" for value in self.node.inputs]

    @cached_property
    def output_names(self) -> list[str]:
        """Names of the outputs; "" for one that is missing."""
        return [value.name or "" for value in self.node.outputs]

    @cached_property
    def attributes(self) -> dict[str, AttributeValue]:
        """The attributes as Python values; one that differs between calls of a function is no number."""
        return self.graph.matcher.attributes(self.node)

    @property
    def differing(self) -> list[str]:
        """Names of the attributes without a common value in all calls of the function.

        Those of type FLOAT are left out: rules need no value of theirs, or ask for it themselves.
        """
        message = self.graph.matcher.message(self.node)
        floats = {a.name for a in message.attribute if a.type == a.FLOAT} if message else set()
        return [
            name
            for name, value in self.attributes.items()
            if isinstance(value, Conflict) and name not in floats
        ]

    def input(self, index: int) -> ir.Value | None:
        """Return an input; None if it is missing."""
        return self.node.inputs[index] if index < len(self.node.inputs) else None

    def has(self, index: int) -> bool:
        """Return whether there is an input of this index."""
        return self.input(index) is not None

    def known(self, index: int) -> Array | None:
        """Return the elements of an input; None if they are unknown."""
        return self.graph.known(self.input(index))

    def dims(self, index: int) -> tuple[Polynomial, ...] | None:
        """Return the dims of an input; None if the rank is unknown."""
        value = self.input(index)
        return None if value is None else self.graph.dims(value.name)

    def entries(self, index: int) -> tuple[Polynomial, ...] | None:
        """Return the elements of an input that is a vector of sizes; None if it is none."""
        value, known = self.input(index), self.known(index)
        if known is not None:
            return tuple(Polynomial.of(int(entry)) for entry in known.reshape(-1))
        entries = self.graph.sizes.entries(value.name) if value is not None and value.name else None
        return None if entries is None else tuple(entries)

    def integer(self, name: str, default: int) -> int | None:
        """Return an INT attribute; None if it is of another type."""
        value = self.attributes.get(name, default)
        return value if isinstance(value, int) else None

    def integers(self, name: str, default: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return an INTS attribute; None if it is of another type."""
        value = self.attributes.get(name, default)
        if isinstance(value, tuple) and all(isinstance(v, int) for v in value):
            return tuple(int(v) for v in value)
        return None

    def sizes(self, name: str, index: int) -> tuple[Polynomial, ...] | None:
        """Return what an attribute lists, or in newer opsets an input; None if it is unknown."""
        if name in self.attributes:
            listed = self.integers(name, ())
            return None if listed is None else tuple(map(Polynomial.of, listed))
        return self.entries(index)

    def axes(self, index: int) -> tuple[int, ...] | None:
        """Return what the attribute `axes` lists, or in newer opsets an input; None if unknown."""
        if "axes" in self.attributes:
            return self.integers("axes", ())
        known = self.known(index)
        return None if known is None else tuple(int(v) for v in known.reshape(-1))
