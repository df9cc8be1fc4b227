"""The models that damaged files are made from: the zoo, and what the zoo lacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import cases
import numpy as np
import onnx
from building import TF, one_node
from onnx import TensorProto, helper, parser

ZOO = Path(__file__).parents[2] / "models"

#: The model file, and the files of external data beside it.
Files = Mapping[str, bytes]

MODEL = "model.onnx"

IMPORTS = f'["" : 17, "{TF}" : 1, "loc" : 1]'
PARAMETERS = "int64[2] block = {2, 2}, int64[2,2] none = {0, 0, 0, 0}"


def _text(body: str, ir_version: int = 10) -> onnx.ModelProto:
    """A model in ONNX text, where M. stands for the domain of the operators."""
    head = f"<ir_version: {ir_version}, opset_import: {IMPORTS}>\n"
    return parser.parse_model(head + body.replace("M.", f"{TF}."))


def _external(tensor: TensorProto, location: str, offset: int | None) -> bytes:
    """Take the bytes of a tensor out of a model; they lie at `offset` of another file."""
    data = tensor.raw_data
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entries = {"location": location}
    if offset is not None:
        entries |= {"offset": str(offset), "length": str(len(data))}
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    return bytes(data)


def external_data() -> Files:
    """Weights and parameters in two files, one with an offset, one without."""
    made = _text(f"""g (float[4,4,6,8] x) => (float[?,?,?,?] y) <{PARAMETERS}> {{
        s = M.SpaceToBatchND(x, block, none)
        c = Add(s, weight)
        d = Add(c, bias)
        y = M.BatchToSpaceND(d, block, none)
    }}""")
    graph = made.graph
    weight = onnx.numpy_helper.from_array(np.arange(8, dtype=np.float32), "weight")
    bias = onnx.numpy_helper.from_array(np.full(8, 0.5, np.float32), "bias")
    graph.initializer.extend([weight, bias])
    block, none = graph.initializer[0], graph.initializer[1]
    block.CopyFrom(onnx.numpy_helper.from_array(np.array([2, 2], np.int64), "block"))
    files: dict[str, bytes] = {}
    files["weights.bin"] = b"\0" * 64 + _external(graph.initializer[2], "weights.bin", 64)
    files["weights.bin"] += _external(block, "weights.bin", 96)
    files["sub/bias.bin"] = _external(graph.initializer[3], "sub/bias.bin", None)
    assert none.name == "none"
    return {MODEL: made.SerializeToString(), **files}


def embedded_weights() -> onnx.ModelProto:
    """A tensor large enough to stay in its file while the rest is converted."""
    made = _text(f"""g (float[N,H,W,4] x) => (float[?,?,?,?] y) <{PARAMETERS}, int64 first = {{7}}> {{
        s = M.SpaceToBatchND(x, block, none)
        row = Gather(weight, first)
        c = Add(s, row)
        y = M.BatchToSpaceND(c, block, none)
    }}""")
    weight = np.arange(4200 * 4, dtype=np.float32).reshape(4200, 4) / 4096
    made.graph.initializer.append(onnx.numpy_helper.from_array(weight, "weight"))
    return made


def functions() -> onnx.ModelProto:
    """Two overloads, a call in a function, an attribute that callers give."""
    made = _text(f"""g (float[4,4,6,2] x) => (float[?,?,?,?] y, float[?,?,?,?] z) <{PARAMETERS}> {{
        y = loc.outer(x, block, none)
        z = loc.patches <size = [1, 2, 2, 1]> (x)
    }}
    <opset_import: {IMPORTS}, domain: "loc">
    outer (a, b, c) => (d) {{
        e = loc.inner(a, b, c)
        d = M.BatchToSpaceND(e, b, c)
    }}
    <opset_import: {IMPORTS}, domain: "loc">
    inner (a, b, c) => (d) {{
        e = Neg(a)
        d = M.SpaceToBatchND(e, b, c)
    }}
    <opset_import: {IMPORTS}, domain: "loc">
    patches <size> (a) => (b) {{
        b = M.ExtractImagePatches <ksizes: ints = @size, strides = [1, 1, 1, 1],
            rates = [1, 1, 1, 1], padding = "VALID"> (a)
    }}""")
    overload = made.functions.add()
    overload.CopyFrom(made.functions[1])
    overload.overload = "same"
    call = made.graph.node.add()
    call.CopyFrom(helper.make_node("inner", ["y", "block", "none"], ["w"], domain="loc"))
    call.overload = "same"
    made.graph.output.append(helper.make_tensor_value_info("w", 1, [None] * 4))
    return made


def nested() -> onnx.ModelProto:
    """A Loop in an If, a Scan beside it, both with operators that read values from outside."""
    return _text(f"""g (float[2,4,4,2] x, bool c, int64 n)
            => (float[?,?,?,?] y, float[?,?,?,?,?] z) <{PARAMETERS}, bool go = {{1}}> {{
        y = If (c) <
            then_branch = t () => (float[?,?,?,?] yt) {{
                yt = Loop (n, go, x) <body = b (int64 i, bool k, float[2,4,4,2] v)
                        => (bool k1, float[2,4,4,2] v1) {{
                    k1 = Identity (k)
                    s = M.SpaceToBatchND (v, block, none)
                    v1 = M.BatchToSpaceND (s, block, none)
                }}>
            }},
            else_branch = e () => (float[?,?,?,?] ye) {{ ye = M.SpaceToBatchND (x, block, none) }}
        >
        z = Scan <num_scan_inputs = 1, body = p (float[4,4,2] one) => (float[?,?,?,?] many) {{
            zero = Constant <value = int64[1] {{0}}> ()
            more = Unsqueeze (one, zero)
            many = M.SpaceToBatchND (more, block, none)
        }}> (x)
    }}""")


def sparse() -> onnx.ModelProto:
    """A sparse initializer."""
    made = _text(f"""g (float[1,4,4,2] x) => (float[?,?,?,?] y) <{PARAMETERS}> {{
        s = Add(x, weight)
        y = M.SpaceToBatchND(s, block, none)
    }}""")
    values = helper.make_tensor("weight", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0])
    places = helper.make_tensor("places", TensorProto.INT64, [3], [1, 5, 7])
    made.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [4, 2]))
    return made


def strings() -> onnx.ModelProto:
    """Text is moved, too."""
    data = np.array(["a", "bc", "", "d"] * 8, object).reshape(1, 4, 4, 2)
    return one_node("SpaceToBatchND", [data, np.array([2, 2]), np.zeros((2, 2), np.int64)])


def sequences() -> onnx.ModelProto:
    """Values that are no tensors, between the operators and as an output."""
    return _text(f"""g (float[4,2,2,1] x) => (float[?,?,?,?] y, seq(float[?,?,?,?]) all)
            <{PARAMETERS}, int64 first = {{0}}> {{
        s = M.BatchToSpaceND(x, block, none)
        t = Neg(s)
        all = SequenceConstruct(s, t)
        perhaps = Optional(t)
        u = OptionalGetElement(perhaps)
        e = SequenceAt(all, first)
        w = Add(e, u)
        y = M.SpaceToBatchND(w, block, none)
    }}""")


def computed() -> onnx.ModelProto:
    """Parameters that a chain of operators computes, sizes that are symbols."""
    return _text("""g (float[N,H,W,C] x) => (float[?,?,?,?] y) <int64[4] flat = {1, 0, 1, 2},
            int64[2] table = {2, 2}, int64[2] block = {2, 3}> {
        shape = Shape(x)
        height = Gather <axis = 0> (shape, table)
        pads = Reshape(flat, table)
        typed = Cast <to = 6> (block)
        same = Identity(typed)
        y = M.SpaceToBatchND(x, same, pads)
        unused = Neg(height)
    }""")


def spellings() -> onnx.ModelProto:
    """The three ways to pad and the three ways to say a block, next to each other."""
    return _text("""g (float[1,6,6,2] x) => (float[?,?,?,?] a, float[?,?,?,?] b, float[?,?,?,?] c,
            float[?,?,?,?] d) <int64[2] block = {2, 2}, int64[2,2] none = {0, 0, 0, 0}> {
        a = M.ExtractImagePatches <ksizes = [1, 3, 3, 1], strides = [1, 2, 2, 1],
            rates = [1, 2, 1, 1], padding = "SAME"> (x)
        b = M.SpaceToBatchND <block_shape = [2, 3], paddings = [0, 0, 0, 0]> (x)
        c = M.SpaceToBatch <block_size = 2> (x, none)
        d = SpaceToDepth (x, block, none)
    }""")


def _of_cases() -> dict[str, Callable[[], onnx.ModelProto]]:
    """One model for each way that a runtime spells an operator, with parameters of both kinds."""
    first = {(c.dialect, c.op_type): c for c in reversed(cases.load()) if c.expected is not None}
    made: dict[str, Callable[[], onnx.ModelProto]] = {}
    for (dialect, op_type), case in first.items():
        if not case.is_complex:
            made[f"{dialect}-{op_type}"] = lambda case=case: case.model(symbolic=True)
            if len(case.inputs) > 1:
                made[f"{dialect}-{op_type}-run-time"] = lambda case=case: case.model(
                    run_time_parameters=True
                )
    return made


def ir_3() -> onnx.ModelProto:
    """Initializers are inputs, too, as they had to be before IR version 4."""
    data = np.zeros((1, 4, 4, 2), np.float32)
    inputs = [data, np.array([2, 2], np.int32), np.zeros((2, 2), np.int32)]
    return one_node("SpaceToBatchND", inputs, opset=11, ir_version=3)


BUILDERS: dict[str, Callable[[], onnx.ModelProto | Files]] = {
    builder.__name__: builder
    for builder in (
        external_data,
        embedded_weights,
        functions,
        nested,
        sparse,
        strings,
        sequences,
        computed,
        spellings,
        ir_3,
    )
} | _of_cases()  # type: ignore[operator]

NAMES = (*BUILDERS, *sorted(path.parent.name for path in ZOO.glob("*/model.onnx")))


@cache
def files(name: str) -> Files:
    """The files of a seed."""
    if name not in BUILDERS:
        return {MODEL: (ZOO / name / MODEL).read_bytes()}
    made = BUILDERS[name]()
    return {MODEL: made.SerializeToString()} if isinstance(made, onnx.ModelProto) else made
