"""Compute the index map of a chain of nodes, from its input to any of its values.

    x [N, H, W, C] -> Pad -> Reshape -> Transpose -> Reshape -> y       y[i, j, k, l] = x[...] or 0

The dims of the input are symbols. What the nodes read besides data (pads, starts, shapes) is followed
back to constants and to the dims of other values, which are symbols as well; values that are neither
make the map unknown.

Symbols live as long as a proof. Sizes that outlive it are polynomials of `ValueDim`s, which are
computed of the symbols of another proof, or by nodes. The index maps of many chains are only known where
nothing is rounded: `DividedSizes` notes how nodes divide sizes, to read the chain where the divisors
divide them.

    rows = (h + 5) / 2        h is read as 2*k - 5: then rows is k, and a Reshape by it is legal
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path as FilePath
from typing import Any, Self

import numpy as np
import onnx

from onnx_spatial import analysis
from onnx_spatial.chains import one_hot
from onnx_spatial.chains.one_hot import Weights
from onnx_spatial.chains.paths import Path, Step
from onnx_spatial.maps.cases import Case, IllegalError, UndecidedError
from onnx_spatial.maps.elements import Array
from onnx_spatial.maps.graph import RULES, GraphMaps
from onnx_spatial.maps.node import WHOLE
from onnx_spatial.maps.polynomial import (
    FLOOR,
    Atom,
    OperationKey,
    Polynomial,
    Symbol,
    atoms_of,
    product,
    substitute,
    top_atoms,
)
from onnx_spatial.maps.sizes import SymbolicValues
from onnx_spatial.maps.tensor import Tensor, input_map
from onnx_spatial.maps.values import MAX_PLACES
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.inference import constant_folding, shape_inference
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.operators import Arithmetic, Dim
from onnx_spatial.operators.operator import Size


@dataclass(frozen=True)
class ValueDim:
    """Key of the atom for one dim of a value: its name, and the axis."""

    value: str
    axis: int


class UnnamedError(Exception):
    """A polynomial holds a number that is no dim of a value."""


def name_sizes(p: Polynomial, dims: Mapping[Atom, ValueDim]) -> Polynomial:
    """Write a polynomial of the symbols of a proof by the dims that they stand for.

    Raises:
        UnnamedError: it holds another symbol, or a quotient that may be negative.
    """
    for atom in atoms_of(p):
        is_quotient = atom.operation.operator == FLOOR
        if not (atom in dims or (is_quotient and atom.nonnegative)):
            raise UnnamedError
    return substitute(p, {atom: Polynomial.atom(dim) for atom, dim in dims.items()})


def compute_size(p: Polynomial, sizes: Arithmetic, dim: Callable[[ValueDim], Size]) -> Size:
    """Compute what `name_sizes` has written with the arithmetic `sizes`, from what `dim` returns."""
    total: Size = 0
    # What is added first makes that less is subtracted from: no sum in between is negative.
    for atoms, factor in sorted(p.terms.items(), key=lambda term: term[1] < 0):
        term: Size = abs(factor)
        for key in (atom.key for atom in atoms):
            if isinstance(key, ValueDim):
                value = dim(key)
            else:
                assert isinstance(key, OperationKey)
                value = sizes.div(*(compute_size(each, sizes, dim) for each in key.operands))
            term = sizes.mul(term, value)
        total = sizes.sub(total, term) if factor < 0 else sizes.add(total, term)
    return total


#: A size that is a multiple is one of this number: of every usual product of blocks.
MULTIPLE = 2**8 * 3**4 * 5**2 * 7**2

#: Kind and name of the symbol for a size (`Symbol`).
SizeKey = tuple[str, str]

#: Kinds of the symbols for sizes: those that the model names, and single dims of values.
NAMED, UNNAMED = "size", "dim"

#: The most numbers added to one size that are tried.
_MAX_SUMMANDS = 3


class DividedSizes:
    """The sizes of the data of a chain, each with the numbers that nodes add before they divide it."""

    def __init__(self) -> None:
        self._added: dict[SizeKey, dict[int, None]] = {}

    def note_sizes(self, case: Case, dims: Sequence[Polynomial]) -> None:
        """Note the sizes in the dims of the data, and the quotients that a case knows facts about."""
        for key in filter(None, map(_size_key, (atom for dim in dims for atom in top_atoms(dim)))):
            self._added.setdefault(key, {})
        for fact in case.facts:
            for atom in top_atoms(fact):
                if atom.operation.operator == FLOOR:
                    self._note_dividend(next(iter(atom.operation.operands)))

    def _note_dividend(self, dividend: Polynomial) -> None:
        added = dividend.terms.get((), 0)
        atom = (dividend - added).lone_atom
        key = None if atom is None else _size_key(atom)
        if key in self._added:
            self._added[key].setdefault(added)

    def as_multiples(self) -> Iterator[Mapping[SizeKey, int]]:
        """Yield sizes to take for multiples, and what to subtract: of each alone, then of all."""
        rows = {key: list(added)[:_MAX_SUMMANDS] or [0] for key, added in self._added.items()}
        if len(rows) > 1:
            yield from ({key: less} for key, row in rows.items() for less in row)
        yield from self.all_as_multiples()

    def all_as_multiples(self) -> Iterator[Mapping[SizeKey, int]]:
        """Yield all sizes as multiples, and what to subtract."""
        rows = [(key, list(added)[:_MAX_SUMMANDS] or [0]) for key, added in self._added.items()]
        for place in range(max((len(row) for _, row in rows), default=0)):
            yield {key: row[min(place, len(row) - 1)] for key, row in rows}


def _size_key(atom: Atom) -> SizeKey | None:
    """Return the key of a size; None for other atoms."""
    key = atom.key
    if not isinstance(key, Symbol) or key.kind not in (NAMED, UNNAMED):
        return None
    return str(key.kind), key.name


_SIZES = op_traits.having(Trait.SIZES)

#: Operators through which dims are followed back to those of the data that they move: where two values
#: differ by a Pad, their dims have symbols in common.
_FOLLOWED = frozenset("Identity Pad Squeeze Transpose Unsqueeze".split())

#: The most nodes that are followed back from the parameters of a chain.
_MAX_FOLLOWED_NODES = 400


@dataclass(frozen=True)
class GraphScope:
    """One graph, and what is known of its values.

    Attributes:
        place: the graph.
        scope: types, and known values of a few thousand elements at most.
        sizes: dims as formulas; those that are numbers count here.
        names: names of dims that the model declares; other names are those of inference.
        weights: known values of any size.
        one_hot: the one-hot Convs by output, as nodes whose only input is the data (`one_hot`).
    """

    place: traversal.Place
    scope: constant_folding.ConstantScope
    sizes: SymbolicValues
    names: Collection[str]
    weights: Weights
    one_hot: Mapping[str, onnx.NodeProto] = field(default_factory=dict)

    def value(self, name: str) -> Array | None:
        """Return a value that is known before the model runs, if it has a few thousand elements."""
        return self.scope.value(name)

    def table(self, name: str) -> Array | None:
        """Return a value that is known before the model runs, if a proof can look at all elements."""
        value = self.value(name)
        dims = self.dims(name) if value is None else None
        if dims is None or not all(isinstance(dim, int) for dim in dims):
            return value
        count = math.prod(dim for dim in dims if isinstance(dim, int))
        return self.weights.array(self.place, name) if count <= MAX_PLACES else None

    def dims(self, name: str) -> tuple[int | str | None, ...] | None:
        """Return the dims of a value, None for those that are unknown; None if its rank is."""
        declared = shape_inference.dims(self.scope.type(name))
        if declared is not None and all(isinstance(dim, int) for dim in declared):
            return declared
        inferred = self.sizes.dims(name)
        if declared is None:
            return None if inferred is None else tuple(dim.constant for dim in inferred)
        named = [d if isinstance(d, int) or d in self.names else None for d in declared]
        for axis, dim in enumerate(inferred or ()):
            named[axis] = named[axis] if dim.constant is None else dim.constant
        return tuple(named)

    def element_type(self, name: str) -> int:
        """Return the ONNX element type of a value; 0 if it is unknown."""
        return shape_inference.element_type(self.scope.type(name)) or 0


@dataclass(frozen=True)
class NodeChain:
    """A chain of standard nodes that moves data.

    Attributes:
        place: the graph that holds it.
        source: name of the data.
        output: name of the result.
        nodes: its nodes, in order; others compute their parameters.
        element_type: ONNX element type of the data; 0 if it is unknown.
        input_shape, output_shape: as far as they are known.
    """

    place: traversal.Place
    source: str
    output: str
    nodes: tuple[onnx.NodeProto, ...]
    element_type: int = 0
    input_shape: tuple[Dim, ...] | None = None
    output_shape: tuple[Dim, ...] | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Graph and output, as in reports."""
        return str(self.place), self.output

    @property
    def labels(self) -> list[str]:
        """Labels of the nodes that move data."""
        return [traversal.label(node) for node in self.nodes]

    @classmethod
    def of(cls, graph: GraphScope, path: Path, **facts: Any) -> Self:
        """Return a path as a chain, with what else is known of it."""
        source, output = path.values[0], path.values[-1]
        shapes = graph.dims(source), graph.dims(output)
        kind = graph.element_type(source)
        return cls(graph.place, source, output, tuple(path.nodes), kind, *shapes, **facts)


def graph_scopes(
    proto: onnx.ModelProto, known: analysis.Analysis | None, folder: FilePath | None
) -> list[GraphScope]:
    """Return what is known of the values of each graph, in the order of `traversal.graphs`.

    In the body of a local function holds what all calls agree on.

    Args:
        proto: the model; it is not changed.
        known: its named spatial operators, and what is known of its values; None: it has none.
        folder: where external data lies.
    """
    known = analysis.Analysis(proto, (), folder) if known is None else known
    names = shape_inference.symbols(traversal.Index(proto))
    weights = Weights(proto, folder)
    return [
        GraphScope(place, facts.scope, facts.sizes, names, weights)
        for (place, _), facts in zip(traversal.graphs(proto), known.facts, strict=True)
    ]


class ChainMap:
    """The map of a path in a case: of its last value, from its first one.

    Args:
        case: the case.
        graph: the graph.
        path: the path.
        multiples: sizes that are multiples of `MULTIPLE`, each less a number.

    Attributes:
        dims: the dims that symbols stand for.

    Raises:
        UndecidedError: the rank of the value is unknown, or a parameter is.
    """

    def __init__(
        self,
        case: Case,
        graph: GraphScope,
        path: Path,
        multiples: Mapping[SizeKey, int] | None = None,
    ) -> None:
        self._case, self._graph, self._multiples = case, graph, multiples or {}
        self.dims: dict[Atom, ValueDim] = {}
        self.source, self._last = path.values[0], path.values[-1]
        self._nodes = [
            graph.one_hot.get(node.output[0], node)
            for step in path.steps
            for node in (_moving_alone(step) if step.changes else step.nodes)
        ]
        self._sized: dict[str, Sequence[Polynomial]] = {}
        self._inputs: dict[str, Tensor] = {}
        self._constants: dict[str, Callable[[], Array]] = {}
        self._followed: list[str] = []  # values whose Shape is read, behind those that are given
        element_type = graph.element_type(self.source)
        self.x = input_map(case, self.source, self._source_dims(), type=element_type)
        case.counts.append(product(self.x.dims))
        inner = {name for node in self._nodes for name in node.output}
        self._inputs, self._constants, self._followed = {self.source: self.x}, {}, []
        read = [name for node in self._nodes for name in node.input if name not in inner]
        nodes = [*self._nodes, *self._follow_parameters(read, inner)]
        if any(attribute.ref_attr_name for node in nodes for attribute in node.attribute):
            raise UndecidedError("an attribute is that of a function")
        self._maps = self._maps_of(nodes)
        # Dims are named by values that stay: not by inner ones of another chain, which may go.
        for name in self._followed:
            self._name_dims(name, self._maps.value(name).dims)
        self._name_dims(self.source, self.x.dims)

    def _maps_of(self, nodes: Sequence[onnx.NodeProto]) -> GraphMaps:
        opset, rule = self._graph.scope.opset, one_hot.rule
        values = self._inputs, self._constants
        return GraphMaps(self._case, nodes, *values, {}, rule, opset=opset, legal=True)

    def _name_dims(self, name: str, dims: Sequence[Polynomial]) -> None:
        """Name the symbols that are dims of a value by this value."""
        self._sized[name] = dims
        for axis, dim in enumerate(dims):
            if (atom := dim.lone_atom) is not None and atom in self.dims:
                self.dims[atom] = ValueDim(name, axis)

    @property
    def y(self) -> Tensor:
        """The map of the last value.

        Raises:
            UndecidedError: it has no index map.
        """
        return self._maps.value(self._last)

    def may_run(self) -> bool:
        """Return whether a run of the chain may succeed.

        Raises:
            UndecidedError: the last value has no index map.
        """
        try:
            _ = self.y
        except IllegalError:
            return False
        return not self._case.facts.contradictory()

    def dims_of(self, name: str) -> Sequence[Polynomial]:
        """Return the dims of a value of the chain.

        Raises:
            UndecidedError: it has no index map.
        """
        return self._maps.value(name).dims

    def size(self, dim: ValueDim) -> Polynomial:
        """Return the symbol of a dim, or the dim if it is known."""
        dims = self._sized.get(dim.value)
        return (self._input_dims(dim.value) if dims is None else dims)[dim.axis]

    def _source_dims(self) -> list[Polynomial]:
        """Return the dims of the source, by those of the data that it is moved from."""
        name = self.source
        known = self._input_dims(name)
        if all(dim.constant is not None for dim in known) or not self._is_followed(name):
            return known
        try:
            nodes = self._follow_parameters([name], ())
            followed = self._maps_of(nodes).value(name).dims
        except UndecidedError:
            return known
        return [a if a.constant is not None else b for a, b in zip(known, followed, strict=True)]

    def _is_followed(self, name: str) -> bool:
        node = self._graph.scope.producer(name)
        return node is not None and op_traits.is_standard(node) and node.op_type in _FOLLOWED

    def _input_dims(self, name: str) -> list[Polynomial]:
        known = self._graph.dims(name)
        if known is None:
            raise UndecidedError(f"the rank of {name!r} is unknown")
        if 0 in known:
            raise UndecidedError(f"{name!r} is empty")
        return [self._dim_symbol(ValueDim(name, axis), dim) for axis, dim in enumerate(known)]

    def _dim_symbol(self, dim: ValueDim, known: int | str | None) -> Polynomial:
        if isinstance(known, int):
            return Polynomial.of(known)
        kind, label = (NAMED, known) if known else (UNNAMED, f"{dim.value}.{dim.axis}")
        less = self._multiples.get((kind, label))
        if less is not None:
            return self._case.symbol(f"{kind} {label}", kind="multiple") * MULTIPLE - less
        symbol = self._case.symbol(label, kind=kind)
        if (atom := symbol.lone_atom) is not None:
            self.dims.setdefault(atom, dim)
        return symbol

    def _follow_parameters(
        self, names: Sequence[str], inner: Collection[str]
    ) -> list[onnx.NodeProto]:
        """Return the nodes that compute parameters; note the constants and dims that they start from."""
        todo, seen, nodes = [n for n in names if n], set[str](), dict[str, onnx.NodeProto]()
        measured = {self.source}  # values of which only the dims are read
        while todo:
            name = todo.pop()
            if name in seen or name in inner or name in self._inputs:
                continue
            seen.add(name)
            value = self._graph.table(name)
            if value is not None:
                self._constants[name] = partial(np.asarray, value)
                continue
            node = self._graph.scope.producer(name)
            if name in measured and not self._is_followed(name) and self._is_data(name):
                self._inputs[name] = input_map(self._case, name, self._input_dims(name))
                continue
            if node is None or not op_traits.is_standard(node) or node.op_type not in RULES:
                raise UndecidedError(f"the parameter {name!r} is unknown")
            if len(nodes) > _MAX_FOLLOWED_NODES:
                raise UndecidedError("the parameters of the chain are computed by too many nodes")
            if name in measured or node.op_type in _SIZES:
                measured.add(node.input[0])
            if (
                node.op_type in _SIZES
                and node.input[0] not in inner
                and self._is_followed(node.input[0])
            ):
                self._followed.append(node.input[0])
            nodes[node.output[0]] = node
            todo += filter(None, node.input)
        return list(nodes.values())

    def _is_data(self, name: str) -> bool:
        """Return whether a value is data, and not a list or table of integers that nodes compute."""
        node, dims = self._graph.scope.producer(name), self._graph.dims(name)
        computed = node is not None and op_traits.is_standard(node) and node.op_type in RULES
        small = dims is not None and len(dims) <= 2
        return not (computed and small and self._graph.element_type(name) in WHOLE)


def _moving_alone(step: Step) -> tuple[onnx.NodeProto]:
    """Return a step as its index map sees it: a function of single elements is an Identity."""
    return (onnx.helper.make_node("Identity", [step.data], step.last.output),)
