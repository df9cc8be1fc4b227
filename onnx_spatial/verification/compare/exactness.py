"""Classify the outputs of a model by how exactly two forms of the model must agree on them.

A forward pass over the graph marks every value that depends on floating-point arithmetic, on a step from
reals to whole numbers behind such arithmetic, or on a random operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import onnx

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.graph.strip_weights import strip_weights
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.model.symbolic.symbolic_tensor import INTEGERS
from onnx_spatial.verification.arrays import BOOL, STRING
from onnx_spatial.verification.runtime.program import Program

_SIZES = op_traits.having(Trait.SIZES)
_STEPS = op_traits.having(Trait.STEPS)
_RANDOM = op_traits.having(Trait.RANDOM)


@dataclass(frozen=True)
class Exactness:
    """The operations that a value depends on.

    Floating-point arithmetic, a step from reals to whole numbers behind it (`discrete`), random ones.
    """

    arithmetic: bool = False
    discrete: bool = False
    random: bool = False

    def __or__(self, other: Exactness) -> Exactness:
        return Exactness(
            self.arithmetic or other.arithmetic,
            self.discrete or other.discrete,
            self.random or other.random,
        )


_NOTHING = Exactness()


def of_outputs(program: Program) -> dict[str, Exactness]:
    """Return the exactness of each output of the original."""
    marks = _Marks(program)
    known = marks.graph(program.flat.graph, {})
    return {v.name: known.get(v.name, _NOTHING) for v in program.flat.graph.output}


def element_types(program: Program) -> Mapping[str, int]:
    """Return element types by value name, as onnx infers them with probes for spatial operators."""
    model = strip_weights(program.flat)
    # All at once: the walk follows graphs in attributes, which probes lose.
    pairs = list(zip(traversal.nodes(program.flat), traversal.nodes(model), strict=True))
    for (_, _, node), (_, _, probe) in pairs:
        if program.site_of(node) is not None:
            probe.domain, probe.op_type = shape_inference.DOMAIN, shape_inference.PROBE
            del probe.attribute[:]
            probe.attribute.append(onnx.helper.make_attribute(shape_inference.NUMBER, 0))

    def same_type(_: int, types: list[onnx.TypeProto | None]) -> onnx.TypeProto | None:
        element_type = shape_inference.element_type(types[0]) if types else None
        if element_type is None:
            return None
        return onnx.helper.make_tensor_type_proto(element_type, None)

    types_by_name: dict[str, int] = {}
    for _, graph in traversal.graphs(shape_inference.infer(model, same_type)):
        if isinstance(graph, onnx.GraphProto):
            types_by_name.update((t.name, t.data_type) for t in graph.initializer)
            for info in (*graph.input, *graph.output, *graph.value_info):
                element_type = shape_inference.element_type(info.type)
                if element_type is not None:
                    types_by_name[info.name] = element_type
    return types_by_name


_WHOLE = INTEGERS | {BOOL, STRING, onnx.TensorProto.INT4, onnx.TensorProto.UINT4}


class _Marks:
    def __init__(self, program: Program) -> None:
        self._program = program

    @cached_property
    def _types(self) -> Mapping[str, int]:
        return element_types(self._program)

    def graph(
        self, graph: onnx.GraphProto, outer: Mapping[str, Exactness], fed: Exactness = _NOTHING
    ) -> dict[str, Exactness]:
        """Return the marks of all values in a graph, whose inputs have the mark `fed`."""
        known = dict(outer)
        known.update((v.name, fed) for v in graph.input)
        for node in traversal.in_order(graph):
            mark = self._node(node, known)
            known.update((name, mark) for name in node.output if name)
        return known

    def _node(self, node: onnx.NodeProto, known: Mapping[str, Exactness]) -> Exactness:
        mark = _NOTHING
        for name in node.input:
            mark |= known.get(name, _NOTHING)
        mark |= self._bodies(node, known, mark)
        if self._program.site_of(node) is not None:
            return mark
        standard = op_traits.is_standard(node)
        if standard and node.op_type in _SIZES and not (mark.discrete or mark.random):
            return _NOTHING  # a shape depends on reals only behind a step to whole numbers
        if standard and node.op_type in _RANDOM:
            return Exactness(True, mark.discrete, True)
        moves = op_traits.is_bitwise(node) or (standard and any(traversal.subgraphs(node)))
        if not (moves or mark.arithmetic) and not self._is_whole(node):
            mark |= Exactness(arithmetic=True)
        if mark.arithmetic and standard and node.op_type in _STEPS:
            whole = self._types.get(node.output[0]) in (*_WHOLE, None)
            mark |= Exactness(discrete=whole or node.op_type not in ("Cast", "CastLike"))
        return mark

    def _bodies(
        self, node: onnx.NodeProto, known: Mapping[str, Exactness], fed: Exactness
    ) -> Exactness:
        mark = fed
        for _, body in traversal.subgraphs(node):
            while True:  # the outputs of one iteration are the inputs of the next
                inside = self.graph(body, known, mark)
                after = mark
                for value in body.output:
                    after |= inside.get(value.name, _NOTHING)
                if after == mark:
                    break
                mark = after
        return mark

    def _is_whole(self, node: onnx.NodeProto) -> bool:
        names = [n for n in (*node.input, *node.output) if n]
        if any(name in self._reals for name in names):
            return False  # without an inference
        return all(self._types.get(name) in _WHOLE for name in names)

    @cached_property
    def _reals(self) -> set[str]:
        """Initializers and inputs of the model that are not whole numbers."""
        graph = self._program.flat.graph
        types = {t.name: t.data_type for t in graph.initializer}
        types |= {v.name: v.type.tensor_type.elem_type for v in graph.input}
        return {name for name, kind in types.items() if kind and kind not in _WHOLE}
