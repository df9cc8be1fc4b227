"""Give new names to inner values of the converted model that are other values than the original's.

    original    x -> [Conv] -> c -> [BatchNormalization] -> n -> [Relu] -> r
    converted   x -> [Conv, folded] -> c -------------------------> [Relu] -> r

Only the names of inputs and outputs bind; those of inner values are hints for where to compare. Tools
fold nodes and keep a name, use it again, or count names anew: then a value differs although the model
is right. With a new name, the comparison ends at the next value that both models have.

A value means something else only if it differs in an ordinary run. If both models use it in the same
way as far as an output, it means the same in both. There a difference is an error.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx

from onnx_spatial.model import traversal
from onnx_spatial.verification.arrays import dtype_name, same_bits
from onnx_spatial.verification.checks.context import Context
from onnx_spatial.verification.compare.error_metrics import NOT_NUMBERS, errors
from onnx_spatial.verification.compare.outputs import RTOL
from onnx_spatial.verification.compare.rounding import is_comparable
from onnx_spatial.verification.diagnosis.bisect import shared_values
from onnx_spatial.verification.pair import ModelPair
from onnx_spatial.verification.subgraphs.matched_parts import MatchingRegion, RegionKey

#: Values of another meaning differ by more than so many times the rtol of their type in an ordinary run.
_ANOTHER = 10.0

_MAIN = traversal.Place()


@dataclass(frozen=True)
class NewNames:
    """A pair of models of which the converted one has new names for some inner values.

    `hidden` are the values that differ and that both models use in the same way, where no output shows
    the difference.
    """

    models: ModelPair
    hidden: tuple[str, ...]


def apart(context: Context) -> NewNames | None:
    """Rename inner values of another meaning; None if there are none, or if a difference is an error."""
    findings = context.findings
    if findings.interface or findings.types or findings.model_differs or findings.feeds is None:
        return None
    changed = {
        (node.place, node.node.output[0]): _read(context, node.place, node.node.output[0])
        for node in findings.changed
        if node.difference is not None or node.doubt is not None
    }
    operators = {
        (operator.info.place, difference.value or operator.output): set(difference.inputs)
        for operator in (*findings.operators, *findings.convolutions)
        if (difference := operator.difference) is not None
    }
    differing = {**changed, **operators}
    if not differing:
        return None
    uses = _Uses(context, differing)
    first = uses.first(differing)
    visible = {value for value in first if uses.reach_output(value)}
    unseen = bool(findings.outputs) and all(o.equal_bits for o in findings.outputs)
    if visible & (uses.ends | operators.keys()) or (visible and not unseen):
        return None
    others = _of_another_meaning(context)
    if not others or not first <= {(_MAIN, name) for name in others}:
        return None
    names = {name for name in others if uses.is_inner((_MAIN, name))}
    source = context.models.converted
    models = replace(context.models, converted=source.holding(_renamed(source.proto, names)))
    return NewNames(models, tuple(sorted(name for _, name in visible)))


def _read(context: Context, place: traversal.Place, name: str) -> set[str]:
    """Return the names that the region of a value reads."""
    region = context.regions.at(place, name)
    return region.before.read if isinstance(region, MatchingRegion) else set()


def _of_another_meaning(context: Context) -> set[str]:
    """Return the values of the main graph that are not the original's in the first run."""
    operators = [info.index for info in context.reference.known_infos]
    feeds = context.findings.feeds
    assert feeds is not None
    values = shared_values(context.models, operators, feeds, optimised=False)
    if values is None:
        return set()
    return {name for name in values.names if _is_another(values.before[name], values.after[name])}


def _is_another(before: Any, after: Any) -> bool:
    """Return whether two values differ by more than rounding may cause in most models."""
    if not isinstance(before, np.ndarray) or not isinstance(after, np.ndarray):
        return False
    if not is_comparable(after, before):
        return True
    if before.dtype.kind in NOT_NUMBERS:
        return not same_bits(before, after)
    apart, largest = errors(before, after)
    return bool((apart > _ANOTHER * RTOL.get(dtype_name(before), 0.0) * largest).any())


class _Uses:
    """What both models compute in the same way from a value.

    Attributes:
        ends: the outputs of graphs.
    """

    def __init__(self, context: Context, differing: Collection[RegionKey]) -> None:
        self._context = context
        self._differing = differing
        self._same: dict[RegionKey, set[RegionKey]] = {}
        self.ends = {
            (place, value if isinstance(value, str) else value.name)
            for place, graph in traversal.graphs(context.models.converted.proto)
            for value in graph.output
        }

    def first(self, differing: Mapping[RegionKey, Collection[str]]) -> set[RegionKey]:
        """Return the values that do not depend on others of `differing`, which has what each reads."""
        suspect = set(differing).union(*map(self._same_from, differing))
        return {
            (place, name)
            for (place, name), read in differing.items()
            if suspect.isdisjoint((place, other) for other in read if other != name)
        }

    def is_inner(self, value: RegionKey) -> bool:
        """Tell whether the name of a value that the converted model computes is free."""
        place, name = value
        node = self._context.converted.find(name, place)
        # The name of a node is in the place of the graphs inside it.
        return (
            isinstance(node, onnx.NodeProto)
            and value not in self.ends
            and not any(traversal.subgraphs(node))
        )

    def reach_output(self, value: RegionKey) -> bool:
        """Tell whether a value is an output, or both compute an output in the same way from it."""
        return not self.ends.isdisjoint({value, *self._same_from(value)})

    def _same_from(self, value: RegionKey) -> set[RegionKey]:
        """Return the values that both models compute in the same way from a value."""
        if value not in self._same:
            same, todo = set[RegionKey](), [value]
            while todo:
                place, name = todo.pop()
                for other in self._context.regions.behind(place, name) or ():
                    region = self._context.regions.at(place, other)
                    if (
                        isinstance(region, MatchingRegion)
                        and name in region.before.read & region.after.read
                        and region.key not in same
                        and region.key not in self._differing
                        and region.key not in self._context.region_results.differing
                    ):
                        same.add(region.key)
                        todo.append(region.key)
            self._same[value] = same
        return self._same[value]


def _renamed(model: onnx.ModelProto, names: Collection[str]) -> onnx.ModelProto:
    """Copy a model with new names for some values that nodes of its main graph compute."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    taken = {name for _, _, node in traversal.nodes(model) for name in (*node.input, *node.output)}
    new: dict[str, str] = {}
    for name in sorted(names):
        new[name] = f"{name} (converted)"
        while new[name] in taken:
            new[name] += "'"
    _rename(copy.graph, new)
    return copy


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Rename values in a graph and in the graphs inside it, where their own names hide no outer ones."""
    for node in graph.node:
        node.input[:] = [names.get(n, n) for n in node.input]
        node.output[:] = [names.get(n, n) for n in node.output]
        for _, body in traversal.subgraphs(node):
            seen = traversal.captured(body)
            _rename(body, {n: other for n, other in names.items() if n in seen})
    for value in (*graph.output, *graph.value_info):
        value.name = names.get(value.name, value.name)
