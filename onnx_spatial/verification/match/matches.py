"""Find every part of two models that must compute the same, and say what else differs.

    original    x -> [SpaceToBatch] -> s -> [Conv] -> c -> [BatchToSpace] -> y -> [Transpose] -> t
    converted   x ----------------> [Conv, dilated] --------------------------> y -> [Transpose] -> t

A value is shared if nodes of both models compute it under one name in the same graph. Here x, y and t
are shared; t is defined alike in both models, y is not. So y leads to a changed part: what computes it
in either model, back to the nearest values that both models read alike.

If both parts of each changed part compute the same, then all shared values are equal, in the order in
which the original computes them: a value is either defined alike, or the value of a changed part, from
values that come before it. An output is a shared value, or computed alike from such. Hence if nothing is
unmatched and nothing else differs, both files compute the same. Names are hints: a name that means
another value in the converted model makes a changed part that is not proven.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx

from onnx_spatial import analysis
from onnx_spatial.analysis import GraphFacts, OperatorInfo
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.operators.spellings import recognize
from onnx_spatial.verification.match.definitions import Definitions, Key
from onnx_spatial.verification.match.graphs import (
    MAIN,
    Computation,
    Graphs,
    GrowingPart,
    KnownTypes,
    NoPartError,
    Producer,
    described,
    is_computed,
    is_constant,
    is_dense_constant,
    is_set_by_call,
    scopes,
    type_set_by_call,
)

if TYPE_CHECKING:
    from onnx_spatial.verification.pair import ModelPair


@dataclass(frozen=True)
class ChangedPart:
    """A part of the original, and what computes the same value in the converted model.

    Attributes:
        place: of the graph that holds the value, in both models.
        output: name of the value.
        before: nodes of the original.
        after: nodes of the converted model; they read no other values than `before` does.
        inputs: types of the values that `before` reads, by name, as far as they are known.
        nodes: positions of the nodes of `before`, in `traversal.nodes` of the original.
        fed: whether its inputs are those of the whole model, which may have any legal sizes.
    """

    place: traversal.Place
    output: str
    before: Computation
    after: Computation
    inputs: dict[str, onnx.TypeProto]
    nodes: frozenset[int]
    fed: bool

    @property
    def is_static(self) -> bool:
        """Whether all sizes of the values that it reads are fixed."""
        dims = [shape_inference.dims(known) for known in self.inputs.values()]
        return all(d is not None and all(isinstance(size, int) for size in d) for d in dims)

    def may_be_fed(self, *, values: bool) -> bool:
        """Return whether its inputs may have legal sizes, or given integers, in the whole model."""
        return self.fed or (self.is_static and not values)

    def original(self) -> onnx.ModelProto:
        """Make the part of the original a model."""
        return self.before.model(self.inputs, self.output)

    def converted(self) -> onnx.ModelProto:
        """Make the part of the converted model a model, with the inputs that it reads."""
        inputs = {name: self.inputs[name] for name in sorted(self.after.read)}
        return self.after.model(inputs, self.output)


@dataclass(frozen=True)
class Unmatched:
    """A value of the original that the converted model changes, and for which there are no two parts.

    Attributes:
        place, output: graph and name of the value.
        nodes: positions of the nodes of the original that it is about, in `traversal.nodes`.
        reason: why there are none, as the rest of a sentence.
    """

    place: traversal.Place
    output: str
    nodes: frozenset[int]
    reason: str


@dataclass(frozen=True)
class Upstream:
    """How the original computes some of the values that a part reads.

    Attributes:
        names: names of these values.
        part: what computes them.
        inputs: types of the values that it reads, by name.
    """

    names: list[str]
    part: Computation
    inputs: dict[str, onnx.TypeProto]


#: Nodes of a part at most: larger ones cannot be proven, and hold little that both models share.
MAX_NODES = 2048
#: Nodes that are followed back to learn how a value that a part reads depends on others, at most.
MAX_UPSTREAM = 256

_INTEGERS = (onnx.TensorProto.INT64, onnx.TensorProto.INT32)


def find(models: ModelPair) -> Matches:
    """Match an original and a converted model."""
    original, source = models.original.proto, models.converted
    converted, assumed = models.readable
    functions = {(f.domain, f.name) for f in original.functions}
    known: Sequence[GraphFacts] = ()
    if any((f.domain, f.name) in functions for f in converted.functions):
        known = analysis.Analysis(converted, (), source.folder).facts
    before, after = models.folders
    graphs = Graphs(original, models.facts, before), Graphs(converted, known, after)
    types = KnownTypes(original, models.infos, models.facts)
    return Matches(Definitions(*graphs, models.folders), types, models.infos, assumed)


class Matches:
    """What differs between two models, in parts.

    Attributes:
        changed: parts that compute a value that the models define differently, in the order of the
            original.
        unmatched: values of the original that differ, but of which there are no two parts.
        rest: what else differs, one sentence each.
        holders: of both models, see `Numbering.holders`; those that both have.
    """

    def __init__(
        self,
        definitions: Definitions,
        types: KnownTypes,
        infos: Sequence[OperatorInfo],
        assumed: Mapping[str, str],
    ) -> None:
        self._definitions, self._types, self._infos = definitions, types, infos
        self._assumed = assumed
        holders = definitions.before.holders, definitions.after.holders
        common = set(holders[0].values()) & set(holders[1].values())
        self.holders = [{k: n for k, n in own.items() if n in common} for own in holders]
        self.original, self.converted = definitions.original, definitions.converted
        self.changed: list[ChangedPart] = []
        self.unmatched: list[Unmatched] = []
        for place, name in self._differing_values():
            part = self._smallest_part(place, name, self._is_boundary)
            if isinstance(part, ChangedPart):
                self.changed.append(part)
            else:
                self.unmatched.append(part)
        self.rest = [
            *_redefined_functions(self.original.model, self.converted.model),
            *_added_and_unread(definitions),
        ]
        disordered = [*_disordered_nodes(self.converted.model)]
        if disordered and not any(_disordered_nodes(self.original.model)):
            self.rest += disordered

    def renaming(self, parts: Iterable[ChangedPart]) -> Matches | None:
        """Match again, where some more values only have the same name in both; None if all have more."""
        known = self._definitions
        shared = {(p.place, p.output) for p in parts if known.is_shared(p.output, p.place)}
        if not shared:
            return None
        renamed = known.renamed | shared
        again = Definitions(self.original, self.converted, known.folders, renamed)
        return Matches(again, self._types, self._infos, self._assumed)

    def assumptions(self, part: ChangedPart) -> set[str]:
        """Return what is assumed of the nodes of the converted model in a part."""
        names = (name for node in part.after.nodes for name in (*node.input, *node.output))
        return {self._assumed[name] for name in names if name in self._assumed}

    def widened(self, part: ChangedPart) -> ChangedPart | Unmatched:
        """Extend a part to the inputs of the graph."""

        def stops(name: str, place: traversal.Place) -> bool:
            producer = self.original.find(name, place)
            return self.original.is_replaceable(producer) and self._is_boundary(name, place)

        return self._smallest_part(part.place, part.output, stops)

    def upstream(self, part: ChangedPart) -> Upstream | None:
        """Return how the original computes values that a part reads from others; None if it does not.

        These are integers, which depend on sizes, and values that depend on others that it reads.
        """
        names: list[str] = []
        node_at: dict[int, onnx.NodeProto] = {}
        stored: dict[str, onnx.TensorProto] = {}
        read: set[str] = set()
        for name in part.inputs:
            try:
                upstream = self._find_upstream(name, part)
            except NoPartError:
                continue
            names.append(name)
            node_at.update((self.original.position(node), node) for node in upstream.nodes)
            stored.update((tensor.name, tensor) for tensor in upstream.stored)
            read |= upstream.read
        if not names:
            return None
        read -= {output for node in node_at.values() for output in node.output}
        nodes = sorted(node_at.values(), key=self.original.order)
        imports = self.original.imports(part.place)
        joined = Computation(nodes, read, [*stored.values()], [], imports)
        inputs = {name: self._type_of(name, part.place) for name in sorted(read)}
        return Upstream(names, joined, inputs)

    def _find_upstream(self, name: str, part: ChangedPart) -> Computation:
        """Return what computes a value that a part reads: a size from data, another value from others.

        Raises:
            NoPartError: no node does, or it depends on too many values or on others than these.
        """
        place = part.place
        other_inputs = part.inputs.keys() - {name}
        if not isinstance(self.original.find(name, place), onnx.NodeProto):
            raise NoPartError("it is an input")
        is_size = self._is_size(name, place)
        # What the original computes before all of them depends on none of them.
        earliest = min((self._order_of(other, place) for other in other_inputs), default=None)

        def stops(source: str, producer: Producer | None) -> bool:
            if producer is not None and is_constant(producer):
                return self.original.is_replaceable(producer)
            if is_size:
                return not self._is_size(source, place)
            if source in other_inputs:
                return True
            if earliest is None or self._order_of(source, place) < earliest:
                raise NoPartError(f"it depends on {source!r}")
            return False

        growing = GrowingPart(self.original, place, stops, MAX_UPSTREAM)
        growing.include(name)
        if not is_size and not growing.read <= other_inputs:
            raise NoPartError("it depends on other inputs")
        return growing.part()

    def _order_of(self, name: str, place: traversal.Place) -> tuple[int, int]:
        """Return when the original computes a value; stored values and inputs come first."""
        producer = self.original.find(name, place)
        return self.original.order(producer) if isinstance(producer, onnx.NodeProto) else (-1, -1)

    def _differing_values(self) -> Iterator[Key]:
        """Yield each value of both models that they define differently, then such outputs."""
        known = self._definitions
        for place, node in self.original.nodes:
            for name in node.output:
                if known.is_shared(name, place) and not known.defined_alike(name, place):
                    yield place, name
        for value in self.original.model.graph.output:
            if not known.is_shared(value.name, MAIN) and not known.read_alike(value.name, MAIN):
                yield MAIN, value.name

    def _smallest_part(
        self, place: traversal.Place, output: str, stops: Callable[[str, traversal.Place], bool]
    ) -> ChangedPart | Unmatched:
        """Find the smallest part with a value that ends at values which stop it."""
        inside = {output}

        def ends(name: str, producer: Producer | None) -> bool:
            return name not in inside and stops(name, place)

        before, after = (
            GrowingPart(graphs, place, ends, MAX_NODES)
            for graphs in (self.original, self.converted)
        )
        try:
            value: str | None = output
            while value is not None:
                inside.add(value)
                for growing in (before, after):
                    if value == output or value in growing.read:
                        growing.include(value)
                value = self._to_include(before.read, after.read, place)
            of_original, of_converted = before.part(), after.part()
            self._check_reads(of_original, of_converted, place)
        except NoPartError as error:
            positions = frozenset(map(self.original.position, before.nodes))
            return Unmatched(place, output, positions, str(error))
        inputs = {name: self._type_of(name, place) for name in sorted(of_original.read)}
        positions = frozenset(map(self.original.position, of_original.nodes))
        fed = all(self._is_input(name, place) for name in inputs)
        return ChangedPart(place, output, of_original, of_converted, inputs, positions, fed)

    def _to_include(self, before: set[str], after: set[str], place: traversal.Place) -> str | None:
        """Return a value that is to be part of both parts; None if they can end here.

        Of the values that only one part reads, the one that is computed last cannot be one that both
        begin with.
        """
        latest = self._latest_value(before ^ after, place)
        if latest is None and after - before:
            return self._latest_value(before | after, place)
        return latest

    def _latest_value(self, names: set[str], place: traversal.Place) -> str | None:
        """Return the value that the original computes last among some; None if it computes none."""
        computed = [
            name
            for name in names
            if isinstance(producer := self.original.find(name, place), onnx.NodeProto)
            and not is_set_by_call(producer)
            and self._definitions.read_alike(name, place)
        ]
        return max(computed, key=lambda name: (self._order_of(name, place), name), default=None)

    def _check_reads(self, before: Computation, after: Computation, place: traversal.Place) -> None:
        """Check that what both parts read is the same, and that they keep their constants.

        Raises:
            NoPartError: it is not.
        """
        if added := sorted(after.read - before.read):
            raise NoPartError(f"the converted model computes it from {added[0]!r}, too")
        for name in sorted(before.read):
            if not self._definitions.read_alike(name, place):
                raise NoPartError(f"{name!r} is another value in the converted model")
        for graphs, part in ((self.original, before), (self.converted, after)):
            for tensor in part.stored:
                if graphs.is_replaceable(tensor):
                    raise NoPartError(f"the caller of the model may replace {tensor.name!r}")

    def _is_boundary(self, name: str, place: traversal.Place) -> bool:
        """Return whether a part may begin with a value: both models read it alike, and compute it.

        Integers that are computed from constants alone are no boundary: their values count.
        """
        if not self._definitions.read_alike(name, place):
            return False
        producers = [graphs.find(name, place) for graphs in (self.original, self.converted)]
        if self.original.is_replaceable(producers[0]):
            return True
        if not all(isinstance(p, onnx.NodeProto) and not is_constant(p) for p in producers):
            return False
        return not (self.original.is_constant(name, place) and self._is_integer(name, place))

    def _is_size(self, name: str, place: traversal.Place) -> bool:
        """Return whether a value is a list or table of integers, or depends on sizes alone."""
        return self.original.is_size(name, place) or self._is_integer(name, place)

    def _is_integer(self, name: str, place: traversal.Place) -> bool:
        known = self._types.find(name, place)
        dims = shape_inference.dims(known)
        integer = shape_inference.element_type(known) in _INTEGERS
        return integer and (dims is None or len(dims) < 3)

    def _is_input(self, name: str, place: traversal.Place) -> bool:
        """Return whether a value is an input of the whole model."""
        inner = [scope for scope in scopes(place) if scope != MAIN]
        fed = self.original.is_fed
        return (
            place.function is None
            and fed(name, MAIN)
            and not any(fed(name, scope) for scope in inner)
        )

    def _type_of(self, name: str, place: traversal.Place) -> onnx.TypeProto:
        producer = self.original.find(name, place)
        if isinstance(producer, onnx.NodeProto) and is_set_by_call(producer):
            return type_set_by_call(producer)
        known = self._types.find(name, place)
        if known is None and place.function is not None:
            # A function declares no types; most likely its inputs have the type of its operators.
            types = {t for info in self._infos if info.place == place for t in info.element_types}
            if len(types) == 1:
                known = onnx.helper.make_tensor_type_proto(min(types), None)
        return known or onnx.TypeProto()


def _redefined_functions(original: onnx.ModelProto, converted: onnx.ModelProto) -> Iterator[str]:
    """Yield the functions that the converted model adds in place of standard operators.

    Which of the two is meant is left to the runtime; onnxruntime runs its own kernel.
    """
    known = {(f.domain, f.name, f.overload) for f in original.functions}
    for function in converted.functions:
        if (function.domain, function.name, function.overload) in known:
            continue
        # Programs may register schemas of the spatial operators with onnx.
        if recognize(function.name, function.domain, number_of_inputs=1):
            continue
        if onnx.defs.has(function.name, op_traits.canonical_domain(function.domain)):
            yield f"function {function.name!r} was added, which redefines a standard operator"


def _added_and_unread(definitions: Definitions) -> Iterator[str]:
    """Yield the nodes that the converted model adds and whose outputs nothing reads.

    Runtimes run them all the same, and may fail.
    """
    original, converted = definitions.original, definitions.converted
    for place, node in converted.nodes:
        names = [name for name in node.output if name]
        if is_dense_constant(node) or not converted.reads(place).isdisjoint(names):
            continue
        if all(isinstance(converted.find(n, place), onnx.TensorProto) for n in names):
            continue  # a constant that was computed when the models were read
        was_there = any(
            original.computes(name, place)
            and (place, name) not in definitions.renamed
            and is_computed(original.find(name, place)) == is_computed(node)
            for name in names
        )
        if not was_there:
            yield f"{described(node, place)} was added, and nothing reads it"


def _disordered_nodes(model: onnx.ModelProto) -> Iterator[str]:
    """Yield the first node of each graph that comes before one that computes its input."""
    for place, graph in traversal.graphs(model):
        later = {name for node in graph.node for name in node.output if name}
        for node in graph.node:
            read = traversal.needs(node) if node.attribute else node.input
            if not later.isdisjoint(read):
                label, early = described(node, place), min(later.intersection(read))
                yield f"the nodes are not in topological order: {label} reads {early!r} too early"
                break
            later.difference_update(node.output)
