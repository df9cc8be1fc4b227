"""Find the spatial operators of a model, and infer types, shapes and parameters of each.

    layer(x, [1, 1])        layer(w, [2, 1])        layer(data, pads): the rank of data, and pads[1] = 1

onnx's inliner makes a copy of a function's body for each call, with its own shapes, attributes and
constants; a node or a value of the body has the facts on which all copies agree. Constant folding and
shape inference alternate until neither adds a fact, because a parameter may be computed from the shape
of another operator's output.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import overload

import numpy as np
import onnx

from onnx_spatial.analysis.operator_info import (
    CallSite,
    OperatorInfo,
    input_facts,
    join_call_sites,
    join_shapes,
    opset_of,
    output_type,
    read_attributes,
    with_own_names,
)
from onnx_spatial.maps.polynomial import Polynomial, one_of
from onnx_spatial.maps.sizes import Entries, SymbolicValues
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.graph.imports import import_everywhere
from onnx_spatial.model.graph.remove_unused import remove_named, remove_where
from onnx_spatial.model.graph.strip import check_text, strip_weights
from onnx_spatial.model.inference import constant_folding, functions, illegal_sizes, shape_inference
from onnx_spatial.model.inference.constant_folding import Array, ConstantScope
from onnx_spatial.model.traversal import Index, Place
from onnx_spatial.operators.spellings import DOMAINS, LEFTOVER_INPUTS, NodeFacts, recognize

logger = logging.getLogger(__name__)

#: Passes of folding and inference; each resolves the parameters computed behind one more operator.
_MAX_PASSES = 32

#: A copy of a model that declares every inferred type, and its graphs.
Inferred = tuple[onnx.ModelProto, list[constant_folding.GraphInScope]]


def inferred(model: Index, infos: Sequence[OperatorInfo], folder: Path | None = None) -> Inferred:
    """Return a copy without weights that declares every inferred type, and its graphs.

    It has the same nodes.

    Args:
        model: the model of `infos`.
        infos: its spatial operators.
        folder: folder of the external data.
    """

    def output_type_of(number: int, types: list[onnx.TypeProto | None]) -> onnx.TypeProto | None:
        element_type = shape_inference.element_type(types[0]) if types else None
        if element_type is None:
            return None
        return onnx.helper.make_tensor_type_proto(element_type, infos[number].output_shape)

    return _infer_all(with_probes(model, infos, folder), output_type_of)


def with_probes(model: Index, infos: Sequence[OperatorInfo], folder: Path | None = None) -> Index:
    """Return a copy without weights whose probes are numbered by the position in `infos`.

    Raises:
        UnicodeDecodeError: a name is not text.
    """
    check_text(model.nodes)
    copy = Index(strip_weights(model.model, folder), like=model)
    for (domain, _), positions in model.kinds.items():
        for position in positions if domain == shape_inference.DOMAIN else ():  # of the file
            copy.nodes[position].domain = f"{shape_inference.DOMAIN}.other"
    for number, info in enumerate(infos):
        if info.known_domain:
            _make_probe(copy.nodes[info.index], number)
    return copy


@dataclass(frozen=True)
class Inlined:
    """A model without weights whose functions are inlined, and what inference found in it.

    Attributes:
        copy: the model before that, see `with_probes`.
        model: the inlined model.
        call_sites: those of its probes.
        inferred: the result of inference.
        positions: for each node the position in `copy` of the node of a function that it is a copy of;
            None for other nodes. Empty where the inliner left or converted functions.
    """

    copy: Index
    model: Index
    call_sites: list[CallSite]
    inferred: Inferred
    positions: Sequence[int | None]

    def infer(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """Infer the types of the inlined model, changed, with what is known of its probes."""
        sites = self.call_sites
        return shape_inference.infer(model, lambda n, types: output_type(sites[n], types))

    def copies(self) -> dict[int, list[_Copy]]:
        """Return the copies of each node in a function, one per call in the same order."""
        result, graphs = self.inferred
        scope_of = {id(graph): scope for scope, graph in graphs}
        copies: dict[int, list[_Copy]] = {}
        for position, (_, graph, node) in zip(
            self.positions, traversal.nodes(result), strict=False
        ):
            if position is not None:
                copies.setdefault(position, []).append(_Copy(scope_of[id(graph)], node))
        return copies


def infer_inlined(
    model: Index, infos: Sequence[OperatorInfo], folder: Path | None = None
) -> Inlined:
    """Inline the functions of a model, and infer its types; the arguments are those of `inferred`."""
    copy = with_probes(model, infos, folder)
    inlined = copy
    positions = list[int | None]()
    import_everywhere(copy.model, shape_inference.DOMAIN)
    if copy.model.functions:
        messages = (copy.model, *copy.model.functions)
        opsets = {op_traits.opset_of(message.opset_import) for message in messages} - {None}
        for position, node in enumerate(copy.nodes):
            _take_position(node)  # of the file
            # The inliner converts nodes to the version of the model.
            if copy.place(position).function is not None and len(opsets) == 1:
                node.attribute.append(onnx.helper.make_attribute(_POSITION, position))
        inlined = Index(_inline_functions(copy.model))
        positions = [_take_position(node) for node in inlined.nodes]
        for node in copy.nodes:
            _take_position(node)
        positions = [] if inlined.model.functions else positions
    call_sites = _find_call_sites(inlined, infos)
    return Inlined(copy, inlined, call_sites, infer_at_call_sites(inlined, call_sites), positions)


def _resolve_facts(inlined: Inlined, infos: Sequence[OperatorInfo], symbols: set[str]) -> None:
    """Resolve facts, calls and errors of `infos` by what was found at their call sites."""
    sites_of: dict[int, list[CallSite]] = {id(info): [] for info in infos if info.known_domain}
    for call_site in inlined.call_sites:
        sites_of[id(call_site.info)].append(call_site)
    if not all(sites_of.values()):  # in functions without calls only what these say is known
        scopes = constant_folding.scopes(inlined.copy.model)
        scope_of = {id(graph): scope for scope, graph in scopes}
        for node, graph in _probes_of(inlined.copy):
            info = infos[_number_of(node).i]
            if not sites_of[id(info)]:
                info.dead = True
                sites_of[id(info)] = [CallSite(info, node, scope=scope_of[id(graph)])]
    for info in infos:
        if info.known_domain:
            join_call_sites(info, sites_of[id(info)], symbols)


def _find_call_sites(inlined: Index, infos: Sequence[OperatorInfo]) -> list[CallSite]:
    """Return the call site of each probe of an inlined model, and number the probes by these."""
    number_of = {id(graph): number for number, (_, graph) in enumerate(inlined.graphs)}
    types: dict[int, dict[str, onnx.TypeProto]] = {}
    call_sites = list[CallSite]()
    for node, graph in _probes_of(inlined):
        if id(graph) not in types:
            types[id(graph)] = shape_inference.declared_types(graph)
        number = _number_of(node)
        declared = shape_inference.element_type(types[id(graph)].get(next(iter(node.output), "")))
        call_sites.append(CallSite(infos[number.i], node, number_of[id(graph)], declared=declared))
        number.i = len(call_sites) - 1
    return call_sites


def _inline_functions(copy: onnx.ModelProto) -> onnx.ModelProto:
    try:
        return functions.inline(copy)
    except Exception as error:  # the calls stay, and less is known of their nodes
        logger.info("onnx inliner gave up: %s", error)
        return copy


def infer_at_call_sites(model: Index, call_sites: Sequence[CallSite]) -> Inferred:
    """Infer types, shapes and parameters until no fact is new; return the result and its graphs.

    Args:
        model: the inlined model; ranks that onnx does not infer are declared in it.
        call_sites: of its probes; their facts are updated.
    """

    def known_parameters(graphs: Sequence[constant_folding.GraphInScope]) -> int:
        for call_site in call_sites:
            call_site.scope, _ = graphs[call_site.graph]
        return sum(call_site.known_parameters() for call_site in call_sites)

    def forget_types() -> None:
        for call_site in call_sites:
            call_site.types.clear()

    def output_type_of(number: int, types: list[onnx.TypeProto | None]) -> onnx.TypeProto | None:
        call_sites[number].types.append(types)
        return output_type(call_sites[number], types)

    return _infer_all(model, output_type_of, known_parameters, forget_types)


def _infer_all(
    model: Index,
    rule: shape_inference.TypeRule,
    count: Callable[[Sequence[constant_folding.GraphInScope]], int] = lambda graphs: 0,
    begin: Callable[[], None] = lambda: None,
) -> Inferred:
    """Infer the types of a model, whose doubtful shapes are removed, until no fact is new.

    Args:
        model: the model; ranks that onnx does not infer are declared in it.
        rule: gives the types of its probes.
        count: counts the parameters that are known; if there are no more than before, another
            inference would find the same.
        begin: called before each inference.
    """
    _drop_doubtful_shapes(model)
    known, result = None, model.model
    graphs = list(constant_folding.scopes(result))
    for _ in range(_MAX_PASSES):
        now = count(graphs)
        if now == known:
            break
        begin()
        known, result = now, shape_inference.infer(model.model, rule)
        graphs = list(constant_folding.scopes(result))
        if _declare_missing_ranks(model, graphs):
            known, graphs = None, list(constant_folding.scopes(result))
    return result, graphs


def _make_probe(node: onnx.NodeProto, number: int) -> None:
    """Turn a spatial node into the probe with this number."""
    node.domain, node.op_type = shape_inference.DOMAIN, shape_inference.PROBE
    del node.output[1:]
    remove_named(node.attribute, {shape_inference.NUMBER})  # of the file
    node.attribute.append(onnx.helper.make_attribute(shape_inference.NUMBER, number))


def _probes_of(model: Index) -> Iterator[tuple[onnx.NodeProto, traversal.GraphLike]]:
    """Yield the probes of a model with their graphs."""
    for position in model.kinds.get((shape_inference.DOMAIN, shape_inference.PROBE), ()):
        yield model.nodes[position], model.graph(position)


def _number_of(node: onnx.NodeProto) -> onnx.AttributeProto:
    """Return the attribute that holds the number of a probe."""
    number: onnx.AttributeProto
    (number,) = (a for a in node.attribute if a.name == shape_inference.NUMBER)
    return number


def _drop_doubtful_shapes(model: Index) -> None:
    """Remove declared shapes behind spatial operators: exporters that do not know these guess.

    Shapes behind operators of unknown domains are kept: no inference could replace them.
    """
    probed = {node.output[0] for node, _ in _probes_of(model) if node.output}
    behind = model.flow(model.model.graph).downstream(probed) if probed else set[str]()
    inputs = (name for _, graph in model.graphs for name in traversal.value_names(graph.input))
    opaque = shape_inference.opaque_values(model)
    shape_inference.forget_shapes(model.model, behind.difference(inputs, opaque))


def _declare_missing_ranks(model: Index, inferred: Sequence[constant_folding.GraphInScope]) -> bool:
    """Declare ranks in `model` that onnx does not infer, in place, but for values in functions.

        n = Shape(x), Split(n), Concat(..): 4 elements        Reshape(x, n)        has rank 4

    onnx needs the elements of a shape, or at least a length that it can follow; index maps follow more.

    Args:
        model: the model.
        inferred: the graphs of the result of shape inference for it.

    Returns:
        Whether any rank is new.
    """
    changed = False
    for (_, graph), (scope, _) in zip(model.graphs, inferred, strict=True):
        if isinstance(graph, onnx.GraphProto):
            ranks = _missing_ranks(scope)
            _declare_ranks(graph, ranks)
            changed |= bool(ranks)
    return changed


def _missing_ranks(scope: ConstantScope) -> dict[str, int]:
    """Return the ranks above 0 that a graph does not declare for its values."""
    sizes, ranks = SymbolicValues(scope), dict[str, int]()
    ranked = {name for name, known in scope.types.items() if known.tensor_type.shape.dim}
    for name, node in scope.producers.items():
        if name in ranked or not op_traits.is_standard(node):
            continue
        known = scope.types.get(name)
        if known is not None and known.WhichOneof("value") not in (None, "tensor_type"):
            continue
        dims = sizes.dims(name) if shape_inference.dims(known) is None else None
        if dims:
            ranks[name] = len(dims)
    return ranks


def _declare_ranks(graph: onnx.GraphProto, ranks: dict[str, int]) -> None:
    infos = {v.name: v for v in traversal.declared_values(graph)} if ranks else {}
    for name, rank in ranks.items():
        info = infos[name] if name in infos else graph.value_info.add(name=name)
        shape = info.type.tensor_type.shape
        for _ in range(rank - len(shape.dim)):
            shape.dim.add()


#: INT attribute of the nodes of functions: the position in `traversal.nodes`.
_POSITION = "onnx_spatial_position"


@dataclass(frozen=True)
class GraphFacts:
    """What is known of the values of one graph.

    Attributes:
        scope: types and known values.
        sizes: sizes as polynomials.
        given: inputs of a function for which all calls give the same value, which is small.
    """

    scope: ConstantScope
    sizes: SymbolicValues
    given: Mapping[str, Array]


@dataclass(frozen=True)
class _Copy:
    """A node in one inlined copy of its function."""

    scope: ConstantScope
    node: onnx.NodeProto


@dataclass(frozen=True)
class _Seen:
    """A value in one inlined copy of a function; `name` is empty if the call leaves it out."""

    scope: ConstantScope
    name: str


class Analysis(Sequence[OperatorInfo]):
    """The spatial operators of a model, in the order of `traversal.nodes`, and what its values are.

    Attributes:
        model: the model, read.
    """

    def __init__(
        self,
        model: onnx.ModelProto | Index,
        operators: Sequence[OperatorInfo],
        folder: Path | None = None,
        inlined: Inlined | None = None,
    ) -> None:
        """Keep the operators of a model, and what inference found with them, if it did.

        Args:
            model: the model; it is not changed.
            operators: its spatial operators.
            folder: folder of the external data.
            inlined: the result of inference.
        """
        self.model = Index.of(model)
        self._operators = operators
        self._folder = folder
        if inlined is not None:
            self._inlined = inlined

    @overload
    def __getitem__(self, index: int) -> OperatorInfo: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[OperatorInfo]: ...
    def __getitem__(self, index: int | slice) -> OperatorInfo | Sequence[OperatorInfo]:
        return self._operators[index]

    def __len__(self) -> int:
        return len(self._operators)

    @cached_property
    def _inlined(self) -> Inlined:
        return infer_inlined(self.model, self._operators, self._folder)

    @cached_property
    def _inferred(self) -> Inferred:
        """What inference finds in the model as it is; in a function, what all calls have in common."""
        if self.model.model.functions:
            return inferred(self.model, self._operators, self._folder)
        return self._inlined.inferred

    @cached_property
    def facts(self) -> list[GraphFacts]:
        """What is known of each graph, in the order of `traversal.graphs`."""
        copies = self._inlined.copies() if self.model.model.functions else {}
        return _join_facts(self._inferred, copies)

    def node_facts(self, positions: Collection[int]) -> dict[int, NodeFacts]:
        """Return what is known of some nodes, by their positions in `traversal.nodes`."""
        model, graphs = self._inferred
        pairs = zip(self.facts, graphs, strict=True)
        scope_of = {id(graph): facts.scope for facts, (_, graph) in pairs}
        symbols = shape_inference.symbols(self.model)
        facts_of: dict[int, NodeFacts] = {}
        for position, (_, graph, node) in enumerate(traversal.nodes(model)):
            if position in positions:
                scope = scope_of[id(graph)]
                inputs = (input_facts(scope.type(name)) if name else None for name in node.input)
                facts = NodeFacts(node.op_type, node.domain, tuple(inputs), read_attributes(node))
                facts_of[position] = with_own_names(facts, symbols)
        return facts_of


def find(
    model: onnx.ModelProto | Index,
    domains: Iterable[str] = (),
    folder: Path | None = None,
    *,
    runnable: bool = False,
) -> Analysis:
    """Find the spatial operators of a model, and infer types, shapes and parameters of each.

    Args:
        model: a parsed model; it is not changed.
        domains: further domains of spatial operators, beside `spellings.DOMAINS`.
        folder: folder of the external data; parameters are read from it.
        runnable: refuse a model that cannot run because a window is larger than its input.

    Raises:
        ModelFileError: the model cannot run, and `runnable` is given.
    """
    index = Index.of(model)
    accepted = DOMAINS | set(domains)
    local = {(f.domain, f.name) for f in index.model.functions}  # whose calls are no operators
    infos: list[OperatorInfo] = []
    for (domain, op_type), positions in index.kinds.items():
        if (domain, op_type) in local or not recognize(op_type, domain, LEFTOVER_INPUTS):
            continue
        for position in positions:
            place, node = index.place(position), index.nodes[position]
            if recognize(op_type, domain, len(node.input)):
                facts = NodeFacts(op_type, domain, (), read_attributes(node))
                opset = opset_of(index.model, place)
                infos.append(OperatorInfo(position, place, node, opset, domain in accepted, facts))
    infos.sort(key=attrgetter("index"))
    if not any(info.known_domain for info in infos):
        check_text(index.nodes)
        return Analysis(index, infos, folder)
    inlined = infer_inlined(index, infos, folder)
    if runnable:
        illegal_sizes.check_sizes(inlined.model, inlined.inferred[0], inlined.infer)
    _resolve_facts(inlined, infos, shape_inference.symbols(index))
    return Analysis(index, infos, folder, inlined)


def _join_facts(inferred: Inferred, copies_of: Mapping[int, Sequence[_Copy]]) -> list[GraphFacts]:
    """Join what inference found with what all calls of a function agree on.

    Args:
        inferred: what inference found in the model as it is; types of values in functions are added.
        copies_of: the inlined copies of each node in a function, by its position.

    Returns:
        What is known of each graph, in the order of `traversal.graphs`.
    """
    model, graphs = inferred
    nodes = list(traversal.nodes(model)) if copies_of else []
    for position, copies in copies_of.items():
        _fix_attributes(nodes[position][2], [copy.node for copy in copies])
    scope_of = {id(graph): scope for scope, graph in graphs}
    inputs = {id(scope): set(g.input) for scope, g in graphs if isinstance(g, onnx.FunctionProto)}
    arguments_of: dict[Place, dict[str, list[_Seen]]] = {}  # by function and name of the input
    given: dict[int, dict[str, Array]] = {}
    for position, copies in copies_of.items():
        place, graph, node = nodes[position]
        for owner, name, seen in _values_of_node(scope_of[id(graph)], node, copies):
            joined = _joined_type([s.scope.type(s.name) if s.name else None for s in seen])
            if joined is not None:
                owner.types[name] = joined
            if name in inputs.get(id(owner), ()):
                arguments_of.setdefault(Place(place.function), {})[name] = seen
                if (value := _joined_value(seen)) is not None:
                    owner.assume(name, value)
                    given.setdefault(id(owner), {})[name] = value
    sizes_of: dict[int, SymbolicValues] = {}
    joined_arguments = {
        function: [_join_argument(name, seen, sizes_of) for name, seen in arguments.items()]
        for function, arguments in arguments_of.items()
    }
    facts = []
    for (place, _), (scope, _) in zip(traversal.graphs(model), graphs, strict=True):
        sizes = SymbolicValues(scope)
        for name, dims, elements in joined_arguments.get(Place(place.function), ()):
            if dims is not None:
                sizes.note(name, dims)
            if elements is not None:
                sizes.note_elements(name, elements)
        facts.append(GraphFacts(scope, sizes, given.get(id(scope), {})))
    return facts


def _take_position(node: onnx.NodeProto) -> int | None:
    """Remove the attribute that holds a node's position, and return the position."""
    taken = remove_where(node.attribute, lambda a: a.name == _POSITION)
    return taken[0].i if taken else None


def _fix_attributes(node: onnx.NodeProto, copies: Sequence[onnx.NodeProto]) -> None:
    """Replace references to attributes of the function by their values, if all calls give the same.

    References to graphs stay: their nodes are not in the list of the file's.
    """
    graphs = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
    for index in reversed(range(len(node.attribute))):
        if not node.attribute[index].ref_attr_name or node.attribute[index].type in graphs:
            continue
        name = node.attribute[index].name
        first, *others = ([a for a in copy.attribute if a.name == name] for copy in copies)
        if all(other == first for other in others):
            del node.attribute[index]
            node.attribute.extend(first)


def _values_of_node(
    scope: ConstantScope, node: onnx.NodeProto, copies: Sequence[_Copy]
) -> Iterator[tuple[ConstantScope, str, list[_Seen]]]:
    """Yield each input and output of a node of a function: its graph, its name, what is seen of it."""
    for side in ("input", "output"):
        names_of_copies = [getattr(copy.node, side) for copy in copies]
        for index, name in enumerate(getattr(node, side)):
            owner = scope.owner(name) if name else None
            if owner is not None:
                pairs = zip(copies, names_of_copies, strict=True)
                seen = [
                    _Seen(copy.scope, names[index] if index < len(names) else "")
                    for copy, names in pairs
                ]
                yield owner, name, seen


def _joined_type(types: Sequence[onnx.TypeProto | None]) -> onnx.TypeProto | None:
    """Return what several types have in common; None if that is nothing."""
    first, *others = types
    if first is None or all(other == first for other in others):
        return first
    shape, element_type = shape_inference.dims(first), shape_inference.element_type(first)
    for other in others:
        shape = join_shapes(shape, shape_inference.dims(other))
        if shape_inference.element_type(other) != element_type:
            element_type = None
    if shape is None and element_type is None:
        return None
    return onnx.helper.make_tensor_type_proto(element_type or 0, shape)


def _joined_value(seen: Sequence[_Seen]) -> Array | None:
    """Return the value of an input of a function if all calls give the same."""
    first, *others = (s.scope.value(s.name) if s.name else None for s in seen)
    if first is not None and all(
        other is not None and other.dtype == first.dtype and np.array_equal(other, first)
        for other in others
    ):
        return first
    return None


def _join_argument(
    name: str, seen: Sequence[_Seen], sizes_of: dict[int, SymbolicValues]
) -> tuple[str, Sequence[Polynomial] | None, Entries | None]:
    """Return name, dims and elements of an input of a function, as far as all calls give them.

    `sizes_of` keeps the sizes of each scope.
    """
    pairs = [(sizes_of.setdefault(id(s.scope), SymbolicValues(s.scope)), s.name) for s in seen]
    dims = [sizes.dims(argument) for sizes, argument in pairs]
    tensors = [sizes.tensor(argument) for sizes, argument in pairs]
    return name, _join_elements(dims), _joined_tensor(tensors)


def _join_elements(vectors: Sequence[Sequence[Polynomial] | None]) -> list[Polynomial] | None:
    """Join dims or elements; None if the numbers of them differ or one is unknown."""
    known = [elements for elements in vectors if elements is not None]
    if len(known) < len(vectors) or len({len(elements) for elements in known}) > 1:
        return None
    return [one_of(column) for column in zip(*known, strict=True)]


def _joined_tensor(tensors: Sequence[Entries | None]) -> Entries | None:
    """Join the elements of several tensors; None if type or shape differ or one is unknown."""
    kinds = {None if t is None else (t.element_type, t.shape) for t in tensors}
    elements = _join_elements([None if t is None else t.elements for t in tensors])
    kind = kinds.pop()
    return None if elements is None or kind is None or kinds else Entries(*kind, tuple(elements))
