"""Give the values of a renamed model the names that they have in the original.

    original    x -> [Conv, w] -> c -> [Relu] -> r -> [Tanh] -> y
    converted   x -> [Conv, k] -> v1 -> [Relu] -> v2 -> [Tanh] -> y     v2 is r, and v1 is c

Tools that write a model anew may number its values. Then the two models share the names of inputs and
outputs alone, and could only be compared as a whole. Values with the same definition get the same name;
so do, from the outputs on, the inputs of nodes that are the same but for their inputs. Such a name is a
hint where to compare: whether the values are equal is for the proof to say.
"""

from __future__ import annotations

from collections import Counter

import onnx

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.verification.match.definitions import Definitions

#: Operators of which equal outputs mean equal inputs, as far as rewritten models go. A Reshape has the
#: same output for data of another shape, a Slice for data that is equal in part.
_FAITHFUL = (
    op_traits.having(Trait.UNARY, Trait.BROADCASTS, Trait.PRODUCTS, Trait.SAME_SHAPE)
    | {"Concat", "Transpose"}
) - op_traits.having(Trait.STEPS, Trait.RESHAPES, Trait.RANDOM)
_COMMUTATIVE = frozenset({"Add", "And", "Max", "Mean", "Min", "Mul", "Or", "Sum", "Xor"})


def original_names(definitions: Definitions) -> dict[str, str]:
    """Return the names in the original of values of the converted model; none if it has most of them.

    Only names that the original does not have are replaced, by names that the converted model does not
    have: no name gets another meaning.
    """
    before, after = (
        Counter(name for values in numbering.values.values() for name in values)
        for numbering in (definitions.before, definitions.after)
    )
    once = [name for name, count in before.items() if count == 1]
    if before.keys() >= after.keys() or 2 * sum(name in after for name in once) > len(once):
        return {}
    old = {name for name in once if name not in after}
    new = {name for name, count in after.items() if count == 1 and name not in before}
    pairing = _Pairing(definitions, old, new)
    pairing.pair_graphs(traversal.Place(), traversal.Place())
    return pairing.names


def renamed(model: onnx.ModelProto, names: dict[str, str]) -> onnx.ModelProto:
    """Return a copy of a model with other names for some values of its graphs."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for _, graph in traversal.graphs(copy):
        for node in graph.node:
            node.input[:] = [names.get(name, name) for name in node.input]
            node.output[:] = [names.get(name, name) for name in node.output]
        if isinstance(graph, onnx.GraphProto):
            stored = (*graph.initializer, *(sparse.values for sparse in graph.sparse_initializer))
            for value in (*graph.input, *graph.output, *graph.value_info, *stored):
                value.name = names.get(value.name, value.name)
    return copy


class _Pairing:
    """Pairs of values, one of each model.

    Args:
        definitions: of both models.
        old, new: names of the original and of the converted model that may be paired.

    Attributes:
        names: the name in the original of each value of the converted model that has a pair.
    """

    def __init__(self, definitions: Definitions, old: set[str], new: set[str]) -> None:
        self.names: dict[str, str] = {}
        self._definitions, self._old, self._new = definitions, old, new

    def _pair(self, old: str, new: str) -> bool:
        """Pair two values, if both have no pair yet; return whether that was possible."""
        if old not in self._old or new not in self._new:
            return False
        self.names[new] = old
        self._old.remove(old)
        self._new.remove(new)
        return True

    def pair_graphs(self, here: traversal.Place, there: traversal.Place) -> None:
        """Pair the values of a graph of each model: by their definitions, then from the outputs back."""
        models = self._definitions.before, self._definitions.after
        before, after = (
            m.values.get(place, {}) for m, place in zip(models, (here, there), strict=True)
        )
        by_number = {number: name for name, number in before.items() if name in self._old}
        for new, number in after.items():
            self._pair(by_number.get(number, ""), new)
        todo = [(old, new) for new in after if (old := self.names.get(new, new)) in before]
        while todo:
            old, new = todo.pop()
            node = self._definitions.original.find(old, here)
            other = self._definitions.converted.find(new, there)
            if not isinstance(node, onnx.NodeProto) or not isinstance(other, onnx.NodeProto):
                continue
            self._pair_bodies(here, node, there, other)
            operators = models[0].operators, models[1].operators
            same = operators[0].get((here, old), -1) == operators[1].get((there, new))
            if same and node.op_type in _FAITHFUL:
                inputs = [list(node.input), list(other.input)]
                if node.op_type in _COMMUTATIVE:
                    for names, numbers, place in zip(inputs, operators, (here, there), strict=True):
                        names.sort(key=lambda name: numbers.get((place, name), -1))
                todo += [pair for pair in zip(*inputs, strict=False) if self._pair(*pair)]

    def _pair_bodies(
        self,
        here: traversal.Place,
        node: onnx.NodeProto,
        there: traversal.Place,
        other: onnx.NodeProto,
    ) -> None:
        """Pair inputs and results of the graphs inside two nodes by position, then their values."""
        bodies = dict(traversal.subgraphs(other))
        for attribute, body in traversal.subgraphs(node):
            if node.op_type != other.op_type or (its := bodies.get(attribute)) is None:
                continue
            for side, its_side in ((body.input, its.input), (body.output, its.output)):
                for value, counterpart in zip(side, its_side, strict=False):
                    self._pair(value.name, counterpart.name)
            inner = [
                place.inside(traversal.step(n.op_type, n.output, attribute))
                for place, n in ((here, node), (there, other))
            ]
            self.pair_graphs(*inner)
