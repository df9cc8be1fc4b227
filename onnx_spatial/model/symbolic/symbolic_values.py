"""Follow sizes that are computed at run time, as polynomials, so that differences can be constant.

    s = Shape(x); e = 2 - (s[1] mod 2)          pads = [[0, e+2]]      crops = [[0, e]]

`pads - crops` is [[0, 2]] whatever the size of x; `SymbolicValues.entries` gives both as polynomials
whose difference is a constant. It follows values backward through shape arithmetic (`eval_elementwise`,
`eval_movement`) and shapes through the operators in between (`eval_shapes`). Where it cannot follow, the
value is an atom of its own: equal to itself, and to nothing else.

int32 and int64 are one ring here. Sums and products agree in both as far as 32 bits go, and legal
sizes lie below 2^31: a cast between the two changes no size, and an expression for a size, its
quotients and comparisons included, is right as long as nothing on the way to it overflows, which
would make the model wrong itself. The number of elements of a tensor is such a size too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import onnx

from onnx_spatial.model import op_traits
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


class _Question(NamedTuple):
    """What is asked of a value: its elements, or its dims."""

    scope: constant_folding.ConstantScope
    name: str
    elements: bool


class SymbolicValues:
    """The sizes and the small integer tensors that can be seen in one graph, as expressions."""

    def __init__(self, scope: constant_folding.ConstantScope, rules: Rule | None = None) -> None:
        """Look at the values of `scope`.

        Args:
            scope: a graph, with the types that are known of its values.
            rules: says the dims behind nodes of other domains than ONNX's own, if given.
        """
        self._scope = scope
        self._rule = rules
        self._entries: dict[_Question, SymbolicTensor | None] = {}
        self._dims: dict[_Question, Dims | None] = {}

    def entries(self, name: str) -> tuple[Polynomial, ...] | None:
        """The elements, in C order, of an integer tensor of at most 64 elements.

        Returns:
            None if the tensor is larger, of another type, or its number of elements is unknown.
        """
        found = self._tensor(name)
        return found.elements if found is not None else None

    def shape_of_entries(self, name: str) -> tuple[int, ...] | None:
        """The shape that `entries` has; None where that is None."""
        found = self._tensor(name)
        return found.table.shape if found is not None else None

    def dims(self, name: str) -> Dims | None:
        """The dims of a tensor; None if its rank is unknown."""
        question = self._question(self._scope, name, elements=False)
        if question is None:
            return None
        self._settle(question)
        return self._dims[question]

    def note(self, name: str, dims: Sequence[Polynomial]) -> None:
        """Take down the dims of a value that the caller knows better.

        To be called before anything that lies behind the value is asked for: what has been
        answered stays as it is (and true), but does not fit what is answered later.
        """
        question = self._question(self._scope, name, elements=False)
        if question is not None:
            self._dims[question] = symbols.named_dims(question.scope, name, dims)

    def _tensor(self, name: str) -> SymbolicTensor | None:
        question = self._question(self._scope, name, elements=True)
        if question is None:
            return None
        self._settle(question)
        found = self._entries[question]
        return (
            found if found is not None and found.element_type in symbolic_tensor.INTEGERS else None
        )

    def _question(
        self, scope: constant_folding.ConstantScope, name: str, *, elements: bool
    ) -> _Question | None:
        owner = scope.owner(name) if name else None
        return _Question(owner, name, elements) if owner is not None else None

    def _settle(self, question: _Question) -> None:
        """Answer a question and those it leads to, depth first without recursion.

        What is asked for while it is in work, in a cyclic graph, is opaque to the one who asks.
        """
        stack, in_work = [question], set[_Question]()
        while stack:
            current = stack[-1]
            if self._is_settled(current):
                stack.pop()
            elif current in in_work:
                if current.elements:
                    self._entries[current] = self._find_entries(current)
                else:
                    self._dims[current] = self._find_dims(current)
                in_work.discard(current)
            else:
                in_work.add(current)
                stack.extend(
                    s for s in self._sources(current) if not (self._is_settled(s) or s in in_work)
                )

    def _is_settled(self, question: _Question) -> bool:
        return question in (self._entries if question.elements else self._dims)

    def _followed(self, question: _Question) -> onnx.NodeProto | None:
        """The node behind a value, if what it does is looked into to answer the question."""
        scope, name, elements = question
        node, static = scope.producer(name), symbols.static(scope.type(name))
        if node is None:
            return None
        if elements:
            if static is not None and math.prod(static) > symbolic_tensor.MAX_ENTRIES:
                return None
            return node if op_traits.is_standard(node) and node.op_type in _OPERATORS else None
        if static is not None or name != node.output[0]:
            return None
        if op_traits.is_standard(node):
            return node if node.op_type in eval_shapes.OPERATORS else None
        return node if self._rule is not None else None

    def _sources(self, question: _Question) -> list[_Question]:
        """What has to be known before a question is answered."""
        node = self._followed(question)
        if node is None:
            return []
        scope, name, elements = question
        if elements and scope.value(name) is not None:
            return []
        measured: Sequence[str] = []  # their dims are of interest
        read: Sequence[str] = []  # their elements are
        if elements and node.op_type in eval_shapes.MEASURING:
            measured = node.input[:1]
        elif elements:
            read = node.input
        elif op_traits.is_standard(node):
            measured = node.input
            read = _parameters(node)
        else:
            measured, read = node.input[:1], node.input[1:]
        asked = (
            *(self._question(scope, source, elements=False) for source in measured),
            *(self._question(scope, source, elements=True) for source in read),
        )
        return [q for q in asked if q is not None]

    def _source_dims(self, scope: constant_folding.ConstantScope, name: str) -> Dims | None:
        question = self._question(scope, name, elements=False)
        if question is None:
            return None
        if question in self._dims:
            return self._dims[question]
        return symbols.named_dims(question.scope, name)

    def _source_entries(
        self, scope: constant_folding.ConstantScope, name: str
    ) -> SymbolicTensor | None:
        question = self._question(scope, name, elements=True)
        if question is None:
            return None
        if question in self._entries:
            return self._entries[question]
        return symbols.opaque_entries(question.scope, name)

    def _find_entries(self, question: _Question) -> SymbolicTensor | None:
        scope, name, _ = question
        value = scope.value(name)
        if value is not None:
            return symbolic_tensor.of_array(value)
        return self._follow_entries(question) or symbols.opaque_entries(scope, name)

    def _follow_entries(self, question: _Question) -> SymbolicTensor | None:
        node = self._followed(question)
        attributes = symbolic_tensor.attributes(node) if node is not None else None
        if node is None or attributes is None:
            return None
        try:
            return self._apply(question, node, attributes)
        except Exception:  # the node breaks its operator's rules, as the run will say
            return None

    def _apply(
        self, question: _Question, node: onnx.NodeProto, attributes: Attributes
    ) -> SymbolicTensor | None:
        scope, name, _ = question
        if node.op_type in eval_shapes.MEASURING:
            dims = self._source_dims(scope, node.input[0])
            return eval_shapes.measure(node.op_type, attributes, dims) if dims is not None else None
        inputs = [self._source_entries(scope, source) for source in node.input]
        if any(source and i is None for source, i in zip(node.input, inputs, strict=True)):
            return None
        if node.op_type in eval_elementwise.OPERATORS:
            return eval_elementwise.compute(node.op_type, attributes, inputs)
        index = list(node.output).index(name)
        return eval_movement.move(node.op_type, attributes, len(node.output), index, inputs)

    def _find_dims(self, question: _Question) -> Dims | None:
        scope, name, _ = question
        return symbols.named_dims(scope, name, self._follow_dims(question))

    def _follow_dims(self, question: _Question) -> Sequence[Polynomial | None] | None:
        node, scope = self._followed(question), question.scope
        attributes = symbolic_tensor.attributes(node) if node is not None else None
        if node is None or attributes is None:
            return None
        if not op_traits.is_standard(node):
            return self._ask_rule(node, scope)
        dims = [self._source_dims(scope, source) for source in node.input]
        parameters = _parameters(node)
        inputs = [self._source_entries(scope, s) if s in parameters else None for s in node.input]
        if any(i is None for s, i in zip(node.input, inputs, strict=True) if s in parameters):
            return None
        try:
            return eval_shapes.follow(node.op_type, attributes, dims, inputs)
        except Exception:  # as above
            return None

    def _ask_rule(
        self, node: onnx.NodeProto, scope: constant_folding.ConstantScope
    ) -> Sequence[Polynomial] | None:
        if self._rule is None:
            return None
        first, *others = node.input or [""]
        found = [self._source_entries(scope, source) for source in others]
        elements = [
            f.elements if f is not None and f.element_type in symbolic_tensor.INTEGERS else None
            for f in found
        ]
        return self._rule(node, self._source_dims(scope, first), elements)


#: Operators whose outputs are looked into for their elements.
_OPERATORS = eval_elementwise.OPERATORS | eval_movement.OPERATORS | eval_shapes.MEASURING


def _parameters(node: onnx.NodeProto) -> list[str]:
    """Inputs of a standard operator that say what becomes of the dims of the others."""
    positions = eval_shapes.PARAMETERS.get(node.op_type, ())
    return [node.input[i] for i in positions if i < len(node.input) and node.input[i]]
