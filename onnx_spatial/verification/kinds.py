"""Tell how exactly two forms of a model must agree on each value.

x -> [Transpose] -> t             moved data: every bit
t -> [Conv] -> c                  sums of reals: up to rounding
c -> [QuantizeLinear] -> q        behind a step: the last bit of a real decides which integer it is
[RandomNormal] -> r               another value in each run: not compared
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx

from onnx_spatial import analysis
from onnx_spatial.analysis import GraphFacts, OperatorInfo
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.inference import functions, shape_inference
from onnx_spatial.model.inference.constant_folding import ConstantScope
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.model.traversal import Place
from onnx_spatial.verification.arrays import dtype_of, is_float

#: Largest error of sums of reals, relative to the largest value of an output, by their type. Conversions
#: of the nets in models/, which are float32, are 5e-7 apart at most.
RTOL: dict[int, float] = {
    onnx.TensorProto.DOUBLE: 1e-11,
    onnx.TensorProto.COMPLEX128: 1e-11,
    onnx.TensorProto.FLOAT: 1e-5,
    onnx.TensorProto.COMPLEX64: 1e-5,
    onnx.TensorProto.FLOAT16: 2e-3,
    onnx.TensorProto.BFLOAT16: 2e-2,
}
#: That of the 8-bit floats, which have two or three mantissa bits.
RTOL_OF_8_BITS = 0.13

_SIZES = op_traits.having(Trait.SIZES)
_STEPS = op_traits.having(Trait.STEPS)
_RANDOM = op_traits.having(Trait.RANDOM)


@dataclass(frozen=True)
class Kind:
    """What a value depends on; by default on moved data alone.

    Attributes:
        rtol: of the shortest type of reals in which it was computed; 0 if every bit is determined.
        steps: whether it is behind a step from such reals to whole numbers.
        random: the first node in front of it that draws random numbers; "" if none does.
    """

    rtol: float = 0.0
    steps: bool = False
    random: str = ""

    def __or__(self, other: Kind) -> Kind:
        return Kind(
            max(self.rtol, other.rtol), self.steps or other.steps, self.random or other.random
        )


_MOVED = Kind()


def rtol_of(element_type: int | None) -> float:
    """Return the error that rounding makes in a type; 0 for types without rounding."""
    if element_type is None or element_type in RTOL:
        return RTOL.get(element_type or onnx.TensorProto.FLOAT, 0.0)
    is_short = element_type != onnx.TensorProto.STRING and is_float(dtype_of(element_type))
    return RTOL_OF_8_BITS if is_short else 0.0


class Kinds:
    """The kinds of the values of a model.

    Args:
        model: the model.
        infos: its spatial operators, which move data.
        facts: what is known of its graphs.
    """

    def __init__(
        self, model: onnx.ModelProto, infos: Sequence[OperatorInfo], facts: Sequence[GraphFacts]
    ) -> None:
        self._movers = {(i.node.domain, i.node.op_type) for i in infos if i.known_domain}
        if model.functions:
            model = functions.inline(model)
            facts = analysis.find(model, {domain for domain, _ in self._movers}).facts
        self._graph = model.graph
        self._scopes = {
            place: each.scope
            for (place, _), each in zip(traversal.graphs(model), facts, strict=True)
        }

    def of_values(self) -> dict[str, Kind]:
        """Return the kinds of the values that the nodes of the main graph compute, by name."""
        return self._kinds_along(Place(), traversal.in_order(self._graph), {})

    def _kinds_along(
        self, place: Place, nodes: Iterable[onnx.NodeProto], known: Mapping[str, Kind]
    ) -> dict[str, Kind]:
        kinds = dict(known)
        for node in nodes:
            kind = self._of_node(place, node, kinds)
            kinds.update((name, kind) for name in node.output if name)
        return kinds

    def _of_node(self, place: Place, node: onnx.NodeProto, known: Mapping[str, Kind]) -> Kind:
        kind = _MOVED
        for name in node.input:
            kind |= known.get(name, _MOVED)
        for name, body in traversal.subgraphs(node):
            inner = place.inside(traversal.step(node.op_type, node.output, name))
            kind = self._of_body(inner, body, known, kind)
        if (node.domain, node.op_type) in self._movers:
            return kind
        standard = op_traits.is_standard(node)
        scope = self._scopes.get(place)
        if standard and node.op_type in _SIZES and not (kind.steps or kind.random):
            return _MOVED  # a shape depends on reals only behind a step to whole numbers
        if standard and (node.op_type in _RANDOM or _may_drop_out(node, scope)):
            return kind | Kind(random=f"{node.op_type} node {traversal.label(node)!r}")
        moves = op_traits.is_bitwise(node) or (standard and any(traversal.subgraphs(node)))
        types = [_element_type(scope, name) for name in (*node.input, *node.output) if name]
        outputs = types[len(types) - sum(map(bool, node.output)) :]
        if kind.rtol or not moves:
            # Of reals, or of a type that is not known, which may be reals.
            kind |= Kind(max(map(rtol_of, outputs if moves else types), default=0.0))
        if kind.rtol and standard and node.op_type in _STEPS:
            casts = node.op_type in ("Cast", "CastLike")
            kind |= Kind(steps=not casts or None in outputs or not any(map(rtol_of, outputs)))
        return kind

    def _of_body(
        self, place: Place, body: onnx.GraphProto, known: Mapping[str, Kind], inputs: Kind
    ) -> Kind:
        """Return the kind of the outputs of a branch, or of a loop after any number of iterations."""
        nodes, kind, after = traversal.in_order(body), None, inputs
        while kind != after:  # the outputs of one iteration are the inputs of the next
            kind = after
            fed = {value.name: kind for value in body.input}
            kinds = self._kinds_along(place, nodes, {**known, **fed})
            for value in body.output:
                after |= kinds.get(value.name, _MOVED)
        return after


def _element_type(scope: ConstantScope | None, name: str) -> int | None:
    return None if scope is None else shape_inference.element_type(scope.type(name))


def _may_drop_out(node: onnx.NodeProto, scope: ConstantScope | None) -> bool:
    """Return whether a node is a Dropout that may be in training mode."""
    if node.op_type != "Dropout" or len(node.input) < 3 or not node.input[2]:
        return False
    mode = None if scope is None else scope.value(node.input[2])
    return mode is None or bool(mode.any())
