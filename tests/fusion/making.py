"""Write a model node by node while knowing every value: what `regions` builds its models with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from random import Random
from typing import Any

import numpy as np
import onnx
import reference
from building import OPENVINO, TF
from onnx import helper, numpy_helper

#: How much is known about sizes and tables; "computed" tables come from shapes, "run-time" ones are
#: graph inputs.
MODES = ("static", "dynamic", "computed", "run-time")


@dataclass(frozen=True)
class Value:
    """A tensor of the model.

    Attributes:
        name: of the tensor.
        axes: one letter for each: N batch, C channels, 0 1 2 space, U of size 1; "" where the axes
            have no such meaning.
        array: what it holds.
    """

    name: str
    axes: str
    array: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def spatial(self) -> str:
        """The letters of the axes that a convolution slides along, in order."""
        return "".join(letter for letter in self.axes if letter not in "NC")

    def size(self, letter: str) -> int:
        return self.shape[self.axes.index(letter)]


Input = Value | str


@dataclass
class Case:
    """A model, what to feed it, what must come out, and the classes that it belongs to."""

    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    expected: dict[str, np.ndarray]
    labels: dict[str, str]


@dataclass
class Maker:
    """What a model is made of so far; `rng` decides everything, `mode` is one of MODES."""

    rng: Random
    mode: str
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)
    feeds: dict[str, np.ndarray] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.numbers = np.random.default_rng(self.rng.getrandbits(32))
        self.opset = self.rng.choice((13, 14, 15, 17, 18, 19, 21))
        self.domain = self.rng.choice((TF, TF, "com.microsoft"))
        self.stored = self.rng.choice((np.uint8, np.int8))  # what QuantizeLinear gives
        self.constant_nodes = self.rng.random() < 0.1
        self.count = 0

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def _fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}_{self.count}"

    def constant(self, array: np.ndarray | Sequence[int], stem: str = "const") -> str:
        """Name of a tensor that is written into the model; sequences become int64."""
        array = np.asarray(array, None if isinstance(array, np.ndarray) else np.int64)
        name = self._fresh(stem)
        tensor = numpy_helper.from_array(array, name)
        if self.constant_nodes:
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        else:
            self.initializers.append(tensor)
        self.arrays[name] = array
        return name

    def image(self, shape: Sequence[int]) -> np.ndarray:
        """Random float32 numbers, none of them near 0."""
        numbers = self.numbers.uniform(0.1, 2.0, prod(shape)).reshape(shape)
        return (numbers * self.numbers.choice((-1, 1), shape)).astype(np.float32)

    def input(self, array: np.ndarray, axes: str, like: str = "") -> Value:
        """A graph input, of which as much is declared as the mode admits; its sizes have the names of
        those of the input `like`, if any."""
        name = self._fresh("x")
        dims: list[int | str | None] | None = list(array.shape)
        if self.mode != "static":
            unknown = like or self.rng.choice(("", name))
            known = "C" if like or self.chance(0.8) else ""
            dims = [
                size if letter in known else f"{unknown}_{letter}" if unknown else None
                for letter, size in zip(axes, array.shape, strict=True)
            ]
            if not like and self.chance(0.03):
                dims = None
        return self._feed(name, axes, array, dims)

    def fed(self, array: np.ndarray, stem: str) -> str:
        """Name of a parameter that is a graph input, sometimes with a default that is not used."""
        name = self._fresh(stem)
        if stem != "block" and self.chance(0.2):
            self.initializers.append(numpy_helper.from_array(np.zeros_like(array), name))
        return self._feed(name, "", array, array.shape).name

    def _feed(self, name: str, axes: str, array: np.ndarray, dims: Any) -> Value:
        element_type = helper.np_dtype_to_tensor_dtype(array.dtype)
        self.inputs.append(helper.make_tensor_value_info(name, element_type, dims))
        self.feeds[name] = self.arrays[name] = array
        return Value(name, axes, array)

    def node(
        self, op_type: str, inputs: Sequence[Input], axes: str = "", /, **attributes: Any
    ) -> Value:
        """A node of one output."""
        return self.nodes_of(op_type, inputs, [axes], **attributes)[0]

    def nodes_of(
        self,
        op_type: str,
        inputs: Sequence[Input],
        axes: Sequence[str],
        /,
        *,
        domain: str = "",
        **attributes: Any,
    ) -> list[Value]:
        """A node of several outputs."""
        names = [i if isinstance(i, str) else i.name for i in inputs]
        outputs = [self._fresh(op_type.lower()) for _ in axes]
        name = self._fresh(op_type)
        node = helper.make_node(op_type, names, outputs, name, domain=domain, **attributes)
        self.nodes.append(node)
        read = {name: self.arrays[name] for name in names if name}
        model = self._model([node], [_info(n, a, a.shape) for n, a in read.items()], outputs)
        results = map(np.asarray, reference.run(model, read))
        values = [Value(*each) for each in zip(outputs, axes, results, strict=True)]
        self.arrays.update((value.name, value.array) for value in values)
        return values

    def turned(self, value: Value, axes: str) -> Value:
        """With the axes in another order: a Transpose, unless they are in that order; where only axes
        of size 1 move, sometimes a Reshape."""
        if value.axes == axes:
            return value
        perm = [value.axes.index(letter) for letter in axes]
        # What has size 1 by chance must not often be taken for an axis that always has.
        small = value.axes if self.mode == "static" or self.chance(0.1) else "CU"
        large = [a for a in perm if value.shape[a] != 1 or value.axes[a] not in small]
        if large == sorted(large) and 0 not in value.shape and self.chance(0.5):
            return self.reshaped(value, axes, [value.shape[axis] for axis in perm])
        return self.node("Transpose", [value], axes, perm=perm)

    def reshaped(self, value: Value, axes: str, sizes: Sequence[int]) -> Value:
        """A Reshape to known sizes, or to sizes of the axes of the same letters."""
        if self.mode == "static" and self.chance(0.7):
            sizes = [-1, *sizes[1:]] if self.chance(0.5) and 0 not in sizes else sizes
            return self.node("Reshape", [value, self.constant(sizes)], axes)
        shape = self.node("Shape", [value])
        parts: list[Input] = [
            self.node("Gather", [shape, self.constant([value.axes.index(letter)])])
            if letter in value.axes and value.size(letter) == size
            else self.constant([size])
            for letter, size in zip(axes, sizes, strict=True)
        ]
        return self.node("Reshape", [value, self.node("Concat", parts, axis=0)], axes)

    def spatial(self, stem: str, value: Value, tables: Sequence[str], form: str) -> Value:
        """A SpaceToBatch or BatchToSpace in one of the forms "ND", "4-D" and "OpenVINO"."""
        if form == "4-D":
            attributes = {"block_size": int(self.arrays[tables[0]][0])}
            return self.node(stem, [value, tables[1]], value.axes, domain=self.domain, **attributes)
        op_type = stem if form == "OpenVINO" else f"{stem}ND"
        domain = OPENVINO if form == "OpenVINO" else self.domain
        return self.node(op_type, [value, *tables], value.axes, domain=domain)

    def case(self, labels: dict[str, str]) -> Case:
        """The model; its outputs are those that were asked for, and what nothing reads."""
        read = {name for node in self.nodes for name in node.input}
        last = [n for node in self.nodes for n in node.output if node.op_type != "Constant"]
        names = dict.fromkeys([*self.outputs, *(name for name in last if name not in read)])
        model = self._model(self.nodes, self.inputs, list(names), self.initializers)
        return Case(model, self.feeds, {name: self.arrays[name] for name in names}, labels)

    def _model(
        self,
        nodes: Sequence[onnx.NodeProto],
        inputs: Sequence[onnx.ValueInfoProto],
        outputs: Sequence[str],
        initializers: Sequence[onnx.TensorProto] = (),
    ) -> onnx.ModelProto:
        infos = [onnx.ValueInfoProto(name=name) for name in outputs]
        for info, array in zip(infos, map(self.arrays.get, outputs), strict=True):
            if array is not None:
                known = self.mode == "static" and self.chance(0.5)
                dims = array.shape if known else [None] * array.ndim
                info.CopyFrom(_info(info.name, array, dims))
        graph = helper.make_graph(nodes, "region", inputs, infos, initializers)
        domains = sorted({"", *(node.domain for node in nodes)})
        imports = [helper.make_opsetid(d, 1 if d else self.opset) for d in domains]
        ir_version = max(helper.find_min_ir_version_for(imports[:1]), 7)
        return helper.make_model(graph, opset_imports=imports, ir_version=ir_version)


def _info(name: str, array: np.ndarray, dims: Any) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), dims)
