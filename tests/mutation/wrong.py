"""Models that are wrong in ways that a prover may overlook, written by hand.

Each takes a right conversion of an operator, whose result is `z`, and puts nodes behind it that compute
the output `y`. Most compute a number `k` that is 0 by the rules of mathematics and not 0 in a run; a
last step rotates the rows of `z` where `k` is not 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import onnx_spatial

TF = "ai.onnx.converters.tensorflow"

#: Sizes as lists of one number, of the data `x` and of the right result `z`.
_SIZES = """
    s = Shape (x)
    t = Shape (z)
    n = Slice (s, #0, #1)
    h = Slice (s, #1, #2)
    w = Slice (s, #2, #3)
    zn = Slice (t, #0, #1)
    zh = Slice (t, #1, #2)
    zw = Slice (t, #2, #3)
"""

#: Rotate the rows of `z` by one unless `k` is 0.
_ROTATE = """
    k_size = Abs (k)
    k_one = Min (k_size, #1)
    lower = Slice (z, k_one, #9223372036854775807, #1)
    upper = Slice (z, #0, k_one, #1)
    y = Concat <axis = 1> (lower, upper)
"""


@dataclass(frozen=True)
class Base:
    """A model of one operator.

    Attributes:
        node: the operator, from `x` to `y`.
        dims: of `x`; "" for a dim without a name, None for an unknown rank.
        stored: constants.
        inputs: run-time parameters with their shapes, of type int64.
        element_type: of the data.
        opset: of the model.
        strategy: how it is converted.
        overridable: constants that are inputs too, so that a caller can feed other values.
    """

    node: str = f"y = {TF}.SpaceToBatchND (x, block, pads)"
    dims: str | Sequence[str] | None = "n,h,w,c"
    stored: Mapping[str, object] = field(
        default_factory=lambda: {"block": [2, 2], "pads": [[0, 0], [0, 0]]}
    )
    inputs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    element_type: int = TensorProto.FLOAT
    opset: int = 18
    strategy: str | None = None
    overridable: Mapping[str, object] = field(default_factory=dict)

    def model(self) -> onnx.ModelProto:
        """Return the original."""
        shape = None
        if self.dims is not None:
            dims = self.dims.split(",") if isinstance(self.dims, str) else self.dims
            shape = [int(d) if d.isdigit() else d or None for d in dims]
        value = helper.make_tensor_value_info
        inputs = [value("x", self.element_type, shape)]
        inputs += [value(n, TensorProto.INT64, s) for n, s in self.inputs.items()]
        stored = []
        for name, array in (*self.stored.items(), *self.overridable.items()):
            stored.append(numpy_helper.from_array(np.asarray(array, np.int64), name))
        for name, array in self.overridable.items():
            inputs.append(value(name, TensorProto.INT64, np.shape(array)))
        outputs = [value("y", self.element_type, None if shape is None else [None] * len(shape))]
        graph = helper.make_graph(parsed(self.node)[0], "g", inputs, outputs, stored)
        imports = [helper.make_opsetid("", self.opset), helper.make_opsetid(TF, 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=9)


Edit = Callable[[onnx.ModelProto], None]


@dataclass(frozen=True)
class Wrong:
    """A wrong model.

    Attributes:
        name: the idea.
        nodes: behind the right result.
        shape: of data for which it is wrong.
        base: what is converted.
        functions: local functions, as text.
        edit: a change of the converted model.
        feeds: run-time parameters for which it is wrong.
        pair: makes both models, instead of all above.
        operator: which one of them is wrong.
        outside: why it is wrong, where no run in this process shows it.
    """

    name: str
    nodes: str = "y = Identity (z)"
    shape: tuple[int, ...] = (1, 8, 4, 1)
    base: Base = Base()
    functions: str = ""
    edit: Edit | None = None
    feeds: Mapping[str, object] = field(default_factory=dict)
    pair: Callable[[], tuple[onnx.ModelProto, onnx.ModelProto]] | None = None
    operator: int = 0
    outside: str | None = None

    def models(self) -> tuple[onnx.ModelProto, onnx.ModelProto]:
        """Return the original and the wrong conversion."""
        if self.pair is not None:
            return self.pair()
        original = self.base.model()
        made = onnx_spatial.convert(original, verify=False, prefer=self.base.strategy, fuse=False)
        return original, spoiled(made.model, self.nodes, self.functions, self.edit)

    def inputs(self) -> dict[str, np.ndarray]:
        """Return data, -0.0, NaN and infinity included, and parameters."""
        x = np.random.default_rng(0).standard_normal(self.shape).astype(np.float32)
        x.reshape(-1)[[0, 1, -1]] = (np.inf, -0.0, np.nan)
        return {"x": x, **{n: np.asarray(v, np.int64) for n, v in self.feeds.items()}}


def spoiled(
    right: onnx.ModelProto, text: str, functions: str = "", edit: Edit | None = None
) -> onnx.ModelProto:
    """Return a conversion with nodes behind its result `y`, which they read as `z`."""
    model = onnx.ModelProto()
    model.CopyFrom(right)
    graph = model.graph
    del graph.value_info[:]
    for node in graph.node:
        for at, name in enumerate(node.output):
            if name == "y":
                node.output[at] = "z"
        for at, name in enumerate(node.input):
            if name == "y":
                node.input[at] = "z"
    made, stored = parsed(text)
    if not any("y" in node.output for node in made):
        more, constants = parsed(_ROTATE)
        made, stored = made + more, stored | constants
    sizes, constants = parsed(_SIZES)
    made, stored = sizes + made, stored | constants
    graph.node.extend(_needed(made))
    graph.initializer.extend(stored.values())
    if functions:
        text_model = onnx.parser.parse_model(
            '<ir_version: 9, opset_import: ["" : 18, "my" : 1]> g () => () {}' + functions
        )
        model.functions.extend(text_model.functions)
        if "my" not in {i.domain for i in model.opset_import}:
            model.opset_import.append(helper.make_opsetid("my", 1))
    if edit is not None:
        edit(model)
    return model


def _needed(nodes: list[onnx.NodeProto]) -> list[onnx.NodeProto]:
    wanted, kept = {"y"}, []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            kept.append(node)
            wanted |= {*node.input, *(n for a in node.attribute for n in _read(a.g))}
    return kept[::-1]


def _read(graph: onnx.GraphProto) -> set[str]:
    return {n for node in graph.node for n in node.input}


def parsed(text: str) -> tuple[list[onnx.NodeProto], dict[str, TensorProto]]:
    """Parse nodes; #5 is a list of one number, ##5 a number, #u8:5 a list of one uint8."""
    stored = {}

    def name(found: re.Match[str]) -> str:
        scalar, kind, number = found.groups()
        key = f"number{len(scalar)}{kind or ''}_{number}".replace("-", "minus").replace(":", "")
        types = {"u8": np.uint8, "u64": np.uint64, "i32": np.int32, None: np.int64, "i8": np.int8}
        array = np.array([int(number)], types[kind and kind[:-1]])
        stored[key] = numpy_helper.from_array(array.reshape([] if scalar == "##" else [1]), key)
        return key

    text = re.sub(r"(##?)((?:u8|u64|i32|i8):)?(-?\d+)", name, text)
    model = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 18, "my" : 1, "{TF}" : 1]> g () => () {{ {text} }}'
    )
    return list(model.graph.node), stored
