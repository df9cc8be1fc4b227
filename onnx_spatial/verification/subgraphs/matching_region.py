"""The smallest parts of the original and of the converted model that must compute the same values.

    original   x -> [SpaceToBatch] -> s -> [Conv] -> c -> [BatchToSpace] -> y -> [Transpose] -> t
    converted  x ----------------> [Conv, dilated] --------------------------> y

A conversion may merge a site with what computes around it. Then neither s nor c is a value of the
converted model, but x and y are. So the region of a site is looked for: all that leads in the original
to the nearest value behind the site that the converted model computes too, from the nearest values
that both read on the way there. What the conversion says it did is of no interest: names are all that
it has to keep.

Whole numbers that nodes compute (shapes, pads, crops) are no boundary although both models may have
them: they have to fit the data, so they are followed back to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import onnx

from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.model import traversal
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.verification import extract
from onnx_spatial.verification.subgraphs.types import KnownTypes
from onnx_spatial.verification.subgraphs.value_graph import Graphs, Part, Producer, scopes

#: Values behind a site that are looked at, and nodes of a region, at most.
_MOST_VALUES = 4096
_MOST_NODES = 2048
#: How often a region is made larger, at most.
_MOST_TURNS = 64


@dataclass(frozen=True)
class MatchingRegion:
    """Two parts that must compute the same.

    Attributes:
        place: graph that holds the output, in both models.
        output: name of the value that comes out.
        before: the part of the original.
        after: the part of the converted model; it reads nothing that the other does not.
        inputs: types of the values that go in, as far as they are known, by name.
        sites: which sites it holds, by their position in `traversal.nodes`.
        replaced: nodes of the original that something else stands for, likewise.
        settled: whether every size of the inputs is known to be one that the whole model has there:
            all are fixed, or they are the inputs of the model.
        fed: whether they are the inputs of the model, whose values may be any.
    """

    place: traversal.Place
    output: str
    before: Part
    after: Part
    inputs: dict[str, onnx.TypeProto]
    sites: frozenset[int]
    replaced: frozenset[int]
    settled: bool
    fed: bool

    def original(self) -> onnx.ModelProto:
        """The part of the original as a model."""
        return self._model(self.before, self.inputs)

    def converted(self) -> onnx.ModelProto:
        """The part of the converted model as a model; inputs that it does not read are left out."""
        return self._model(self.after, {n: self.inputs[n] for n in sorted(self.after.read)})

    def _model(self, part: Part, inputs: dict[str, onnx.TypeProto]) -> onnx.ModelProto:
        return extract.model_of(
            part.imports, part.nodes, inputs, [self.output], part.stored, part.sparse
        )


class MatchingRegions:
    """The regions of a model and its conversion.

    Args:
        original: the original, with its weights.
        converted: the converted model.
        infos: the sites of the original.
        types: tells what is known of its values; asked for only if there are regions.
    """

    def __init__(
        self,
        original: onnx.ModelProto,
        converted: Graphs,
        infos: Sequence[OperatorInfo],
        types: Callable[[], KnownTypes],
    ) -> None:
        self._model = original
        self._converted = converted
        self._infos = infos
        self._sites = {f.index for f in infos}
        self._get_types = types
        self._overridable = {v.name for v in extract.overridable(original)}
        self._found: dict[tuple[traversal.Place, str], MatchingRegion | str] = {}

    def around(self, info: OperatorInfo) -> list[MatchingRegion] | str:
        """The regions that tell whether a site is right, one for each value; or why there are none."""
        outputs = self._nearest(info)
        if isinstance(outputs, str):
            return outputs
        found = []
        for output in outputs:
            region = self.at(info.place, output)
            if isinstance(region, str):
                return region
            found.append(region)
        return found

    def at(self, place: traversal.Place, output: str) -> MatchingRegion | str:
        """The region that ends with a value of the graph at `place`, or why there is none."""
        key = (place, output)
        if key not in self._found:
            self._found[key] = self._region(*key)
        return self._found[key]

    def widened(self, region: MatchingRegion) -> MatchingRegion | str:
        """All that leads to the output of a region, from the inputs of the graph on."""

        def stops(name: str, found: Producer | None) -> bool:
            return name in self._overridable

        before = self._original.part(region.place, region.output, stops)
        after = self._converted.part(region.place, region.output, stops)
        if isinstance(before, str) or isinstance(after, str):
            return before if isinstance(before, str) else str(after)
        if len(before.nodes) > _MOST_NODES or after.read - before.read:
            return "the part of the model that leads there is very large, or another one"
        return self._of(region.place, region.output, before, after)

    @cached_property
    def _original(self) -> Graphs:
        return Graphs(self._model)

    @cached_property
    def _types(self) -> KnownTypes:
        return self._get_types()

    @cached_property
    def _positions(self) -> dict[int, int]:
        """Position of each node in `traversal.nodes`, by the id of its message."""
        _ = self._original  # which keeps the messages alive
        return {id(node): index for index, (_, _, node) in enumerate(traversal.nodes(self._model))}

    @cached_property
    def _readers(self) -> dict[tuple[traversal.Place, str], list[onnx.NodeProto]]:
        found: dict[tuple[traversal.Place, str], list[onnx.NodeProto]] = {}
        for place, _, node in traversal.nodes(self._model):
            for name in extract.needs(node):
                found.setdefault((place, name), []).append(node)
        return found

    def _nearest(self, info: OperatorInfo) -> list[str] | str:
        """The nearest values behind a site that the converted model computes."""
        place = info.place
        start = str(info.node.output[0])
        seen, todo, found = {start}, [start], []
        while todo:
            name = todo.pop()
            if self._converted.computes(name, place):
                if not self.is_size(name, place) or name == start:
                    found.append(name)
                continue
            if len(seen) > _MOST_VALUES:
                return "no value that the converted model computes is near behind it"
            readers = self._readers.get((place, name), ())
            new = [n for reader in readers for n in reader.output if n and n not in seen]
            seen.update(new)
            todo.extend(new)
        return (
            found or "its output is not a value of the converted model: it was merged with others"
        )

    def _region(self, place: traversal.Place, output: str) -> MatchingRegion | str:
        opened: set[str] = set()

        def stops(name: str, found: Producer | None) -> bool:
            if name in opened:
                return False
            if isinstance(found, onnx.NodeProto):
                return self._is_shared(name, place)
            return name in self._overridable

        for _ in range(_MOST_TURNS):
            before = self._original.part(place, output, stops)
            after = self._converted.part(place, output, stops)
            for part in (before, after):
                if isinstance(part, str):
                    return part
            assert isinstance(before, Part) and isinstance(after, Part)
            if len(before.nodes) > _MOST_NODES:
                return "the part of the model that it was merged with is very large"
            foreign = after.read - before.read
            if not foreign:
                return self._of(place, output, before, after)
            # What lies furthest behind cannot be what both begin with.
            latest = self._latest(before.read ^ after.read, place)
            latest = latest or self._latest(before.read | after.read, place)
            if latest is None:
                return f"it also reads {min(foreign)!r}: it was merged with others"
            opened.add(latest)
        return "no values near it are those that the converted model begins with"

    def _of(self, place: traversal.Place, output: str, before: Part, after: Part) -> MatchingRegion:
        inputs = {n: self._type(n, place) for n in sorted(before.read)}
        positions = {self._positions[id(n)]: n for n in before.nodes}
        replaced = {
            index
            for index, node in positions.items()
            if output in node.output or not any(self._is_computed(n, place) for n in node.output)
        }
        sites = frozenset(self._sites.intersection(positions))
        dims = [shape_inference.dims(known) for known in inputs.values()]
        fixed = all(d is not None and all(isinstance(size, int) for size in d) for d in dims)
        fed = all(self._is_input(n, place) for n in inputs)
        known = (inputs, sites, frozenset(replaced), fixed or fed, fed)
        return MatchingRegion(place, output, before, after, *known)

    def _type(self, name: str, place: traversal.Place) -> onnx.TypeProto:
        known = self._types.find(name, place)
        if known is None and place.function is not None:
            # Nothing declares what a function takes; most likely it is what its sites take.
            types = {t for f in self._infos if f.place == place for t in f.element_types}
            if len(types) == 1:
                known = onnx.helper.make_tensor_type_proto(min(types), None)
        return known or onnx.TypeProto()

    def _is_input(self, name: str, place: traversal.Place) -> bool:
        """Whether a value is an input of the whole model."""
        inner = [s for s in scopes(place) if s != traversal.Place()]
        return (
            place.function is None
            and self._original.is_fed(name, traversal.Place())
            and not any(self._original.is_fed(name, scope) for scope in inner)
        )

    def _latest(self, names: set[str], place: traversal.Place) -> str | None:
        """Of some values the one that the original computes last, as far as it computes them."""
        computed = [
            (self._positions[id(found)], name)
            for name in names
            if isinstance(found := self._original.find(name, place), onnx.NodeProto)
        ]
        return max(computed)[1] if computed else None

    def _is_computed(self, name: str, place: traversal.Place) -> bool:
        return any(self._converted.computes(name, scope) for scope in scopes(place))

    def _is_shared(self, name: str, place: traversal.Place) -> bool:
        """Whether both models compute a value from others."""
        found = (graphs.find(name, place) for graphs in (self._original, self._converted))
        computed = all(isinstance(node, onnx.NodeProto) and node.input for node in found)
        return computed and not self.is_size(name, place)

    def is_size(self, name: str, place: traversal.Place) -> bool:
        """Whether a value may be sizes or amounts by its type."""
        known = self._types.find(name, place)
        if shape_inference.element_type(known) not in (
            onnx.TensorProto.INT64,
            onnx.TensorProto.INT32,
        ):
            return False
        dims = shape_inference.dims(known)
        return dims is None or len(dims) < 2 or (len(dims) == 2 and dims[1] == 2)
