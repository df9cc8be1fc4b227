"""Compute the maps of the values of a graph from its nodes, by the one table of rules, `RULES`.

    value("y")  ->  maps of all values that y depends on, inputs first, then RULES[op_type] of each node

A call of a local function, and the branch of an If that its condition takes, are graphs of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from functools import cache, partial
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from onnx_spatial.maps import (
    rules_elements,
    rules_numbers,
    rules_products,
    rules_reshape,
    rules_select,
)
from onnx_spatial.maps.cases import Case, UndecidedError
from onnx_spatial.maps.elements import Array, constant
from onnx_spatial.maps.node import MAX_OPSET, NodeView, Rule
from onnx_spatial.maps.polynomial import ONE, ZERO, Polynomial, product
from onnx_spatial.maps.tensor import Tensor
from onnx_spatial.model import op_traits, traversal

FunctionKey = tuple[str, str, str]

#: Return the map of the output of a node, or None to leave the node to the rules of ONNX's operators.
#: The last argument is the local function that holds the node, None outside of functions: names in a
#: function are its own.
NodeRule = Callable[
    [Case, onnx.NodeProto, Sequence[Tensor | None], FunctionKey | None], Tensor | None
]

#: Return the maps of the outputs of a node without a rule.
UnknownRule = Callable[[Case, NodeView, onnx.NodeProto, bool], Sequence[Tensor]]

RULES: dict[str, Rule] = {
    **rules_reshape.RULES,
    **rules_select.RULES,
    **rules_numbers.RULES,
    **rules_products.RULES,
    **rules_elements.RULES,
}


class GraphMaps:
    """The maps of the values of a graph.

    Args:
        case: the case to compute them in.
        nodes: of the graph.
        inputs: maps of the inputs.
        constants: initializers by name; read when they are needed.
        functions: local functions by domain, name and overload.
        rule: maps of further nodes; it goes before the rules of ONNX's operators.
        opset: version of ONNX's own operators.
        legal: whether a run succeeds at the sizes in question, as is assumed of the original.
        function: the local function that holds the nodes.
        unknown: maps of nodes without a rule; its last argument says whether the node is in a
            function or a branch.
    """

    def __init__(
        self,
        case: Case,
        nodes: Sequence[onnx.NodeProto],
        inputs: Mapping[str, Tensor],
        constants: Mapping[str, Callable[[], Array]],
        functions: Mapping[FunctionKey, onnx.FunctionProto],
        rule: NodeRule | None = None,
        *,
        opset: int = MAX_OPSET,
        legal: bool = False,
        function: FunctionKey | None = None,
        unknown: UnknownRule | None = None,
    ) -> None:
        #: Prefix of names that tells functions and branches apart.
        self._place = ""
        self._function = function
        self._case = case
        self._producers = _producers_of(nodes)
        self._inputs = inputs
        self._constants = constants
        self._functions = functions
        self._rule = rule
        #: The maps of the graph around a branch.
        self._outer: GraphMaps | None = None
        self._values: dict[str, Tensor] = {}
        #: Attributes of the call of the function.
        self._referred: Mapping[str, onnx.AttributeProto] = {}
        self._opset = opset
        self._legal = legal
        self._unknown = unknown

    def value(self, name: str) -> Tensor:
        """Return the map of a value.

        Raises:
            UndecidedError: it has no index map.
        """
        if name not in self._values and self._outer is not None and not self._is_own(name):
            return self._outer.value(name)
        is_known = self._values.__contains__
        for current in traversal.depth_first(name, self._own_inputs, is_known):
            self._compute_value(current, self._producers.get(current))
        return self._values[name]

    def _is_own(self, name: str) -> bool:
        return name in self._inputs or name in self._constants or name in self._producers

    def _own_inputs(self, name: str) -> list[str]:
        """Return the values of this graph that a value is computed from."""
        node = self._producers.get(name)
        return [n for n in node.input if n and self._is_own(n)] if node is not None else []

    def _compute_value(self, name: str, node: onnx.NodeProto | None) -> None:
        if name in self._inputs:
            self._values[name] = self._inputs[name]
        elif name in self._constants:
            self._values[name] = constant(self._case, self._constants[name]())
        elif node is not None:
            try:
                results = self._apply_rule(node)
            except (IndexError, ZeroDivisionError, ValueError) as error:
                raise UndecidedError(f"{node.op_type}: {error}") from error
            for output, tensor in zip(node.output, results, strict=False):
                self._values[output] = tensor
            if name not in self._values:
                raise UndecidedError(f"{node.op_type}: output {name!r} has no index map")
        else:
            raise UndecidedError(f"the value {name!r} has no index map")

    def _apply_rule(self, node: onnx.NodeProto) -> Sequence[Tensor]:
        inputs = [self.value(n) if n else None for n in node.input]
        if self._rule is not None:
            result = self._rule(self._case, node, inputs, self._function)
            if result is not None:
                return [result]
        rules = RULES
        if not op_traits.is_standard(node):
            rules = rules_products.FUSED_RULES if node.domain == rules_products.DOMAIN else {}
            function = self._functions.get((node.domain, node.op_type, node.overload))
            if function is not None and node.op_type not in rules:
                return self._call_function(function, node, inputs)
            if function is not None:  # onnxruntime runs its own kernel
                raise UndecidedError(f"function {node.op_type!r} redefines an operator")
        elif not self._legal:
            _check_signature(node, self._opset)
        if node.op_type == "Constant" and rules is RULES:
            return [constant(self._case, self._constant_value(node))]
        rule = rules.get(node.op_type)
        if rule is None and rules is not RULES:
            raise UndecidedError(f"operator {_full_name(node)} has no index map")
        view = NodeView(
            node.op_type,
            self._attributes(node),
            inputs,
            list(node.output),
            self._opset,
            legal=self._legal,
            place=self._place,
        )
        if rule is not None:
            return rule(self._case, view)
        unknown = self._unknown and partial(
            self._unknown, self._case, view, node, bool(self._place)
        )
        if node.op_type != "If" and unknown is None:
            raise UndecidedError(f"operator {_full_name(node)} has no index map")
        if node.op_type != "If" and unknown is not None:
            return unknown()
        condition = self._condition(inputs)
        if condition.constant is None and unknown is not None:
            with suppress(UndecidedError):  # such as an output of unknown rank, or other graphs
                return unknown()
        return self._maps_of_if(node, condition)

    def _stated(self, node: onnx.NodeProto) -> dict[str, onnx.AttributeProto]:
        """Return the attributes of a node, those that refer to the call of the function included."""
        values = {
            a.name: self._referred.get(a.ref_attr_name) if a.ref_attr_name else a
            for a in node.attribute
        }
        return {name: a for name, a in values.items() if a is not None}

    def _attributes(self, node: onnx.NodeProto) -> dict[str, Any]:
        return {n: onnx.helper.get_attribute_value(a) for n, a in self._stated(node).items()}

    def _constant_value(self, node: onnx.NodeProto) -> Array:
        ((name, value),) = self._attributes(node).items()
        if name == "value" and value.external_data:  # of which only the caller knows the folder
            raise UndecidedError("Constant: its value is in another file")
        if name == "value":
            return numpy_helper.to_array(value)
        if name in ("value_int", "value_ints"):
            return np.asarray(value, np.int64)
        if name in ("value_float", "value_floats"):
            return np.asarray(value, np.float32)
        if name in ("value_string", "value_strings"):
            return np.asarray(value, object)
        raise UndecidedError(f"Constant with {name} has no index map")

    def _inner_maps(
        self,
        name: str,
        nodes: Sequence[onnx.NodeProto],
        inputs: Mapping[str, Tensor],
        constants: Mapping[str, Callable[[], Array]],
    ) -> GraphMaps:
        """Return the maps of a graph inside of this one, where names are its own."""
        inner = copy(self)
        inner._producers, inner._values = _producers_of(nodes), {}
        inner._inputs, inner._constants = inputs, constants
        inner._place = f"{self._place}{name}/"
        return inner

    def _call_function(
        self, function: onnx.FunctionProto, node: onnx.NodeProto, inputs: Sequence[Tensor | None]
    ) -> list[Tensor]:
        bound = {n: t for n, t in zip(function.input, inputs, strict=False) if t is not None}
        body = self._inner_maps(node.output[0], function.node, bound, {})
        body._outer = None
        body._referred = {a.name: a for a in function.attribute_proto} | self._stated(node)
        body._opset = op_traits.opset_of(function.opset_import) or self._opset
        body._function = (function.domain, function.name, function.overload)
        return [body.value(n) for n in function.output]

    def _condition(self, inputs: Sequence[Tensor | None]) -> Polynomial:
        """Return the condition of an If, 0 or not; unknown ones are equal where their elements are."""
        (condition,) = inputs
        if condition is None or product(condition.dims) != ONE:
            raise UndecidedError("If: the condition has no index map")
        value = condition.at(tuple(ZERO for _ in condition.dims))
        if condition.whole:
            return value
        return self._case.symbol("condition", 0, kind=("condition", value))

    def _maps_of_if(self, node: onnx.NodeProto, value: Polynomial) -> list[Tensor]:
        name = "else_branch" if self._case.is_zero(value) else "then_branch"
        graph = next(a.g for a in node.attribute if a.name == name)
        constants = {t.name: partial(numpy_helper.to_array, t) for t in graph.initializer}
        body = self._inner_maps(f"{node.output[0]}.{name}", graph.node, {}, constants)
        body._outer = self
        return [body.value(v.name) for v in graph.output]


def _full_name(node: onnx.NodeProto) -> str:
    return node.op_type if op_traits.is_standard(node) else f"{node.domain}:{node.op_type}"


def _producers_of(nodes: Sequence[onnx.NodeProto]) -> dict[str, onnx.NodeProto]:
    return {name: node for node in nodes for name in node.output if name}


def _check_signature(node: onnx.NodeProto, opset: int) -> None:
    """Require that a node has no more than its operator knows, because rules look no further.

    Raises:
        UndecidedError: it has another attribute, or an input or an output too many.
    """
    inputs, outputs, attributes = _signature_of(node.op_type, opset)
    if len(node.input) > inputs or len(node.output) > outputs:
        raise UndecidedError(f"{node.op_type}: an input or an output too many")
    unknown = [a.name for a in node.attribute if a.name not in attributes]
    if unknown:
        raise UndecidedError(f"{node.op_type} has no attribute {unknown[0]!r}")


@cache
def _signature_of(op_type: str, opset: int) -> tuple[int, int, frozenset[str]]:
    """Return the most inputs and outputs of an operator, and the names of its attributes.

    Raises:
        UndecidedError: this opset has no such operator.
    """
    try:
        schema = onnx.defs.get_schema(op_type, opset)
    except onnx.defs.SchemaError:
        raise UndecidedError(f"opset {opset} has no operator {op_type}") from None
    return schema.max_input, schema.max_output, frozenset(schema.attributes)
