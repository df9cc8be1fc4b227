"""Give the values of a renamed model the names that they have in the original.

    original    x -> [Conv, w] -> c -> [Relu] -> r -> [Tanh] -> y
    converted   x -> [Conv, k] -> v1 -> [Relu] -> v2 -> [Tanh] -> y     v2 is r, and v1 is c

Tools that write a model anew may number its values. Then the two models share the names of inputs and
outputs alone, and could only be compared as a whole. Values with the same definition get the same name;
so do, from the outputs on, the inputs of nodes that are the same but for one input. Such a name is a
hint where to compare: whether the values are equal is for the comparison to say.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.verification.match.definitions import Definitions
from onnx_spatial.verification.match.graphs import Graphs, is_computed

#: Operators of which equal outputs mean equal inputs, as far as rewritten models go. A Reshape has the
#: same output for data of another shape, a Slice for data that is equal in part.
_FAITHFUL = (
    op_traits.having(Trait.UNARY, Trait.BROADCASTS, Trait.PRODUCTS, Trait.SAME_SHAPE)
    | {"Concat", "Transpose"}
) - op_traits.having(Trait.STEPS, Trait.RESHAPES, Trait.RANDOM)
_COMMUTATIVE = frozenset({"Add", "And", "Max", "Mean", "Min", "Mul", "Or", "Sum", "Xor"})


def with_names_of(
    original: onnx.ModelProto,
    converted: onnx.ModelProto,
    folders: tuple[Path | None, Path | None],
) -> onnx.ModelProto:
    """Return the converted model with names of the original; itself if it has most of them.

    Only names that the original does not have are replaced, by names that the converted model does not
    have: no name gets another meaning.
    """
    before, after = _names(original), _names(converted)
    if before.keys() >= after.keys():
        return converted
    computed = [n for n, count in before.items() if count == 1]
    if 2 * sum(name in after for name in computed) > len(computed):
        return converted
    graphs = Graphs(original), Graphs(converted)
    names = _Pairing(Definitions(*graphs, folders), before, after).names()
    if not names:
        return converted
    renamed = onnx.ModelProto()
    renamed.CopyFrom(converted)
    for _, graph in traversal.graphs(renamed):
        for node in graph.node:
            node.input[:] = [names.get(n, n) for n in node.input]
            node.output[:] = [names.get(n, n) for n in node.output]
        if isinstance(graph, onnx.GraphProto):
            for value in (*graph.input, *graph.output, *graph.value_info):
                value.name = names.get(value.name, value.name)
    return renamed


def _names(model: onnx.ModelProto) -> Counter[str]:
    """Return how many graphs of a model have a value of each name."""
    names = Counter[str]()
    for _, graph in traversal.graphs(model):
        own = {name for node in graph.node for name in node.output if name}
        own.update(v if isinstance(v, str) else v.name for v in graph.input)
        own.update(t.name for t in getattr(graph, "initializer", ()))
        own.update(s.values.name for s in getattr(graph, "sparse_initializer", ()))
        names.update(own)
    return names


class _Pairing:
    """Pairs of values, one of each model; `before` and `after` are the names in both."""

    def __init__(self, definitions: Definitions, before: Counter[str], after: Counter[str]) -> None:
        self._definitions = definitions
        self._before, self._after = before, after
        self._original: dict[str, str] = {}  # name in the original, by that in the converted model
        self._paired: set[str] = set()

    def names(self) -> dict[str, str]:
        """Return the new names of values of the converted model."""
        self._pair_graphs(traversal.Place(), traversal.Place())
        return self._original

    def _pair_graphs(self, here: traversal.Place, there: traversal.Place) -> None:
        """Pair the values of a graph of the original with those of one of the converted model."""
        before, after = self._definitions.numbers(here, there)
        by_number: dict[int, list[str]] = {}
        for name, number in before.items():
            by_number.setdefault(number, []).append(name)
        for name, number in after.items():
            any(self._pair(here, other, there, name) for other in by_number.get(number, ()))
        todo = [(self._original.get(n, n), n) for n in after if self._original.get(n, n) in before]
        while todo:
            name, other = todo.pop()
            node = self._definitions.original.find(name, here)
            counterpart = self._definitions.converted.find(other, there)
            if not isinstance(node, onnx.NodeProto) or not isinstance(counterpart, onnx.NodeProto):
                continue
            self._pair_bodies(here, node, there, counterpart)
            if not (op_traits.is_standard(node) and node.op_type in _FAITHFUL):
                continue
            if self._definitions.same_operator((here, name), (there, other)):
                pairs = self._inputs(here, node, there, counterpart)
                todo += (pair for pair in pairs if self._pair(here, pair[0], there, pair[1]))

    def _pair_bodies(
        self,
        here: traversal.Place,
        node: onnx.NodeProto,
        there: traversal.Place,
        counterpart: onnx.NodeProto,
    ) -> None:
        """Pair the inputs and results of the graphs inside two nodes by position, then their values."""
        if node.op_type != counterpart.op_type or node.domain != counterpart.domain:
            return
        bodies = dict(traversal.subgraphs(counterpart))
        for attribute, body in traversal.subgraphs(node):
            other = bodies.get(attribute)
            if other is None:
                continue
            inner, inner_there = (
                place.inside(traversal.step(node.op_type, each.output, attribute))
                for place, each in ((here, node), (there, counterpart))
            )
            for mine, its in ((body.input, other.input), (body.output, other.output)):
                for value, counterpart_value in zip(mine, its, strict=False):
                    if self._is_free(value.name, counterpart_value.name):
                        self._name(value.name, counterpart_value.name)
            self._pair_graphs(inner, inner_there)

    def _inputs(
        self,
        here: traversal.Place,
        node: onnx.NodeProto,
        there: traversal.Place,
        counterpart: onnx.NodeProto,
    ) -> list[tuple[str, str]]:
        """Return the pairs of inputs of two nodes that must be equal, if it is clear which these are."""
        mine, others = list(node.input), list(counterpart.input)
        if len(mine) != len(others):
            return []
        if node.op_type not in _COMMUTATIVE:
            return list(zip(mine, others, strict=True))
        for name in list(mine):
            known = (o for o in others if self._is_same(here, name, there, o))
            if (equal := next(known, None)) is not None:
                mine.remove(name)
                others.remove(equal)
        if len(mine) == 1:
            return [(mine[0], others[0])]
        alike = [
            (name, other)
            for name in mine
            for other in others
            if self._definitions.same_operator((here, name), (there, other))
        ]
        counts = Counter(name for pair in alike for name in set(pair))
        return [pair for pair in alike if all(counts[name] == 1 for name in pair)]

    def _is_same(
        self, here: traversal.Place, name: str, there: traversal.Place, other: str
    ) -> bool:
        known = self._original.get(other, other)
        return name == known or self._definitions.equal((here, name), (there, other))

    def _pair(self, here: traversal.Place, name: str, there: traversal.Place, other: str) -> bool:
        """Pair two values that nodes compute; return whether that was possible."""
        producers = (
            self._definitions.original.find(name, here),
            self._definitions.converted.find(other, there),
        )
        if not self._is_free(name, other) or not all(map(is_computed, producers)):
            return False
        self._name(name, other)
        return True

    def _is_free(self, name: str, other: str) -> bool:
        """Tell whether each name is of one value of its own model, and of none of the other."""
        if name in self._paired or other in self._original:
            return False
        once = self._before[name] == self._after[other] == 1
        return once and not self._after[name] and not self._before[other]

    def _name(self, name: str, other: str) -> None:
        self._original[other] = name
        self._paired.add(name)
