"""Find the smallest parts of the original and the converted model that must compute the same values.

    original   x -> [SpaceToBatch] -> s -> [Conv] -> c -> [BatchToSpace] -> y -> [Transpose] -> t
    converted  x ----------------> [Conv, dilated] --------------------------> y

A conversion may merge a site with operators that compute. Then neither s nor c is a value of the
converted model, but x and y are. The region of a site ends with the nearest value behind it that both
models compute, and begins with the nearest values that both read on the way there. What the conversion
reports plays no part in it: it only has to keep names.

Computed whole numbers (shapes, pads, crops) are no boundary although both models may have them: they
must fit the data, so they are followed back to it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import onnx

from onnx_spatial import analysis
from onnx_spatial.analysis import GraphFacts, OperatorInfo
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.operators.spellings import NodeFacts
from onnx_spatial.verification.match.graphs import (
    Graphs,
    KnownTypes,
    Part,
    Producer,
    is_computed,
    scopes,
)
from onnx_spatial.verification.subgraphs.matched_parts import MatchingRegion, RegionKey, Upstream

#: Values behind a site to search, and nodes of a region, at most.
_MOST_VALUES = 4096
_MOST_NODES = 2048
#: Nodes that compute a value that a region reads, at most.
_MOST_UPSTREAM = 256
#: Extensions of a region, at most.
_MOST_EXTENSIONS = 64


@dataclass
class MatchingRegions:
    """The regions of a model and its conversion.

    `named` is the original without weights, with names for unknown dims of its inputs.
    """

    original: onnx.ModelProto
    converted: Graphs
    named: onnx.ModelProto
    infos: Sequence[OperatorInfo]
    _regions: dict[RegionKey, MatchingRegion | str] = field(default_factory=dict)
    _outputs: dict[int, list[str] | str] = field(default_factory=dict)

    def around(self, info: OperatorInfo) -> list[MatchingRegion] | str:
        """Return the regions of a site, one for each value that depends on it; or why there are none."""
        if info.index not in self._outputs:
            self._outputs[info.index] = self._nearest(info)
        outputs = self._outputs[info.index]
        if isinstance(outputs, str):
            return outputs
        regions = []
        for output in outputs:
            region = self.at(info.place, output)
            if isinstance(region, str):
                return region
            regions.append(region)
        return regions

    def at(self, place: traversal.Place, output: str) -> MatchingRegion | str:
        """Return the region with a value of the graph at `place` as its output, or why there is none."""
        key = (place, output)
        if key not in self._regions:
            self._regions[key] = self._region(*key, ())
        return self._regions[key]

    def independent(self, region: MatchingRegion) -> MatchingRegion | None:
        """Extend a region so that no value that it reads depends on another; None if none does."""
        ties = self.upstream(region).ties
        return self._including(ties, region) if ties else None

    def deepened(self, region: MatchingRegion) -> MatchingRegion | None:
        """Extend a region by the nodes that compute what it reads; None where that is impossible."""
        computed = {name for name in region.inputs if self._is_shared(name, region.place)}
        return self._including(computed, region) if computed else None

    def _including(self, names: set[str], region: MatchingRegion) -> MatchingRegion | None:
        """Extend a region by the nodes that compute some values that it reads."""
        inside = names.union(*(node.output for node in region.before.nodes))
        larger = self._region(region.place, region.output, inside)
        return larger if isinstance(larger, MatchingRegion) else None

    def upstream(self, region: MatchingRegion) -> Upstream:
        """Return how the original computes values that a region reads from others.

        These are integers, which depend on sizes; values that only the original's part reads, which
        depend on those that both parts read; and values that depend on another one that both read.
        """
        names, nodes, stored = set[str](), dict[int, onnx.NodeProto](), list[onnx.TensorProto]()
        read: set[str] = set()
        for name in region.inputs:
            if not is_computed(self._graphs.find(name, region.place)):
                continue
            part = self._part_upstream(name, region)
            if part is not None:
                names.add(name)
                nodes.update((id(node), node) for node in part.nodes)
                stored += part.stored
                read |= part.read
        read -= {output for node in nodes.values() for output in node.output}
        inputs = {name: self._type(name, region.place) for name in sorted(read, key=repr)}
        ties = {n for n in names & region.after.read if not self._is_integer(n, region.place)}
        return Upstream(names, ties, list(nodes.values()), stored, inputs)

    def _part_upstream(self, name: str, region: MatchingRegion) -> Part | None:
        place, both = region.place, region.after.read
        others = region.inputs.keys() - {name}
        tie = name in both and not self._is_integer(name, place)
        if tie and not others and (place, name) not in self._constant:
            return None  # it depends on what the region does not read
        seen: set[str] = set()

        def stops(other: str, producer: Producer | None) -> bool:
            seen.add(other)
            if other in self._graphs.overridable or len(seen) > _MOST_UPSTREAM:
                return True
            if self._is_integer(name, place):
                return not self._is_integer(other, place)
            return other in (both if name not in both else others)

        part = self._graphs.part(place, name, stops)
        if not isinstance(part, Part) or len(seen) > _MOST_UPSTREAM:
            return None
        return part if not tie or part.read <= others else None

    def _is_integer(self, name: str, place: traversal.Place) -> bool:
        """Return whether a value is a list or table of integers."""
        known = self._types.find(name, place)
        dims = shape_inference.dims(known)
        integers = (onnx.TensorProto.INT64, onnx.TensorProto.INT32)
        return shape_inference.element_type(known) in integers and (dims is None or len(dims) < 3)

    def widened(self, region: MatchingRegion) -> MatchingRegion | str:
        """Extend a region to the inputs of the graph, or say why that is impossible."""

        def stops(name: str, producer: Producer | None) -> bool:
            return name in self._graphs.overridable

        before = self._graphs.part(region.place, region.output, stops)
        after = self.converted.part(region.place, region.output, stops)
        if isinstance(before, str) or isinstance(after, str):
            return before if isinstance(before, str) else str(after)
        if len(before.nodes) > _MOST_NODES or after.read - before.read:
            return "the nodes before it are too many, or differ from the original's"
        return self._matching(region.place, region.output, before, after)

    def analysed(self, region: MatchingRegion) -> list[OperatorInfo] | None:
        """Return the sites of a region as those of the model of its original part; None if unknown.

        That model has its own inputs, so the dims of the data that a site reads there are theirs.
        """
        nodes = region.before.nodes
        if self.original.functions or any(any(traversal.subgraphs(node)) for node in nodes):
            return None
        positions = {self._graphs.position(node): index for index, node in enumerate(nodes)}
        infos = (self._by_index[index] for index in sorted(positions.keys() & self._by_index))
        return [
            replace(
                info,
                index=positions[info.index],
                place=traversal.Place(),
                facts=_of_input(info.facts) if info.node.input[0] in region.inputs else info.facts,
            )
            for info in infos
        ]

    @cached_property
    def sites(self) -> dict[RegionKey, OperatorInfo]:
        """The sites by the values that they compute."""
        return {(info.place, info.node.output[0]): info for info in self.infos if info.node.output}

    @cached_property
    def _by_index(self) -> dict[int, OperatorInfo]:
        return {info.index: info for info in self.infos}

    @cached_property
    def _graphs(self) -> Graphs:
        return Graphs(self.original, self._facts)

    @cached_property
    def _types(self) -> KnownTypes:
        return KnownTypes(self.named, self.infos, self._facts)

    @cached_property
    def _facts(self) -> list[GraphFacts]:
        return analysis.graph_facts(self.named, self.infos)

    @cached_property
    def _readers(self) -> dict[tuple[traversal.Place, str], list[onnx.NodeProto]]:
        readers: dict[tuple[traversal.Place, str], list[onnx.NodeProto]] = {}
        for place, _, node in traversal.nodes(self.original):
            for name in traversal.needs(node):
                readers.setdefault((place, name), []).append(node)
        return readers

    @cached_property
    def _constant(self) -> set[tuple[traversal.Place, str]]:
        """Values that the nodes of their graph compute from constants alone."""
        constant: set[tuple[traversal.Place, str]] = set()
        for place, _, node in traversal.nodes(self.original):
            producers = ((name, self._graphs.find(name, place)) for name in traversal.needs(node))
            if all(
                (place, name) in constant
                or (producer is not None and not isinstance(producer, onnx.NodeProto))
                for name, producer in producers
            ):
                constant.update((place, name) for name in node.output)
        return constant

    def _nearest(self, info: OperatorInfo) -> list[str] | str:
        """Return the nearest values behind a site that the converted model computes."""
        start, place = str(info.node.output[0]), info.place
        if self.converted.computes(start, place):
            return [start]
        nearest = self.behind(place, start)
        if nearest is None:
            return "no value shortly after it is in the converted model"
        return nearest or (
            "its output is not in the converted model: it was merged with other nodes"
        )

    def behind(self, place: traversal.Place, start: str) -> list[str] | None:
        """Return the nearest values behind a value that both models compute; None if it is too far.

        Sizes are left out.
        """
        seen, todo, nearest = {start}, [start], list[str]()
        while todo:
            name = todo.pop()
            if name != start and self.converted.computes(name, place):
                if not self.is_size(name, place):
                    nearest.append(name)
                continue
            if len(seen) > _MOST_VALUES:
                return None
            readers = self._readers.get((place, name), ())
            new = [n for reader in readers for n in reader.output if n and n not in seen]
            seen.update(new)
            todo.extend(new)
        return nearest

    def _region(
        self, place: traversal.Place, output: str, include: Collection[str]
    ) -> MatchingRegion | str:
        """Find the region of a value, which is to `include` the nodes that compute some others."""
        inside = set(include)

        def stops(name: str, producer: Producer | None) -> bool:
            if name in inside:
                return False
            if isinstance(producer, onnx.NodeProto):
                return self._is_shared(name, place)
            return name in self._graphs.overridable

        for _ in range(_MOST_EXTENSIONS):
            before = self._graphs.part(place, output, stops)
            after = self.converted.part(place, output, stops)
            for part in (before, after):
                if isinstance(part, str):
                    return part
            assert isinstance(before, Part) and isinstance(after, Part)
            if len(before.nodes) > _MOST_NODES:
                return "it was merged with too many nodes"
            foreign = after.read - before.read
            # The value that is computed last cannot be one that both begin with.
            latest = self._latest(before.read ^ after.read, place)
            if latest is None and not foreign:
                return self._matching(place, output, before, after)
            latest = latest or self._latest(before.read | after.read, place)
            if latest is None:
                return f"it also reads {min(foreign)!r}: it was merged with other nodes"
            inside.add(latest)
        return "no values shortly before it are in both models"

    def _matching(
        self, place: traversal.Place, output: str, before: Part, after: Part
    ) -> MatchingRegion:
        inputs = {n: self._type(n, place) for n in sorted(before.read)}
        positions = {self._graphs.position(n): n for n in before.nodes}
        replaced = {
            index
            for index, node in positions.items()
            if output in node.output or not any(self._is_computed(n, place) for n in node.output)
        }
        sites = frozenset(positions.keys() & self._by_index)
        fed = all(self._is_input(n, place) for n in inputs)
        return MatchingRegion(place, output, before, after, inputs, sites, frozenset(replaced), fed)

    def _type(self, name: str, place: traversal.Place) -> onnx.TypeProto:
        known = self._types.find(name, place)
        if known is None and place.function is not None:
            # A function declares no types; most likely its inputs have the type of its sites.
            types = {t for f in self.infos if f.place == place for t in f.element_types}
            if len(types) == 1:
                known = onnx.helper.make_tensor_type_proto(min(types), None)
        return known or onnx.TypeProto()

    def _is_input(self, name: str, place: traversal.Place) -> bool:
        """Return whether a value is an input of the whole model."""
        inner = [s for s in scopes(place) if s != traversal.Place()]
        return (
            place.function is None
            and self._graphs.is_fed(name, traversal.Place())
            and not any(self._graphs.is_fed(name, scope) for scope in inner)
        )

    def _latest(self, names: set[str], place: traversal.Place) -> str | None:
        """Return the value that the original computes last among some; None if it computes none."""
        computed = [
            (self._graphs.position(node), name)
            for name in names
            if isinstance(node := self._graphs.find(name, place), onnx.NodeProto)
        ]
        return max(computed)[1] if computed else None

    def _is_computed(self, name: str, place: traversal.Place) -> bool:
        return any(self.converted.computes(name, scope) for scope in scopes(place))

    def _is_shared(self, name: str, place: traversal.Place) -> bool:
        """Return whether both models compute a value from others, other than sizes."""
        producers = (graphs.find(name, place) for graphs in (self._graphs, self.converted))
        return all(map(is_computed, producers)) and not self.is_size(name, place)

    def is_size(self, name: str, place: traversal.Place) -> bool:
        """Return whether a value may be sizes or amounts, by its type."""
        known = self._types.find(name, place)
        if shape_inference.element_type(known) not in (
            onnx.TensorProto.INT64,
            onnx.TensorProto.INT32,
        ):
            return False
        dims = shape_inference.dims(known)
        return dims is None or len(dims) < 2 or (len(dims) == 2 and dims[1] == 2)

    def is_data(self, name: str, place: traversal.Place) -> bool:
        """Return whether a value depends on the integers of an input, as indices and counts do.

        Sizes depend on the shapes of inputs alone; parameters of operators count as data, too.
        """
        region = self.at(place, name)
        if isinstance(region, str):
            return False
        read = {
            other
            for node in region.before.nodes
            if Trait.SIZES not in op_traits.of(node).traits
            for other in node.input
        }
        return any(self._is_integer(n, place) for n in read & region.inputs.keys())


def _of_input(facts: NodeFacts) -> NodeFacts:
    """Return the facts of a node whose data is an input of a model."""
    data, *others = facts.inputs
    return replace(facts, inputs=(data and replace(data, shape=None), *others))
