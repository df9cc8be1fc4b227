"""Evaluate sizes that a graph computes at run time as polynomials, so that differences are constant.

    s = Shape(x); e = 2 - (s[1] mod 2)          pads = [[0, e+2]]      crops = [[0, e]]

`pads - crops` is [[0, 2]] for every size of x; `SymbolicValues.entries` returns both as polynomials.
It follows values backward through shape arithmetic (`eval_elementwise`, `eval_movement`) and shapes
through other operators (`eval_shapes`). Where it cannot follow, the value is an atom of its own.

int32 and int64 are treated as one ring. Sums and products agree in both within 32 bits, and valid
sizes are below 2^31: a cast between the two changes no size. A polynomial for a size, its quotients
and comparisons included, is correct unless a step towards it overflows, which would make the model
itself wrong. The number of elements of a tensor is such a size, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import onnx

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.inference import constant_folding
from onnx_spatial.model.symbolic import (
    eval_elementwise,
    eval_movement,
    eval_shapes,
    symbolic_tensor,
    symbols,
)
from onnx_spatial.model.symbolic.eval_shapes import Dims
from onnx_spatial.model.symbolic.polynomial import Polynomial
from onnx_spatial.model.symbolic.symbolic_tensor import Attributes, SymbolicTensor
from onnx_spatial.model.symbolic.symbols import DimKey, ElementKey, NamedDimKey

__all__ = ["ElementKey", "Polynomial", "Rule", "DimKey", "SymbolicValues", "NamedDimKey"]

#: (node, dims of its first input, elements of its other inputs) -> dims of its first output.
Rule = Callable[
    [onnx.NodeProto, Dims | None, Sequence[tuple[Polynomial, ...] | None]],
    Sequence[Polynomial] | None,
]


class _Query(NamedTuple):
    """Query for the elements or the dims of a value."""

    scope: constant_folding.ConstantScope
    name: str
    elements: bool


class SymbolicValues:
    """Sizes and small integer tensors that are visible in one graph, as polynomials."""

    def __init__(self, scope: constant_folding.ConstantScope, rules: Rule | None = None) -> None:
        """Prepare to evaluate the values of `scope`.

        Args:
            scope: a graph, with the known types of its values.
            rules: gives the dims behind nodes of other domains than ONNX's own.
        """
        self._scope = scope
        self._rule = rules
        self._results: dict[_Query, SymbolicTensor | Dims | None] = {}

    def entries(self, name: str) -> tuple[Polynomial, ...] | None:
        """Return the elements, in C order, of an integer tensor of at most 64 elements.

        Returns:
            None if the tensor is larger, of another type, or its number of elements is unknown.
        """
        tensor = self.tensor(name)
        return tensor.elements if tensor is not None else None

    def shape_of_entries(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of the tensor of `entries`; None where that is None."""
        tensor = self.tensor(name)
        return tensor.table.shape if tensor is not None else None

    def dims(self, name: str) -> Dims | None:
        """Return the dims of a tensor; None if its rank is unknown."""
        query = self._query(self._scope, name, elements=False)
        result = self._evaluate(query) if query is not None else None
        return result if isinstance(result, tuple) else None

    def note(self, name: str, dims: Sequence[Polynomial]) -> None:
        """Set dims of a value that the caller knows better.

        Call it before any query for values that depend on this one: earlier results stay as they
        are. They are true, but cannot be compared with later ones.
        """
        query = self._query(self._scope, name, elements=False)
        if query is not None:
            self._results[query] = symbols.named_dims(query.scope, name, dims)

    def note_elements(self, name: str, elements: SymbolicTensor) -> None:
        """Set the elements of a value that the caller knows better; see `note`."""
        query = self._query(self._scope, name, elements=True)
        if query is not None:
            self._results[query] = elements

    def tensor(self, name: str) -> SymbolicTensor | None:
        """Return an integer tensor with its elements as polynomials; see `entries`."""
        query = self._query(self._scope, name, elements=True)
        return _integers(self._evaluate(query)) if query is not None else None

    def _query(
        self, scope: constant_folding.ConstantScope, name: str, *, elements: bool
    ) -> _Query | None:
        owner = scope.owner(name) if name else None
        return _Query(owner, name, elements) if owner is not None else None

    def _evaluate(self, query: _Query) -> SymbolicTensor | Dims | None:
        """Evaluate a query after those that it depends on; in a cycle, values are opaque."""
        for q in traversal.depth_first(query, self._sources, self._results.__contains__):
            self._results[q] = self._find_entries(q) if q.elements else self._find_dims(q)
        return self._results[query]

    def _producer(self, query: _Query) -> onnx.NodeProto | None:
        """Return the node that produces a value, if the query is evaluated through it."""
        scope, name, elements = query
        node, static = scope.producer(name), symbols.static(scope.type(name))
        if node is None:
            return None
        if elements:
            if static is not None and math.prod(static) > symbolic_tensor.MAX_ENTRIES:
                return None
            return node if op_traits.is_standard(node) and node.op_type in _OPERATORS else None
        # The outputs of Split differ along its axis only.
        if static is not None or (name != node.output[0] and node.op_type != "Split"):
            return None
        if op_traits.is_standard(node):
            return node if node.op_type in eval_shapes.OPERATORS else None
        return node if self._rule is not None else None

    def _sources(self, query: _Query) -> list[_Query]:
        """Return the queries that a query depends on."""
        node = self._producer(query)
        scope, _, elements = query
        if node is None or (elements and scope.value(query.name) is not None):
            return []
        by_dims: Sequence[str] = []
        by_elements: Sequence[str] = []
        if elements and node.op_type in eval_shapes.MEASURING:
            by_dims = node.input[:1]
        elif elements:
            by_elements = node.input
        elif op_traits.is_standard(node):
            by_dims, by_elements = node.input, _parameters(node)
        else:
            by_dims, by_elements = node.input[:1], node.input[1:]
        queries = (
            *(self._query(scope, source, elements=False) for source in by_dims),
            *(self._query(scope, source, elements=True) for source in by_elements),
        )
        return [q for q in queries if q is not None]

    def _source_dims(self, scope: constant_folding.ConstantScope, name: str) -> Dims | None:
        query = self._query(scope, name, elements=False)
        if query is None:
            return None
        if query not in self._results:
            return symbols.named_dims(query.scope, name)
        result = self._results[query]
        return result if isinstance(result, tuple) else None

    def _source_entries(
        self, scope: constant_folding.ConstantScope, name: str
    ) -> SymbolicTensor | None:
        query = self._query(scope, name, elements=True)
        if query is None:
            return None
        if query not in self._results:
            return symbols.opaque_entries(query.scope, name)
        result = self._results[query]
        return result if isinstance(result, SymbolicTensor) else None

    def _find_entries(self, query: _Query) -> SymbolicTensor | None:
        scope, name, _ = query
        value = scope.value(name)
        if value is not None:
            return symbolic_tensor.of_array(value)
        node = self._producer(query)
        attributes = symbolic_tensor.attributes(node) if node is not None else None
        result = None
        if node is not None and attributes is not None:
            with suppress(Exception):  # the node breaks its operator's rules, and fails when run
                result = self._apply(query, node, attributes)
        return result or symbols.opaque_entries(scope, name)

    def _apply(
        self, query: _Query, node: onnx.NodeProto, attributes: Attributes
    ) -> SymbolicTensor | None:
        scope, name, _ = query
        if node.op_type in eval_shapes.MEASURING:
            dims = self._source_dims(scope, node.input[0])
            return eval_shapes.measure(node.op_type, attributes, dims) if dims is not None else None
        inputs = [self._source_entries(scope, source) for source in node.input]
        if any(source and i is None for source, i in zip(node.input, inputs, strict=True)):
            return None
        if node.op_type in eval_elementwise.OPERATORS:
            return eval_elementwise.compute(node.op_type, attributes, inputs)
        if node.op_type in eval_elementwise.REDUCTIONS:
            return eval_elementwise.reduced(node.op_type, attributes, inputs)
        index = list(node.output).index(name)
        return eval_movement.move(node.op_type, attributes, len(node.output), index, inputs)

    def _find_dims(self, query: _Query) -> Dims | None:
        node, dims = self._producer(query), None
        attributes = symbolic_tensor.attributes(node) if node is not None else None
        if node is not None and attributes is not None:
            dims = self._follow_dims(query.scope, node, attributes)
        return symbols.named_dims(query.scope, query.name, dims)

    def _follow_dims(
        self, scope: constant_folding.ConstantScope, node: onnx.NodeProto, attributes: Attributes
    ) -> Sequence[Polynomial | None] | None:
        if not op_traits.is_standard(node):
            assert self._rule is not None
            first, *others = node.input or [""]
            tensors = [_integers(self._source_entries(scope, source)) for source in others]
            elements = [tensor.elements if tensor is not None else None for tensor in tensors]
            return self._rule(node, self._source_dims(scope, first), elements)
        dims = [self._source_dims(scope, source) for source in node.input]
        parameters = _parameters(node)
        inputs = [self._source_entries(scope, s) if s in parameters else None for s in node.input]
        if any(i is None for s, i in zip(node.input, inputs, strict=True) if s in parameters):
            return None
        with suppress(Exception):  # as above
            return eval_shapes.follow(node.op_type, attributes, dims, inputs)
        return None


#: Operators through which elements are evaluated.
_OPERATORS = (
    eval_elementwise.OPERATORS
    | eval_elementwise.REDUCTIONS
    | eval_movement.OPERATORS
    | eval_shapes.MEASURING
)


def _integers(result: SymbolicTensor | Dims | None) -> SymbolicTensor | None:
    """Return a result if it is a symbolic tensor of an integer type."""
    if isinstance(result, SymbolicTensor) and result.element_type in symbolic_tensor.INTEGERS:
        return result
    return None


def _parameters(node: onnx.NodeProto) -> list[str]:
    """Return the inputs of a standard operator that determine how dims change."""
    positions = eval_shapes.PARAMETERS.get(node.op_type, ())
    return [node.input[i] for i in positions if i < len(node.input) and node.input[i]]
