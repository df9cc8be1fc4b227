"""One operator in every place that a model has, at any opset, in any type, known to any degree."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import definitions
import numpy as np
import onnx
import running
import sampling
from building import ELEMENT_TYPES, TF, element_type
from onnx import TensorProto, helper
from vocabulary import LOWERINGS

OPSETS = tuple(sampling.OPSETS)
IR_VERSIONS = tuple(range(4, sampling.NEWEST_IR + 1))
DTYPES = tuple(ELEMENT_TYPES)
#: None lets the cheapest be taken.
FORCED = (None, *LOWERINGS)
KNOWN = ("static", "symbolic", "run time")
PLACES = ("main graph", "branch", "loop", "scan", "function")

#: onnxruntime has no Loop and Scan of bfloat16, and 1.23 frees strings in a Loop twice.
NOT_RUN = {"loop": ("bfloat16", "string"), "scan": ("bfloat16",)}

INT = np.int32
OPERATORS: dict[str, tuple[str, tuple[int, ...], tuple[np.ndarray, ...], dict[str, Any]]] = {
    "block": (
        "SpaceToBatchND",
        (2, 3, 5, 2),
        (np.array([2, 3], INT), np.array([[1, 0], [3, 1]], INT)),
        {},
    ),
    "unblock": (
        "BatchToSpaceND",
        (12, 2, 3, 2),
        (np.array([2, 3], INT), np.array([[1, 0], [2, 4]], INT)),
        {},
    ),
    "patches": (
        "ExtractImagePatches",
        (2, 5, 4, 2),
        (),
        {"ksizes": [1, 3, 2, 1], "strides": [1, 2, 1, 1], "rates": [1, 1, 2, 1], "padding": "SAME"},
    ),
    "tiles": (
        "ExtractImagePatches",
        (1, 4, 6, 3),
        (),
        {
            "ksizes": [1, 2, 3, 1],
            "strides": [1, 2, 3, 1],
            "rates": [1, 1, 1, 1],
            "padding": "VALID",
        },
    ),
    "idle": (
        "SpaceToBatchND",
        (2, 3, 2),
        (np.array([1], INT), np.array([[0, 0]], INT)),
        {},
    ),
}


@dataclass(frozen=True)
class Corner:
    """One point of the product."""

    operator: str
    dtype: str
    opset: int
    ir_version: int
    known: str
    place: str

    @property
    def is_run(self) -> bool:
        """Whether onnxruntime has the place for the type."""
        return self.dtype not in NOT_RUN.get(self.place, ())

    def inputs(self) -> dict[str, np.ndarray]:
        """x, p1, p2 by name."""
        _, shape, parameters, _ = OPERATORS[self.operator]
        data = sampling.array(Random(f"{self.operator} {self.dtype}"), self.dtype, shape)
        return {"x": data, **{f"p{i}": p for i, p in enumerate(parameters, start=1)}}

    def expected(self) -> np.ndarray:
        """By definition."""
        op_type, _, _, attributes = OPERATORS[self.operator]
        return definitions.node(op_type, tuple(self.inputs().values()), attributes)

    def feeds(self) -> dict[str, np.ndarray]:
        """What a run of the model is fed."""
        found = self.inputs()
        if self.place == "scan":
            found["x"] = found["x"][None]
        stored = () if self.known == "run time" else ("p1", "p2")
        fed = {name: value for name, value in found.items() if name not in stored}
        return fed | ({"c": np.array(True)} if self.place == "branch" else {})

    def model(self) -> onnx.ModelProto:
        """The operator in its place; the output is y."""
        inputs = self.inputs()
        dims = list(inputs["x"].shape)
        if self.known != "static":
            dims = [f"d{i}" for i in range(len(dims))]
        typed = element_type(inputs["x"])
        infos = [
            helper.make_tensor_value_info(
                n, element_type(a), ([1] if self.place == "scan" else []) + dims
            )
            if n == "x"
            else helper.make_tensor_value_info(n, element_type(a), a.shape)
            for n, a in self.feeds().items()
        ]
        stored = [
            onnx.numpy_helper.from_array(a, n)
            for n, a in inputs.items()
            if n not in self.feeds() and n != "x"
        ]
        nodes, more, functions = _PLACED[self.place](self, [*inputs], typed, dims)
        rank = self.expected().ndim
        output = helper.make_tensor_value_info("y", typed, [None] * rank)
        graph = helper.make_graph(nodes, "g", infos, [output], [*stored, *more])
        imports = [helper.make_opsetid("", self.opset), helper.make_opsetid(TF, 1)]
        imports += [helper.make_opsetid("local", 1)] if functions else []
        return helper.make_model(
            graph, opset_imports=imports, ir_version=self.ir_version, functions=functions
        )

    def node(self, names: list[str], output: str) -> onnx.NodeProto:
        """The operator itself."""
        op_type, _, _, attributes = OPERATORS[self.operator]
        return helper.make_node(op_type, names, [output], "site", domain=TF, **attributes)


Parts = tuple[list[onnx.NodeProto], list[TensorProto], list[onnx.FunctionProto]]


def _main(corner: Corner, names: list[str], typed: int, dims: list[object]) -> Parts:
    return [corner.node(names, "y")], [], []


def _branch(corner: Corner, names: list[str], typed: int, dims: list[object]) -> Parts:
    rank = corner.expected().ndim
    graphs = [
        helper.make_graph(
            [corner.node(names, f"{tag}y")],
            tag,
            [],
            [helper.make_tensor_value_info(f"{tag}y", typed, [None] * rank)],
        )
        for tag in "te"
    ]
    return (
        [helper.make_node("If", ["c"], ["y"], then_branch=graphs[0], else_branch=graphs[1])],
        [],
        [],
    )


def _loop(corner: Corner, names: list[str], typed: int, dims: list[object]) -> Parts:
    rank = len(dims)
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), corner.node(["v", *names[1:]], "w")],
        "body",
        [
            helper.make_tensor_value_info("turn", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", typed, [None] * rank),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("w", typed, [None] * rank),
        ],
    )
    constants = [
        onnx.numpy_helper.from_array(np.array(1), "turns"),
        onnx.numpy_helper.from_array(np.array(True), "yes"),
    ]
    return [helper.make_node("Loop", ["turns", "yes", "x"], ["y"], body=body)], constants, []


def _scan(corner: Corner, names: list[str], typed: int, dims: list[object]) -> Parts:
    rank = corner.expected().ndim
    body = helper.make_graph(
        [corner.node(["v", *names[1:]], "w")],
        "body",
        [helper.make_tensor_value_info("v", typed, dims)],
        [helper.make_tensor_value_info("w", typed, [None] * rank)],
    )
    scan = helper.make_node("Scan", ["x"], ["rows"], body=body, num_scan_inputs=1)
    if corner.opset < 13:
        return [scan, helper.make_node("Squeeze", ["rows"], ["y"], axes=[0])], [], []
    axes = onnx.numpy_helper.from_array(np.array([0]), "axes")
    return [scan, helper.make_node("Squeeze", ["rows", "axes"], ["y"])], [axes], []


def _function(corner: Corner, names: list[str], typed: int, dims: list[object]) -> Parts:
    imports = [helper.make_opsetid("", corner.opset), helper.make_opsetid(TF, 1)]
    inner = [f"f{name}" for name in names]
    function = helper.make_function(
        "local", "moved", inner, ["fy"], [corner.node(inner, "fy")], imports
    )
    return [helper.make_node("moved", names, ["y"], domain="local")], [], [function]


_PLACED = {
    "main graph": _main,
    "branch": _branch,
    "loop": _loop,
    "scan": _scan,
    "function": _function,
}


def legal(corner: Corner) -> bool:
    """Whether there is such a model: functions came with IR 8, patches have only attributes."""
    if corner.place == "function" and corner.ir_version < 8:
        return False
    return not (corner.known == "run time" and not OPERATORS[corner.operator][2])


def check(corner: Corner, model: onnx.ModelProto) -> None:
    """The converted model gives the definition's bits, optimised or not."""
    expected = corner.expected()
    for level in running.LEVELS:
        (result,) = running.run(model, corner.feeds(), level)
        assert running.same_bits(result, expected), f"{corner} at {level}"
