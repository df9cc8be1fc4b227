"""Compute the index map of a chain of nodes, from its input to any of its values.

    x [N, H, W, C] -> Pad -> Reshape -> Transpose -> Reshape -> y       y[i, j, k, l] = x[...] or 0

The dims of the input are symbols. What the nodes read besides data (pads, starts, shapes) is followed
back to constants and to the dims of other values, which are symbols as well; values that are neither
make the map unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import onnx

from onnx_spatial.chains import one_hot
from onnx_spatial.chains.formulas import ValueDim
from onnx_spatial.chains.paths import Path
from onnx_spatial.index_map.cases import Case, UndecidedError
from onnx_spatial.index_map.constants import Array
from onnx_spatial.index_map.division import exact
from onnx_spatial.index_map.expressions import ONE, ZERO, product
from onnx_spatial.index_map.graph import RULES, GraphMaps
from onnx_spatial.index_map.node import WHOLE
from onnx_spatial.index_map.tensor import Tensor, given
from onnx_spatial.model import op_traits
from onnx_spatial.model.inference import constant_folding, shape_inference
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.model.symbolic.polynomial import Atom, Polynomial

_SIZES = op_traits.having(Trait.SIZES)

#: Operators through which dims are followed back to those of the data that they move: where two values
#: differ by a Pad, their dims have symbols in common.
_FOLLOWED = frozenset("Identity Pad Squeeze Transpose Unsqueeze".split())

#: The most nodes that are followed back from the parameters of a chain.
_FAR = 400

#: An unknown dim is a multiple of this where the nodes divide it: of every usual product of blocks.
MULTIPLE = 2**8 * 3**4 * 5**2 * 7**2


@dataclass(frozen=True)
class GraphScope:
    """One graph, and what is known of its values.

    Attributes:
        scope: types and known values.
        names: names of dims that the model declares; other names are those of inference.
        one_hot: the one-hot Convs by output, as nodes whose only input is the data (`one_hot`).
    """

    scope: constant_folding.ConstantScope
    names: Collection[str]
    one_hot: Mapping[str, onnx.NodeProto] = field(default_factory=dict)

    def value(self, name: str) -> Array | None:
        """Return a value that is known before the model runs."""
        return self.scope.value(name)

    def dims(self, name: str) -> tuple[int | str | None, ...] | None:
        """Return the dims of a value, None for those that are unknown; None if its rank is."""
        dims = shape_inference.dims(self.scope.type(name))
        if dims is None:
            return None
        return tuple(d if isinstance(d, int) or d in self.names else None for d in dims)

    def element_type(self, name: str) -> int:
        """Return the ONNX element type of a value; 0 if it is unknown."""
        return shape_inference.element_type(self.scope.type(name)) or 0


class ChainMap:
    """The map of a part of a path in a case: of its last value, from its first one.

    Args:
        case: the case.
        graph: the graph.
        path: the path.
        start, end: positions of the first and the last value.
        multiples: axes of the first value whose unknown dims are multiples of `MULTIPLE`, each less a
            number.

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
        start: int,
        end: int,
        multiples: Mapping[int, int] | None = None,
    ) -> None:
        self._case, self._graph = case, graph
        self.dims: dict[Atom, ValueDim] = {}
        self.source, self._last = path.values[start], path.values[end]
        self._nodes = [
            graph.one_hot.get(node.output[0], node)
            for step in path.nodes[start:end]
            for node in step
        ]
        self._sized: dict[str, Sequence[Polynomial]] = {}
        self._followed: list[str] = []  # values whose Shape is read, behind those that are given
        self._inputs: dict[str, Tensor] = {}
        self._constants: dict[str, Callable[[], Array]] = {}
        dims = self._source_dims()
        for axis, less in (multiples or {}).items():
            if (atom := dims[axis].lone_atom) is not None:
                self.dims.pop(atom, None)
            if dims[axis].constant is None:
                part = case.symbol(f"{self.source}.{axis}", kind="multiple")
                dims[axis] = part * MULTIPLE - less
        element_type = graph.element_type(self.source)
        self.x = given(case, self.source, dims, type=element_type)
        case.counts.append(product(self.x.dims))
        inner = {name for node in self._nodes for name in node.output}
        self._inputs, self._constants, self._followed = {self.source: self.x}, {}, []
        read = [name for node in self._nodes for name in node.input if name not in inner]
        nodes = self._all_nodes = [*self._nodes, *self._follow(read, inner)]
        if any(attribute.ref_attr_name for node in nodes for attribute in node.attribute):
            raise UndecidedError("an attribute is that of a function")
        self._maps = GraphMaps(
            *(case, nodes, self._inputs, self._constants, {}, one_hot.rule),
            opset=graph.scope.opset,
            legal=True,
        )
        # Dims are named by values that stay: not by inner ones of another chain, which may go.
        for name in self._followed:
            self._name_dims(name, self._maps.value(name).dims)
        if not multiples:
            self._name_dims(self.source, self.x.dims)

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

    def dims_of(self, name: str) -> Sequence[Polynomial]:
        """Return the dims of a value of the chain.

        Raises:
            UndecidedError: it has no index map.
        """
        return self._maps.value(name).dims

    def divided_exactly(self, padded: Sequence[Polynomial], block: Sequence[int]) -> bool:
        """Return whether a run of the chain fails unless each block divides its padded size.

        A Reshape that has the quotients among its dims keeps the number of elements only then:
        b * floor(p / b) is at most p, so that a product of such numbers is smaller if one is. One with
        a -1 fails unless the other dims divide the number of elements.
        """
        pairs = list(zip(padded, map(Polynomial.of, block), strict=True))
        below = {p: self._case.floor_div(p, b) * b for p, b in pairs}
        above = {p: self._case.floor_div(p + b - 1, b) * b for p, b in pairs}
        for node in self._all_nodes:
            try:
                before = self._maps.value(node.input[0]).dims
                shape = self._shape(node)
            except UndecidedError:
                continue
            # Sizes that are computed are at least 1, as all sizes that proofs are about.
            known = [] if shape is None else [d for d in shape if d != -ONE]
            if shape is None or any(d.constant is not None and d.constant < 1 for d in known):
                continue
            others = exact(product(before), product(padded))
            if others is None:
                continue
            if len(known) < len(shape):
                part = exact(product(known), others)
                if len(pairs) == 1 and part is not None and exact(part, pairs[0][1]) is not None:
                    return True
            elif any(
                others * product([rounded[p] for p in padded]) == product(shape)
                for rounded in (below, above)
            ):
                return True
        return False

    def _shape(self, node: onnx.NodeProto) -> list[Polynomial] | None:
        """Return the shape that a node gives its data with at most one -1; None if it has none.

        Raises:
            UndecidedError: an entry is unknown.
        """
        if node.op_type == "SpaceToDepth":
            dims = self._maps.value(node.input[0]).dims
            block = next((a.i for a in node.attribute if a.name == "blocksize"), 0)
            if block < 1 or len(node.input) != 1:
                return None
            rows, columns = (self._case.floor_div(d, Polynomial.of(block)) for d in dims[2:])
            return [*dims[:2], rows * block, columns * block]
        if node.op_type != "Reshape" or len(node.input) < 2:
            return None
        copies = not any(a.name == "allowzero" and a.i for a in node.attribute)
        before, shape = (
            self._maps.value(node.input[0]).dims,
            self._maps.value(node.input[1]).elements(),
        )
        return [
            before[i] if d == ZERO and copies and i < len(before) else d
            for i, d in enumerate(shape)
        ]

    def size(self, dim: ValueDim) -> Polynomial:
        """Return the symbol of a dim, or the dim if it is known."""
        dims = self._sized.get(dim.value)
        return (self._dims(dim.value) if dims is None else dims)[dim.axis]

    def _source_dims(self) -> list[Polynomial]:
        """Return the dims of the source, by those of the data that it is moved from."""
        name = self.source
        known = self._dims(name)
        if all(dim.constant is not None for dim in known) or not self._is_followed(name):
            return known
        try:
            nodes = self._follow([name], ())
            maps = GraphMaps(
                self._case,
                nodes,
                self._inputs,
                self._constants,
                {},
                opset=self._graph.scope.opset,
                legal=True,
            )
            followed = maps.value(name).dims
        except UndecidedError:
            return known
        return [a if a.constant is not None else b for a, b in zip(known, followed, strict=True)]

    def _is_followed(self, name: str) -> bool:
        node = self._graph.scope.producer(name)
        return node is not None and op_traits.is_standard(node) and node.op_type in _FOLLOWED

    def _dims(self, name: str) -> list[Polynomial]:
        known = self._graph.dims(name)
        if known is None:
            raise UndecidedError(f"the rank of {name!r} is unknown")
        if 0 in known:
            raise UndecidedError(f"{name!r} is empty")
        return [self._dim(ValueDim(name, axis), dim) for axis, dim in enumerate(known)]

    def _dim(self, dim: ValueDim, known: int | str | None) -> Polynomial:
        if isinstance(known, int):
            return Polynomial.of(known)
        kind, label = ("size", known) if known else ("dim", f"{dim.value}.{dim.axis}")
        symbol = self._case.symbol(label, kind=kind)
        if (atom := symbol.lone_atom) is not None:
            self.dims.setdefault(atom, dim)
        return symbol

    def _follow(self, names: Sequence[str], inner: Collection[str]) -> list[onnx.NodeProto]:
        """Return the nodes that compute parameters; note the constants and dims that they start from."""
        todo, seen, nodes = [n for n in names if n], set[str](), dict[str, onnx.NodeProto]()
        measured = {self.source}  # values of which only the dims are read
        while todo:
            name = todo.pop()
            if name in seen or name in inner or name in self._inputs:
                continue
            seen.add(name)
            value = self._graph.value(name)
            if value is not None:
                self._constants[name] = partial(_same, value)
                continue
            node = self._graph.scope.producer(name)
            if name in measured and not self._is_followed(name) and self._is_data(name):
                self._inputs[name] = given(self._case, name, self._dims(name))
                continue
            if node is None or not op_traits.is_standard(node) or node.op_type not in RULES:
                raise UndecidedError(f"the parameter {name!r} is unknown")
            if len(nodes) > _FAR:
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


def _same(value: Array) -> Array:
    return value
