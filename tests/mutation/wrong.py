"""Wrong models of one operator: a right conversion with nodes behind it.

The nodes read the right result as `z` and give the output `y`. Most compute a number `k`, or a condition
`e`, that is 0 by the rules of mathematics, or at nearly all sizes, and not 0 in a run:

    y  =  z spoiled by k: rows rotated, moved down, one element changed
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import judging
import numpy as np
import onnx
from building import TF
from judging import Pair
from mutations import copied
from onnx import TensorProto, helper, numpy_helper
from parsing import nodes as parsed
from parsing import rows

import onnx_spatial

#: Sizes as lists of one number, of the data `x` and of the right result `z`.
_SIZES = """
    s = Shape (x); n = Slice (s, #0, #1); h = Slice (s, #1, #2); w = Slice (s, #2, #3);
    t = Shape (z); zn = Slice (t, #0, #1); zh = Slice (t, #1, #2); zw = Slice (t, #2, #3)
"""
#: Make a number of the condition.
_DECIDED = "k = Cast <to = 7> (e)"
#: Make 0 or 1 of the number.
_ONE = "k_size = Abs (k); k_one = Min (k_size, #1)"
_BACKWARDS = "Slice (z, #-1, #-9223372036854775807, #1, #-1)"
_RANGE = "l0 = Gather (t, ##1); i = Range (##0, l0, ##1); l = Reshape (l0, #-1)"
#: What goes wrong by `k_one`, if it is not 0.
DAMAGES = {
    "rows rotated": "lower = Slice (z, k_one, #9223372036854775807, #1); "
    "upper = Slice (z, #0, k_one, #1); y = Concat <axis = 1> (lower, upper)",
    "moved down": "pads = Concat <axis = 0> (#0, k_one, #0, #0, #0, #0, #0, #0); u = Pad (z, pads); "
    "l = Gather (t, #1); y = Slice (u, #0, l, #1)",
    "indices moved": f"{_RANGE}; j = Add (i, k_one); j1 = Mod (j, l); y = Gather <axis = 1> (z, j1)",
    "one row": f"{_RANGE}; j0 = Sub (l, #1); e0 = Equal (i, j0); j1 = Cast <to = 7> (e0); "
    "j2 = Mul (j1, k_one); j3 = Mul (j2, j0); j = Sub (i, j3); y = Gather <axis = 1> (z, j)",
    "one row is 0": f"{_RANGE}; e0 = Equal (i, #0); e1 = Cast <to = 9> (k_one); e2 = And (e0, e1); "
    "sizes = Concat <axis = 0> (#1, l, #1, #1); e3 = Reshape (e2, sizes); zero = Cast <to = 1> (#0); "
    "y = Where (e3, zero, z)",
    "backwards in a branch": "c0 = Cast <to = 9> (k_one); c = Squeeze (c0); y = If (c) <else_branch = "
    "no () => (float[?,?,?,?] y0) {y0 = Identity (z)}, then_branch = yes () => "
    f"(float[?,?,?,?] y1) {{y1 = {_BACKWARDS}}}>",
    "one row too few": "m = Sub (#0, k_one); l = Gather (t, #1); v = Add (l, m); "
    "y = Slice (z, #0, v, #1)",
}

Edit = Callable[[onnx.ModelProto], None]


@dataclass(frozen=True)
class Base:
    """A model of one operator.

    Attributes:
        node: the operator, from `x` to `y`.
        dims: of `x`; "?" for one without a name, "" for an unknown rank.
        stored: constants.
        inputs: run-time parameters with their shapes, of type int64.
        element_type: of the data.
        opset: of the model.
        overridable: constants that are inputs too, so that a caller can feed other values.
    """

    node: str = f"y = {TF}.SpaceToBatchND (x, block, pads)"
    dims: str = "n h w c"
    stored: Mapping[str, object] = field(
        default_factory=lambda: {"block": [2, 2], "pads": [[0, 0], [0, 0]]}
    )
    inputs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    element_type: int = TensorProto.FLOAT
    opset: int = 18
    overridable: Mapping[str, object] = field(default_factory=dict)

    def model(self, first: str = "") -> onnx.ModelProto:
        """Return the original; `first` are nodes in front of the operator, from x to t."""
        value = helper.make_tensor_value_info
        dims = [int(d) if d.isdigit() else None if d == "?" else d for d in self.dims.split()]
        inputs = [value("x", self.element_type, dims or None)]
        inputs += [value(n, TensorProto.INT64, s) for n, s in self.inputs.items()]
        stored = []
        for name, array in (*self.stored.items(), *self.overridable.items()):
            stored.append(numpy_helper.from_array(np.asarray(array, np.int64), name))
        for name, array in self.overridable.items():
            inputs.append(value(name, TensorProto.INT64, np.shape(array)))
        outputs = [value("y", self.element_type, [None] * len(dims) or None)]
        text = f"{first}; {self.node.replace('(x', '(t')}" if first else self.node
        nodes, constants = parsed(text)
        stored += constants.values()
        graph = helper.make_graph(nodes, "g", inputs, outputs, stored)
        imports = [helper.make_opsetid("", self.opset), helper.make_opsetid(TF, 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=9)


@dataclass(frozen=True)
class Wrong:
    """A wrong model.

    Attributes:
        name: the idea.
        nodes: behind the right result.
        shape: of data for which it is wrong.
        base: what is converted.
        first: nodes in front of the operator of the original, which the conversion has behind it.
        functions: local functions, as text.
        edit: a change of the converted model.
        feeds: run-time parameters for which it is wrong.
        outside: why it is wrong, where no run in this process shows it.
    """

    name: str
    nodes: str = "y = Identity (z)"
    shape: tuple[int, ...] = (1, 8, 4, 1)
    base: Base = Base()
    first: str = ""
    functions: str = ""
    edit: Edit | None = None
    feeds: Mapping[str, object] = field(default_factory=dict)
    outside: str = ""

    @property
    def is_conditional(self) -> bool:
        """Whether the nodes compute a number or a condition, by which something goes wrong."""
        plain = not (self.first or self.functions or self.edit or self.base.overridable)
        return plain and not {"y", "--"}.intersection(_made(self.nodes))

    def pair(self, damage: str = "rows rotated", prefer: str | None = None) -> Pair:
        """Return the original and the wrong conversion, with data for which it is wrong.

        Args:
            damage: one of DAMAGES.
            prefer: the lowering.
        """
        base = self.base.model()
        right = onnx_spatial.convert(base, verify=False, fuse=False, prefer=prefer).model
        original = self.base.model(self.first)
        wrong = spoiled(right, self.nodes, self.functions, damage)
        if self.edit is not None:
            self.edit(wrong)
        # -0.0, NaN and infinity are among the data.
        x = np.random.default_rng(0).standard_normal(self.shape).astype(np.float32)
        x.reshape(-1)[[0, 1, -1]] = (np.inf, -0.0, np.nan)
        feeds = {"x": x, **{n: np.asarray(v, np.int64) for n, v in self.feeds.items()}}

        def shown() -> str | None:
            return self.outside or judging.moved(original, wrong, feeds)

        name = f"by hand: {self.name}: {damage}, {prefer or 'cheapest'}"
        return Pair(name, original, wrong, shown)


def _made(text: str) -> set[str]:
    return {name for node in parsed(text)[0] for name in node.output}


def spoiled(
    right: onnx.ModelProto, text: str, functions: str = "", damage: str = "rows rotated"
) -> onnx.ModelProto:
    """Return a conversion with nodes behind its result `y`, which they read as `z`."""
    model = copied(right)
    graph = model.graph
    del graph.value_info[:]
    for node in graph.node:
        node.input[:] = ["z" if name == "y" else name for name in node.input]
        node.output[:] = ["z" if name == "y" else name for name in node.output]
    given = _made(text)
    if "y" not in given:
        text = f"{text}; {'' if 'k' in given else _DECIDED}; {_ONE}; {DAMAGES[damage]}"
    made, stored = parsed(f"{_SIZES}; {text}")
    graph.node.extend(_needed(made, "y"))
    graph.initializer.extend(stored.values())
    if functions:
        head = '<ir_version: 9, opset_import: ["" : 18, "my" : 1]> g () => () {}'
        model.functions.extend(onnx.parser.parse_model(head + functions).functions)
        if "my" not in {i.domain for i in model.opset_import}:
            model.opset_import.append(helper.make_opsetid("my", 1))
    return model


def _needed(nodes: list[onnx.NodeProto], result: str) -> list[onnx.NodeProto]:
    wanted, kept = {result}, []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            kept.append(node)
            wanted |= {*node.input, *(n for a in node.attribute for b in a.g.node for n in b.input)}
    return kept[::-1]


def read(table: str, words: Mapping[str, Mapping[str, Any]]) -> Iterator[Wrong]:
    """Read models of a table as of `parsing.rows`.

    Options are a shape, dims (of the default base), pads that are fed, why it is wrong where no run
    shows it, or fields that `words` have: "1,200,4,1 | base: static | wrong: at 38 rows".
    """
    for name, options, first, nodes in rows(table):
        known: dict[str, Any] = {}
        for option in options:
            key, _, value = option.partition(": ")
            if key in words:
                known[key] = words[key][value]
            elif key == "dims":
                known["base"] = Base(dims=value)
            elif key == "pads":
                known["feeds"] = {"pads": np.reshape([*map(int, value.split())], (2, 2))}
            elif key == "wrong":
                known["outside"] = value
            else:
                known["shape"] = tuple(map(int, option.split(",")))
        yield Wrong(name, nodes, first=first, **known)
