"""Infer what is known of the values of each graph; in local functions from all of their calls.

    layer(x, [1, 1])        layer(w, [2, 1])        layer(data, pads): the rank of data, and pads[1] = 1

onnx's inliner makes a copy of a function's body for each call, with the values of the caller. A value of
the body has the facts on which all copies agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import overload

import numpy as np
import onnx

from onnx_spatial.analysis.find_operators import (
    Inferred,
    find_operators,
    infer_at_call_sites,
    inferred,
    inlined_probes,
    with_probes,
)
from onnx_spatial.analysis.node_facts import join_shapes
from onnx_spatial.analysis.operator_info import OperatorInfo
from onnx_spatial.maps.polynomial import Polynomial, one_of
from onnx_spatial.maps.sizes import Entries, SymbolicValues
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.graph.repeated_fields import remove_named, remove_where
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.model.inference.constant_folding import Array, ConstantScope
from onnx_spatial.model.traversal import Place

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
    """The spatial operators of a model, in the order of `traversal.nodes`, and what its values are."""

    def __init__(
        self,
        model: onnx.ModelProto,
        operators: Sequence[OperatorInfo],
        folder: Path | None = None,
        found: Inferred | None = None,
    ) -> None:
        """Keep the operators of a model, and what inference found with them, if it did.

        Args:
            model: the model; it is not changed.
            operators: its spatial operators.
            folder: folder of the external data.
            found: the result of inference, of a model without functions.
        """
        self._model = model
        self._operators = operators
        self._folder = folder
        self._found = found

    @overload
    def __getitem__(self, index: int) -> OperatorInfo: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[OperatorInfo]: ...
    def __getitem__(self, index: int | slice) -> OperatorInfo | Sequence[OperatorInfo]:
        return self._operators[index]

    def __len__(self) -> int:
        return len(self._operators)

    @cached_property
    def facts(self) -> list[GraphFacts]:
        """What is known of each graph, in the order of `traversal.graphs`."""
        found = self._found or inferred(self._model, self._operators, self._folder)
        return _join_facts(self._model, self._operators, self._folder, found)


def find(
    model: onnx.ModelProto,
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
    operators, found = find_operators(model, domains, folder, runnable=runnable)
    return Analysis(model, operators, folder, found)


def _join_facts(
    model: onnx.ModelProto,
    infos: Sequence[OperatorInfo],
    folder: Path | None,
    found: Inferred,
) -> list[GraphFacts]:
    """Join what inference found with what all calls of a function agree on."""
    known, graphs = found
    copies = _inlined_copies(with_probes(model, infos, folder), infos) if model.functions else {}
    nodes = list(traversal.nodes(known)) if copies else []
    for position, each in copies.items():
        _fix_attributes(nodes[position][2], [copy.node for copy in each])
    scope_of = {id(graph): scope for scope, graph in graphs}
    inputs = {id(scope): set(g.input) for scope, g in graphs if isinstance(g, onnx.FunctionProto)}
    seen_of: dict[Place, dict[str, list[_Seen]]] = {}
    given: dict[int, dict[str, Array]] = {}
    for position, each in copies.items():
        place, graph, node = nodes[position]
        for owner, name, seen in _values_of_node(scope_of[id(graph)], node, each):
            known_type = _joined_type([s.scope.type(s.name) if s.name else None for s in seen])
            if known_type is not None:
                owner.types[name] = known_type
            if name in inputs.get(id(owner), ()):
                seen_of.setdefault(Place(place.function), {})[name] = seen
                if (value := _joined_value(seen)) is not None:
                    owner.assume(name, value)
                    given.setdefault(id(owner), {})[name] = value
    sizes_of: dict[int, SymbolicValues] = {}
    arguments = {
        function: [_join_argument(name, seen, sizes_of) for name, seen in each.items()]
        for function, each in seen_of.items()
    }
    facts = []
    for (place, _), (scope, _) in zip(traversal.graphs(known), graphs, strict=True):
        sizes = SymbolicValues(scope)
        for name, dims, elements in arguments.get(Place(place.function), ()):
            if dims is not None:
                sizes.note(name, dims)
            if elements is not None:
                sizes.note_elements(name, elements)
        facts.append(GraphFacts(scope, sizes, given.get(id(scope), {})))
    return facts


def _inlined_copies(
    model: onnx.ModelProto, infos: Sequence[OperatorInfo]
) -> dict[int, list[_Copy]]:
    """Return the copies of each node in a function, one per call in the same order, by its position.

    Args:
        model: a copy `with_probes`; it is changed.
        infos: its spatial operators.
    """
    versions = {op_traits.opset_of(m.opset_import) for m in (model, *model.functions)} - {None}
    if len(versions) > 1:
        return {}  # the inliner converts nodes to the version of the model
    for position, (place, _, node) in enumerate(list(traversal.nodes(model))):
        remove_named(node.attribute, {_POSITION})  # of the file
        if place.function is not None:
            node.attribute.append(onnx.helper.make_attribute(_POSITION, position))
    inlined, call_sites = inlined_probes(model, infos)
    positions = [_take_position(node) for _, _, node in traversal.nodes(inlined)]
    if inlined.functions:
        return {}
    result, graphs = infer_at_call_sites(inlined, call_sites)
    scope_of = {id(graph): scope for scope, graph in graphs}
    copies: dict[int, list[_Copy]] = {}
    for taken, (_, graph, node) in zip(positions, traversal.nodes(result), strict=True):
        if taken is not None:
            copies.setdefault(taken, []).append(_Copy(scope_of[id(graph)], node))
    return copies


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
        names = [getattr(copy.node, side) for copy in copies]
        for index, name in enumerate(getattr(node, side)):
            owner = scope.owner(name) if name else None
            if owner is not None:
                pairs = zip(copies, names, strict=True)
                seen = [
                    _Seen(c.scope, each[index] if index < len(each) else "") for c, each in pairs
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
    values = [sizes_of.setdefault(id(s.scope), SymbolicValues(s.scope)) for s in seen]
    dims = [sizes.dims(s.name) for sizes, s in zip(values, seen, strict=True)]
    tensors = [sizes.tensor(s.name) for sizes, s in zip(values, seen, strict=True)]
    return name, _join_elements(dims), _joined_tensor(tensors)


def _join_elements(each: Sequence[Sequence[Polynomial] | None]) -> list[Polynomial] | None:
    """Join dims or elements; None if the numbers of them differ or one is unknown."""
    known = [elements for elements in each if elements is not None]
    if len(known) < len(each) or len({len(elements) for elements in known}) > 1:
        return None
    return [one_of(column) for column in zip(*known, strict=True)]


def _joined_tensor(each: Sequence[Entries | None]) -> Entries | None:
    kinds = {None if t is None else (t.element_type, t.shape) for t in each}
    elements = _join_elements([None if t is None else t.elements for t in each])
    kind = kinds.pop()
    return None if elements is None or kind is None or kinds else Entries(*kind, tuple(elements))
