"""Perturb all computed reals of a model at random by a few units in the last place.

    a = Conv(x, w)      m = x * (1 + r), e = Conv(m, w), a = e * (1 + r)

Zeros and infinities keep their values. Operators that only move, compare or count stay exact, and so do
sizes, which depend on shapes and not on data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.inference import constant_folding, shape_inference
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.verification.arrays import Array
from onnx_spatial.verification.compare import to_float64
from onnx_spatial.verification.runtime.flat_model import take_number
from onnx_spatial.verification.runtime.program import Program

#: A computed real, and what goes into a sum of products, is off by up to so many units in the last
#: place; the latter, and other sums, by that times (1 + 0.02 sqrt(terms)) as sums of many round more.
UNITS, PER_ROOT = 4.0, 0.02
#: What enters QuantizeLinear is off by up to this share of a step where integer kernels may take the
#: place of real ones.
STEP = 0.25

#: Operators that sum products of their first two inputs.
_PRODUCTS = op_traits.having(Trait.PRODUCTS)
#: Traits of operators that sum up elements of their first input.
_SUMS = Trait.REDUCES
#: Elements of a constant whose values are looked at.
_FEW = 1024
_REALS = (onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)


def perturbed(
    program: Program, types: Mapping[str, int], *, quantised: bool = False
) -> tuple[onnx.ModelProto, list[int]]:
    """Build a model whose computed reals are off at random, and return the positions of its sites.

    Element types are by value name. If `quantised`, inputs of QuantizeLinear move by shares of a step.
    """
    model = onnx.ModelProto()
    model.CopyFrom(program.flat)
    nodes = [node for _, _, node in traversal.nodes(model)]
    for index in program.positions():
        nodes[index].attribute.append(helper.make_attribute(shape_inference.NUMBER, index))
    _Writer(model, types, quantised).graph(model.graph, set())
    numbers = [take_number(node) for _, _, node in traversal.nodes(model)]
    return model, [index for index, number in enumerate(numbers) if number is not None]


class _Writer:
    """Insert perturbations in front of every sum of products and behind every node that rounds."""

    def __init__(self, model: onnx.ModelProto, types: Mapping[str, int], quantised: bool) -> None:
        self._types = types
        self._quantised = quantised
        self._stored = {t.name: tuple(t.dims) for t in model.graph.initializer}
        self._powers = set(_powers_of_two(model.graph))
        self._count = 0

    def graph(self, graph: onnx.GraphProto, outer: set[str]) -> None:
        """Perturb what a graph and its subgraphs compute from data, in place.

        `outer` are the values of the outer graphs that depend on data; sizes do not.
        """
        data = to_float64.reached(
            graph, {*outer, *(v.name for v in graph.input)} - set(self._stored)
        )
        nodes = []
        for node in list(graph.node):
            for _, body in traversal.subgraphs(node):
                self.graph(body, data)
            nodes += self._perturbed(node, data)
        del graph.node[:]
        graph.node.extend(nodes)

    def _perturbed(self, node: onnx.NodeProto, data: set[str]) -> list[onnx.NodeProto]:
        site = any(a.name == shape_inference.NUMBER for a in node.attribute)
        if site or data.isdisjoint(traversal.needs(node)) or any(traversal.subgraphs(node)):
            return [node]
        standard = op_traits.is_standard(node)
        front, behind = list[onnx.NodeProto](), list[onnx.NodeProto]()
        if standard and node.op_type == "QuantizeLinear" and self._quantised:
            front += self._step(node)
        if standard and node.op_type in _PRODUCTS:
            size = UNITS * (1 + PER_ROOT * math.sqrt(_terms(node, self._stored)))
            for number, name in enumerate(node.input[:2]):
                if name in data and self._types.get(name) in _REALS:
                    moved = self._new(f"{name} moved")
                    front += self._moved(name, moved, self._types[name], size)
                    node.input[number] = moved
        # DequantizeLinear rounds one product, which IEEE 754 leaves no freedom.
        keeps = op_traits.is_exact(node) or (standard and node.op_type == "DequantizeLinear")
        keeps |= standard and self._scales_by_powers(node)
        if not keeps and node.op_type not in to_float64.SIZES:
            sums = node.input[0] if op_traits.of(node).traits & _SUMS else None
            for number, name in enumerate(node.output):
                if name and self._types.get(name) in _REALS:
                    exact = self._new(f"{name} exact")
                    node.output[number] = exact
                    behind += self._moved(exact, name, self._types[name], UNITS, sums)
        return [*front, node, *behind]

    def _scales_by_powers(self, node: onnx.NodeProto) -> bool:
        """Return whether a node multiplies or divides by powers of two, which rounds nothing."""
        factors = {"Mul": node.input[:2], "Div": node.input[1:2]}.get(node.op_type, ())
        return not self._powers.isdisjoint(factors)

    def _step(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        x, scale = node.input[:2]
        if self._types.get(x) not in _REALS or math.prod(self._stored.get(scale, (1,))) != 1:
            return []
        noise, part, moved = (self._new(f"{x} {what}") for what in ("noise", "part", "moved"))
        node.input[0] = moved
        return [
            self._random(x, noise, STEP),
            self._node("Mul", [noise, scale], part),
            self._node("Add", [x, part], moved),
        ]

    def _moved(
        self, x: str, y: str, kind: int, units: float, summed: str | None = None
    ) -> list[onnx.NodeProto]:
        """Compute y = x * (1 + r) with a random r of up to some units in the last place.

        r is larger if x sums up the elements of `summed`.
        """
        if kind != onnx.TensorProto.FLOAT16:
            return self._times(x, y, kind, units * to_float64.EPSILON[kind], summed)
        # onnxruntime draws float and double only: float16 is moved as float.
        wide, total = self._new(f"{y} wide"), self._new(f"{y} total")
        real = onnx.TensorProto.FLOAT
        return [
            self._node("Cast", [x], wide, to=real),
            *self._times(wide, total, real, units * to_float64.EPSILON[kind], summed),
            self._node("Cast", [total], y, to=kind),
        ]

    def _times(
        self, x: str, y: str, kind: int, size: float, summed: str | None
    ) -> list[onnx.NodeProto]:
        noise, one, factor = (self._new(f"{y} {what}") for what in ("noise", "one", "factor"))
        value = helper.make_tensor("", kind, [], [1.0])
        nodes = [self._random(x, noise, size), self._node("Constant", [], one, value=value)]
        if summed is not None:
            growth, larger = self._new(f"{y} growth"), self._new(f"{y} larger")
            nodes += self._growth(summed, x, one, growth, kind)
            nodes.append(self._node("Mul", [noise, growth], larger))
            noise = larger
        return [
            *nodes,
            self._node("Add", [noise, one], factor),
            self._node("Mul", [x, factor], y),
        ]

    def _growth(self, x: str, y: str, one: str, output: str, kind: int) -> list[onnx.NodeProto]:
        """Compute 1 + 0.02 sqrt(n) for the n elements of x that an element of y sums up."""
        names = (self._new(f"{output} {i}") for i in range(7))
        many, few, wide, narrow, count, root, share = names
        scale = self._new(f"{output} scale")
        value = helper.make_tensor("", kind, [], [PER_ROOT])
        return [
            self._node("Size", [x], many),
            self._node("Size", [y], few),
            self._node("Cast", [many], wide, to=kind),
            self._node("Cast", [few], narrow, to=kind),
            self._node("Div", [wide, narrow], count),
            self._node("Sqrt", [count], root),
            self._node("Constant", [], scale, value=value),
            self._node("Mul", [root, scale], share),
            self._node("Add", [share, one], output),
        ]

    def _new(self, name: str) -> str:
        self._count += 1
        return f"{name} {self._count}"

    def _node(
        self, op_type: str, inputs: list[str], output: str, **attributes: Any
    ) -> onnx.NodeProto:
        # A name of its own: onnxruntime takes no two nodes of one.
        return helper.make_node(op_type, inputs, [output], self._new(op_type), **attributes)

    def _random(self, x: str, output: str, size: float) -> onnx.NodeProto:
        seed = float(self._count)
        return self._node("RandomUniformLike", [x], output, low=-size, high=size, seed=seed)


def _powers_of_two(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the names of the small stored tensors of which all numbers are powers of two."""
    for name, array in _small_reals(graph):
        mantissas, _ = np.frexp(np.abs(array))
        if (mantissas == 0.5).all():
            yield name


def _small_reals(graph: onnx.GraphProto) -> Iterator[tuple[str, Array]]:
    """Yield the names and values of small stored tensors of reals."""
    for tensor in graph.initializer:
        if (array := _small_real(tensor)) is not None:
            yield tensor.name, array
    for node in graph.node:
        array = constant_folding.held(node, _small_real) if node.op_type == "Constant" else None
        if array is not None and array.dtype.kind == "f":
            yield node.output[0], array


def _small_real(tensor: onnx.TensorProto) -> Array | None:
    external = tensor.data_location == onnx.TensorProto.EXTERNAL
    if tensor.data_type not in _REALS or external or math.prod(tensor.dims) > _FEW:
        return None
    array: Array = onnx.numpy_helper.to_array(tensor)
    return array


def _terms(node: onnx.NodeProto, stored: Mapping[str, tuple[int, ...]]) -> int:
    """Number of products in the sum of each output element; 0 where no weights are stored."""
    weights = stored.get(node.input[1], ()) if len(node.input) > 1 else ()
    if len(weights) < 2:
        return 0
    if node.op_type == "Conv":
        return math.prod(weights[1:])
    if node.op_type == "ConvTranspose":
        return weights[0] * math.prod(weights[2:])
    if node.op_type == "Gemm" and any(a.name == "transB" and a.i for a in node.attribute):
        return weights[1]
    return weights[-2]
