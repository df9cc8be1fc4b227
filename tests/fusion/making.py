"""Write a model node by node while knowing every value: what `regions` builds its models with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from random import Random
from typing import Any

import interpreter
import numpy as np
import onnx
from building import OPENVINO, TF
from interpreter import Known
from onnx import TensorProto, helper, numpy_helper

#: How much is known about sizes and tables; "computed" tables come from shapes, "run-time" ones are
#: graph inputs.
MODES = ("static", "dynamic", "computed", "run-time")

#: What a case may contain, in any of the kinds that can be fused, that keeps a region from being fused
#: or may do so. Such a case is a class of its own.
BLOCK_FED = "the block is an input"
CHANNELS_IN_BLOCKS = "channels in blocks"
NO_RANK = "an input of unknown rank"
OPERAND_SIZES = "an operand per channel of unknown size"
SIZE_ONE_BY_CHANCE = "a Reshape of axes that are 1 by chance"
CHANNELS_UNKNOWN = "a Reshape of channels of unknown number"
CHANNELS_PADDED = "a Reshape of channels that may be padded"
SAME_OF_UNKNOWN_SIZE = "auto_pad with strides, sizes unknown"
IMAGES_MAY_DIFFER = "two images that may differ in size"
OTHER_ORDER = "nested blocks taken out in another order"
POOL = "a pool"
OBSTACLES = (
    BLOCK_FED,
    CHANNELS_IN_BLOCKS,
    NO_RANK,
    OPERAND_SIZES,
    SIZE_ONE_BY_CHANCE,
    CHANNELS_UNKNOWN,
    CHANNELS_PADDED,
    SAME_OF_UNKNOWN_SIZE,
    IMAGES_MAY_DIFFER,
    OTHER_ORDER,
    POOL,
)


@dataclass(frozen=True)
class Value:
    """A tensor of the model.

    Attributes:
        name: of the tensor.
        axes: one letter for each: N batch, C channels, 0 1 2 space, U and I of size 1; "" where the axes
            have no such meaning.
        known: what it holds.
    """

    name: str
    axes: str
    known: Known

    @property
    def shape(self) -> tuple[int, ...]:
        return self.known.shape

    def size(self, letter: str) -> int:
        return self.shape[self.axes.index(letter)]


@dataclass
class Case:
    """A model, what to feed it, and what must come out.

    Attributes:
        labels: the classes that it belongs to: "kind", "layout", "mode", "place".
    """

    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    expected: dict[str, Known]
    labels: dict[str, str]


@dataclass
class Maker:
    """What a model is made of so far.

    Attributes:
        rng: decides everything.
        mode: one of MODES.
        obstacles: of OBSTACLES.
        unwanted: names of values that are no outputs, although nothing reads them.
        padded_channels: whether a parameter that the run gives pads or crops the channels, or may.
        unknown_channels: whether an input does not declare its number of channels.
    """

    rng: Random
    mode: str
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    outputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)
    feeds: dict[str, np.ndarray] = field(default_factory=dict)
    known: dict[str, Known] = field(default_factory=dict)
    values: list[Value] = field(default_factory=list)
    expected: dict[str, Known] = field(default_factory=dict)
    obstacles: set[str] = field(default_factory=set)
    unwanted: set[str] = field(default_factory=set)
    padded_channels: bool = False
    unknown_channels: bool = False

    def __post_init__(self) -> None:
        self.numbers = np.random.default_rng(self.rng.getrandbits(32))
        self.opset = self.rng.choice((13, 14, 15, 17, 18, 19, 21))
        self.domain = self.rng.choice((TF, TF, "com.microsoft", ""))
        self.stored = self.rng.choice((np.uint8, np.int8))  # what QuantizeLinear gives
        self.constant_nodes = self.rng.random() < 0.1
        self.count = 0

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}_{self.count}"

    # --- leaves -----------------------------------------------------------------------------------

    def constant(self, array: np.ndarray | Sequence[int], stem: str = "const") -> str:
        """Name of a tensor that is written into the model; sequences become int64."""
        array = np.asarray(array, None if isinstance(array, np.ndarray) else np.int64)
        name = self.fresh(stem)
        tensor = numpy_helper.from_array(array, name)
        if self.constant_nodes:
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        else:
            self.initializers.append(tensor)
        self.known[name] = interpreter.given(array)
        return name

    def input(
        self, array: np.ndarray, axes: str, stem: str = "x", like: Value | None = None
    ) -> Value:
        """A graph input, of which as much is declared as the mode admits; sizes as those of another
        input, if any.
        """
        name = self.fresh(stem)
        dims: list[int | str | None] | None = list(array.shape)
        if self.mode != "static":
            unknown = self.rng.choice((None, name if like is None else like.name))
            declared_letters = "" if self.chance(0.2) else self.rng.choice(("C", "CI"))
            if like is not None:
                unknown, declared_letters = like.name, "C"
            dims = [
                size
                if letter in declared_letters
                else (None if unknown is None else f"{unknown}_{letter}{axis * (letter in 'I?')}")
                for axis, (letter, size) in enumerate(zip(axes, array.shape, strict=True))
            ]
            self.unknown_channels |= "C" in axes and not declared_letters
            if "I" in axes and "I" not in declared_letters:
                self.obstacles.add(OPERAND_SIZES)
            if like is None and self.chance(0.03):
                dims = None
                self.obstacles.add(NO_RANK)
        declared = helper.np_dtype_to_tensor_dtype(array.dtype)
        self.inputs.append(helper.make_tensor_value_info(name, declared, dims))
        self.feeds[name] = array
        return self._keep(name, axes, interpreter.given(array))

    def fed(self, array: np.ndarray, stem: str) -> str:
        """Name of a parameter that is a graph input, sometimes with a default that is not used."""
        name = self.fresh(stem)
        declared = helper.np_dtype_to_tensor_dtype(array.dtype)
        self.inputs.append(helper.make_tensor_value_info(name, declared, array.shape))
        if stem != "block" and self.chance(0.2):
            self.initializers.append(numpy_helper.from_array(np.zeros_like(array), name))
        self.feeds[name] = array
        self.known[name] = interpreter.given(array)
        return name

    def image(self, shape: Sequence[int]) -> np.ndarray:
        """Random float32 numbers, none of them near 0."""
        numbers = self.numbers.uniform(0.1, 2.0, prod(shape)).reshape(shape)
        signs = self.numbers.integers(0, 2, shape) * 2 - 1
        return (numbers * signs).astype(np.float32)

    # --- nodes ------------------------------------------------------------------------------------

    def node(
        self,
        op_type: str,
        inputs: Sequence[Value | str],
        axes: str = "",
        /,
        *,
        domain: str = "",
        stem: str = "v",
        **attributes: Any,
    ) -> Value:
        """A node of one output."""
        return self.split(op_type, inputs, [axes], domain=domain, stem=stem, **attributes)[0]

    def split(
        self,
        op_type: str,
        inputs: Sequence[Value | str],
        axes: Sequence[str],
        /,
        *,
        domain: str = "",
        stem: str = "v",
        **attributes: Any,
    ) -> list[Value]:
        """A node of several outputs."""
        names = [i if isinstance(i, str) else i.name for i in inputs]
        outputs = [self.fresh(stem) for _ in axes]
        held = [self.known[n] if n else None for n in names]
        results = interpreter.evaluate(op_type, held, attributes, len(outputs))
        name = self.fresh(op_type)
        self.nodes.append(
            helper.make_node(op_type, names, outputs, name, domain=domain, **attributes)
        )
        found = zip(outputs, axes, results, strict=True)
        return [self._keep(output, letters, known) for output, letters, known in found]

    def _keep(self, name: str, axes: str, known: Known) -> Value:
        value = Value(name, axes, known)
        self.known[name] = known
        self.values.append(value)
        return value

    def turned(self, value: Value, axes: str) -> Value:
        """With the axes in another order: a Transpose, unless they are in that order; where only axes
        of size 1 move, sometimes a Reshape.
        """
        if value.axes == axes:
            return value
        perm = [value.axes.index(letter) for letter in axes]
        # What has size 1 by chance must not be taken for an axis that always has.
        small = value.axes if self.mode == "static" or self.chance(0.1) else "CU"
        large = [a for a in perm if value.shape[a] != 1 or value.axes[a] not in small]
        if large == sorted(large) and 0 not in value.shape and self.chance(0.5):
            self._moves_ones(value, perm)
            return self.node("Reshape", [value, self._target(value, perm)], axes)
        return self.node("Transpose", [value], axes, perm=perm)

    def _moves_ones(self, value: Value, perm: Sequence[int]) -> None:
        """Note what keeps a Reshape from being known to move only axes of size 1."""
        if self.mode == "static":
            return
        others = [axis for axis in perm if value.axes[axis] not in "CU"]
        if others != sorted(others):
            self.obstacles.add(SIZE_ONE_BY_CHANCE)
        with_channels = [axis for axis in perm if value.axes[axis] != "U"]
        if with_channels != sorted(with_channels):
            self.regroups_channels(value)
            if value.size("C") != 1:
                self.obstacles.add(SIZE_ONE_BY_CHANCE)

    def regroups_channels(self, value: Value) -> None:
        """Note what keeps a Reshape that depends on the number of channels from being understood."""
        if self.mode == "static":
            return
        if self.padded_channels:
            self.obstacles.add(CHANNELS_PADDED)
        if self.unknown_channels:
            self.obstacles.add(CHANNELS_UNKNOWN)

    def _target(self, value: Value, perm: Sequence[int]) -> Value | str:
        """The shape that a Reshape gives in the place of a Transpose."""
        if self.mode == "static" and self.chance(0.7):
            target = [value.shape[axis] for axis in perm]
            if self.chance(0.5):
                target[self.rng.randrange(len(target))] = -1
            return self.constant(target)
        return self.node("Gather", [self.node("Shape", [value]), self.constant(perm)])

    def space_to_batch(self, value: Value, tables: Sequence[str], form: str) -> Value:
        return self._spatial("SpaceToBatch", value, tables, form)

    def batch_to_space(self, value: Value, tables: Sequence[str], form: str) -> Value:
        return self._spatial("BatchToSpace", value, tables, form)

    def _spatial(self, stem: str, value: Value, tables: Sequence[str], form: str) -> Value:
        if form == "4-D":
            block = int(self.known[tables[0]].value[0])
            inputs = [value, tables[1]]
            return self.node(
                stem, inputs, value.axes, domain=self.domain, stem=stem, block_size=block
            )
        op_type = stem if form == "OpenVINO" else f"{stem}ND"
        domain = OPENVINO if form == "OpenVINO" else self.domain
        return self.node(op_type, [value, *tables], value.axes, domain=domain, stem=stem)

    # --- the end ----------------------------------------------------------------------------------

    def output(self, value: Value) -> None:
        """Make a value an output of the graph."""
        if value.name in self.expected:
            return
        self.expected[value.name] = value.known

    def case(self, labels: dict[str, str]) -> Case:
        """The model with every output that was asked for."""
        unread = self._unread()
        for value in self.values:
            if value.name in unread - self.unwanted and value.name not in self.feeds:
                self.output(value)
        types = self._types()
        outputs = [
            helper.make_tensor_value_info(name, types[name], self._declared(known))
            for name, known in self.expected.items()
        ]
        graph = helper.make_graph(
            self.nodes,
            "region",
            self.inputs,
            outputs,
            self.initializers,
            value_info=self._value_info(types),
        )
        domains = {node.domain for node in self.nodes} - {""}
        imports = [helper.make_opsetid("", self.opset)]
        imports += [helper.make_opsetid(domain, 1) for domain in sorted(domains)]
        ir_version = helper.find_min_ir_version_for([imports[0]])
        model = helper.make_model(graph, opset_imports=imports, ir_version=max(ir_version, 7))
        return Case(model, self.feeds, self.expected, labels)

    def _unread(self) -> set[str]:
        read = {name for node in self.nodes for name in node.input}
        return {value.name for value in self.values} - read

    def _types(self) -> dict[str, int]:
        """Element types of all tensors."""
        found: dict[str, int] = {v.name: v.type.tensor_type.elem_type for v in self.inputs}
        found |= {t.name: t.data_type for t in self.initializers}
        for node in self.nodes:
            attributes = {a.name: a for a in node.attribute}
            kind = found.get(node.input[0], TensorProto.FLOAT) if node.input else 0
            if node.op_type == "Cast":
                kind = attributes["to"].i
            elif node.op_type == "Constant":
                kind = attributes["value"].t.data_type
            elif node.op_type in ("ArgMax", "Shape"):
                kind = TensorProto.INT64
            elif node.op_type == "QuantizeLinear":
                kind = found[node.input[2]]
            elif node.op_type == "DequantizeLinear":
                kind = TensorProto.FLOAT
            found |= dict.fromkeys(node.output, kind)
            if node.op_type == "TopK":
                found[node.output[1]] = TensorProto.INT64
        return found

    def _declared(self, known: Known) -> list[int | str | None]:
        if self.mode == "static" and self.chance(0.5):
            return list(known.shape)
        return [None] * known.value.ndim

    def _value_info(self, types: dict[str, int]) -> list[onnx.ValueInfoProto]:
        """What converters leave in the file about inner values: sometimes all, mostly nothing."""
        if not self.chance(0.2):
            return []
        inner = [v for v in self.values if v.name not in self.feeds and v.name not in self.expected]
        static = self.mode == "static"
        return [
            helper.make_tensor_value_info(
                v.name, types[v.name], v.shape if static else [None] * len(v.shape)
            )
            for v in inner
        ]
