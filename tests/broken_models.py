"""Models with one error each, and what `validate`, `convert` and `inspect` must say of them.

A case is a line of a table: its name, what the message has to hold (where it is, which number is wrong,
what to do), and the model.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from building import OPENVINO, TF
from onnx import TensorProto, numpy_helper, parser

MODEL, SET = "model.onnx", "test_data_set_0"

#: Text for parameters that are right for data of [2, 4, 6, 3].
BLOCK = "int32[2] block = {2, 3}, int32[2,2] amounts = {0, 0, 0, 0}"
S2B, IMAGE = "TF.SpaceToBatchND(x, block, amounts)", "float[2,4,6,3]"

#: Exit codes of `convert` and `inspect` by kind; others, which a run shows, have 0.
_EXIT_CODES = {"unreadable": 2, "conversion": 3}


@dataclass(frozen=True)
class Case:
    """A model whose failure is the expected result.

    Attributes:
        kind: of failure, as docs/validation.md lists them.
        says: what the message has to hold.
        files: content by path in the folder of the model.
        status: of `validate`.
        code: exit code of `convert` and `inspect`; None: that of the kind.
    """

    kind: str
    says: tuple[str, ...]
    files: Mapping[str, bytes]
    status: str = "failed"
    code: int | None = None

    @property
    def exit_code(self) -> int:
        """Exit code of `onnx-spatial convert` and `onnx-spatial inspect`."""
        return _EXIT_CODES.get(self.kind, 0) if self.code is None else self.code


def write(name: str, folder: Path) -> Path:
    """Write the files of a model below a folder, and return the path of the model."""
    for path, content in CASES[name].files.items():
        target = folder / name / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return folder / name / MODEL


def parsed(graph: str, *, opset: int = 17) -> onnx.ModelProto:
    """Parse ONNX text in which TF., OV. and OURS. stand for the domains of operators."""
    head = f'<ir_version: 8, opset_import: ["" : {opset}, "{TF}" : 1, "{OPENVINO}" : 1, '
    head += '"onnx_spatial.ops" : 1, "my.layers" : 1, "somebody.else" : 1]>\n'
    for short, domain in (("TF.", TF), ("OV.", OPENVINO), ("OURS.", "onnx_spatial.ops")):
        graph = graph.replace(short, f"{domain}.")
    return parser.parse_model(head + graph)


def serialized(model: onnx.ModelProto) -> bytes:
    """Serialize a model to the same bytes each time."""
    return bytes(model.SerializeToString(deterministic=True))


def files(graph: str, *, opset: int = 17) -> dict[str, bytes]:
    """Return the files of a model that is given as text."""
    return {MODEL: serialized(parsed(graph, opset=opset))}


def node(call: str, x: str = IMAGE, held: str = BLOCK, *, opset: int = 17) -> dict[str, bytes]:
    """Return the text of a model of one node, called "broken", and its parameters."""
    constants = f" <{held}>" if held else ""
    kind = x.partition("[")[0].removeprefix("seq(")
    return files(
        f"net ({x} x) => ({kind}[n,h,w,c] y){constants} {{ [broken] y = {call} }}", opset=opset
    )


# Nodes that break a rule


def _rule(says: str, call: str, x: str = IMAGE, held: str = BLOCK) -> Case:
    """What the message says stands between bars."""
    return Case("conversion", ("'broken'", *says.split("|")), node(call, x, held))


def _amounts(*values: int, block: str = "int32[2] block = {2, 3}") -> str:
    numbers = ", ".join(map(str, values))
    table = f"int32[{len(values) // 2},2] amounts = {{{numbers}}}"
    return f"{block}, {table}" if block else table


def _patches(op_type: str, **changed: str) -> str:
    attributes = {"ksizes": "[1, 2, 2, 1]", "strides": "[1, 1, 1, 1]", "rates": "[1, 1, 1, 1]"}
    attributes["padding"] = '"VALID"'
    if op_type.startswith("OV."):
        attributes = dict.fromkeys(("sizes", "strides", "rates"), "[2, 2]") | {
            "auto_pad": '"valid"'
        }
    if op_type.endswith("VolumePatches"):
        attributes = {n: v.replace("]", ", 1]") for n, v in attributes.items() if n != "rates"}
    listed = [f"{n} = {v}" for n, v in (attributes | changed).items() if v]
    return f"{op_type} <{', '.join(listed)}> (x)"


B2S, PLANES = "TF.BatchToSpaceND(x, block, amounts)", "float[4,3,4,6]"
TF_PATCHES, OV_PATCHES = "TF.ExtractImagePatches", "OV.ExtractImagePatches"
#: Name, what the message says, node, data, parameters; other rules have a case in data/cases.json.
RULES = {
    "block_does_not_divide": ("axis 2: size 7|its block, 3", S2B, "float[2,4,7,3]"),
    "block_twice": (
        "block_size|block_shape|two different spellings",
        *("TF.SpaceToBatchND <block_size = 2, block_shape = [2, 3]> (x, amounts)", IMAGE),
        _amounts(0, 0, 0, 0, block=""),
    ),
    "data_is_a_sequence": ("the data input|sequence", S2B, "seq(float[2,4,6,3])"),
    "batch_not_divisible": ("batch 8 is not divisible by 6|[2, 3]", B2S, "float[8,4,6,3]"),
    "padding_in_lower_case": (
        "padding must be SAME or VALID|'same'",
        *(_patches(TF_PATCHES, padding='"same"'), IMAGE, ""),
    ),
    "auto_pad_explicit": (
        "auto_pad must be valid, same_upper or same_lower|'explicit'",
        *(_patches(OV_PATCHES, auto_pad='"explicit"'), PLANES, ""),
    ),
    "prepared_parameters": (
        "attribute parameters|ExtractPatches",
        *('OURS.ExtractPatches <site = "patches", parameters = "kernel=2,2"> (x)', PLANES, ""),
    ),
}


# Nodes elsewhere, and nodes that no standard operator can express

BROKEN = "TF.SpaceToBatchND(v, block, amounts)"
LAYERS = f'<domain: "my.layers", opset_import: ["" : 17, "{TF}" : 1]>\n'
IN_LOOP = f"""net (float[2,4,7,3] x, int64 turns) => (float[?,?,?,?] y) <{BLOCK}, bool yes = {{1}}> {{
    [steps] y = Loop <body = step (int64 i, bool on, float[2,4,7,3] v) => (bool go, float[2,4,7,3] w) {{
        go = Identity(on)
        [broken] p = {BROKEN}
        w = Identity(v)
    }}> (turns, yes, x)
}}"""
IN_FUNCTION = f"""net (float[2,4,7,3] x) => (float[?,?,?,?] y) {{ [layer] y = my.layers.Cut(x) }}
{LAYERS}Cut (v) => (w) {{
    block = Constant <value_ints = [2, 3]> ()
    amounts = Constant <value = int32[2,2] {{0, 0, 0, 0}}> ()
    [broken] w = {BROKEN}
}}"""
DISAGREEING = f"""net (float[2,4,6,3] x) => (float[?,?,?,?] y, float[?,?,?,?] z) {{
    [fine] y = my.layers.Patches <size = [1, 2, 2, 1]> (x)
    [coarse] z = my.layers.Patches <size = [1, 3, 3, 1]> (x)
}}
{LAYERS}Patches <size> (v) => (w) {{
    [broken] w = TF.ExtractImagePatches <ksizes: ints = @size, strides = [1, 1, 1, 1],
        rates = [1, 1, 1, 1], padding = "VALID"> (v)
}}"""
UNKNOWN_LENGTH = f"""net (float[2,4,6,3] x, int32[m] block, int32[m,2] amounts) => (float[?,?,?,?] y) {{
    [broken] y = {S2B}
}}"""
OF_NOBODY = "somebody.else.SpaceToBatchND(x, block, amounts)"

PLACES = {
    "in_loop": ("main graph > Loop y.body|axis 2: size 7|its block, 3", files(IN_LOOP)),
    "in_function": ("function my.layers:Cut|size 7|its block, 3", files(IN_FUNCTION)),
    "function_calls_disagree": (
        "function my.layers:Patches|ksizes|inline the function first",
        files(DISAGREEING),
    ),
    "bfloat16_opset_12": (
        "opset is 12|bfloat16 needs 13|export the model again",
        node(S2B, "bfloat16[2,4,6,3]", opset=12),
    ),
    "blocked_axes_unknown": ("block_shape|length is unknown|--static", files(UNKNOWN_LENGTH)),
}


# Files that are not models, inconsistent models, and models that no runtime loads


def _with_external(location: str, **held: bytes) -> dict[str, bytes]:
    """Store a weight of 12 bytes in another file."""
    model = parsed(
        "net (float[3] x) => (float[3] y) <float[3] factor = {1, 2, 3}> { y = Mul(x, factor) }"
    )
    (factor,) = model.graph.initializer
    factor.CopyFrom(TensorProto(name="factor", data_type=TensorProto.FLOAT, dims=[3]))
    factor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("length", "12")):
        factor.external_data.add(key=key, value=value)
    return {MODEL: serialized(model), **{f"{name}.bin": data for name, data in held.items()}}


def _short_tensor() -> dict[str, bytes]:
    model = onnx.ModelProto.FromString(node(S2B)[MODEL])
    del model.graph.initializer[0].int32_data[1:]
    return {MODEL: serialized(model)}


def _changed(**fields: int) -> dict[str, bytes]:
    model = parsed("net (float[2,4] x) => (float[2,4] y) { [act] y = Relu(x) }")
    model.ir_version = fields.get("ir_version", model.ir_version)
    model.opset_import[0].version = fields.get("opset", model.opset_import[0].version)
    return {MODEL: serialized(model)}


_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"
UNREADABLE = {
    "empty_file": ("is not an ONNX model: it is empty", {MODEL: b""}),
    "truncated": ("is not an ONNX model, or was cut off|bytes", {MODEL: node(S2B)[MODEL][:-20]}),
    "git_lfs_pointer": ("pointer of Git LFS|git lfs pull", {MODEL: _POINTER}),
    "external_missing": (
        "'weights.bin'|missing|'factor'|put it beside the model",
        _with_external("weights.bin"),
    ),
    "external_too_short": (
        "'factor'|needs 12 bytes|'weights.bin'|only 8",
        _with_external("weights.bin", weights=bytes(8)),
    ),
    "external_outside": (
        "'factor'|'../weights.bin'|leaves the model's folder",
        _with_external("../weights.bin"),
    ),
}
DO_NOT_RUN = {
    "weights_do_not_fit": (
        "onnxruntime does not load it|Node (dense)|MatMul",
        files(
            "net (float[2,4] x) => (float[2,3] y) <float[2,3] w = {1, 2, 3, 4, 5, 6}> "
            "{ [dense] y = MatMul(x, w) }"
        ),
    ),
    "ir_version_unknown": ("Unsupported model IR version: 99", _changed(ir_version=99)),
}
PADS_TWICE = files(
    "net (float[1,1,8,8] x) => (float[?,?,?,?] y) <float[1,1,2,2] w = {1, 2, 3, 4}> "
    '{ [dilated] y = Conv <auto_pad = "SAME_UPPER", dilations = [2, 2], pads = [1, 1, 1, 1]> (x, w) }'
)


# Correct models with recorded data that is damaged or belongs to another model

_SPATIAL = """net (float[N,4,6,1] image) => (float[M,2,2,1] blocks)
<int32[2] block = {2, 3}, int32[2,2] paddings = {0, 0, 0, 0}> {
    [s2b] blocks = TF.SpaceToBatchND(image, block, paddings)
}"""
_DENSE = """net (float[N,4,6,1] image) => (float[M,2,2,2] features)
<int32[2] block = {2, 3}, int32[2,2] paddings = {0, 0, 0, 0}, float[1,2] weight = {0.5, -0.25}> {
    [s2b] blocks = TF.SpaceToBatchND(image, block, paddings)
    [dense] features = MatMul(blocks, weight)
}"""
_X = np.arange(1, 49, dtype=np.float32).reshape(2, 4, 6, 1)


def _blocks(order: str = "hwnHWc") -> np.ndarray:
    """SpaceToBatch with blocks of 2 x 3; `order` permutes the axes n H h W w c."""
    moved = _X.reshape(2, 2, 2, 2, 3, 1).transpose(["nHhWwc".index(axis) for axis in order])
    return np.ascontiguousarray(moved.reshape(12, 2, 2, 1))


def _tensor(name: str, array: np.ndarray) -> bytes:
    tensor = numpy_helper.from_array(np.ascontiguousarray(array), name)
    return bytes(tensor.SerializeToString(deterministic=True))


def _recorded(
    says: str,
    outputs: Mapping[str, np.ndarray] | None = None,
    *,
    inputs: Mapping[str, np.ndarray] | None = None,
    model: str = _SPATIAL,
    changed: Mapping[str, bytes | None] | None = None,
) -> Case:
    held: dict[str, bytes | None] = {**files(model)}
    values = (("input", inputs or {"image": _X}), ("output", outputs or {"blocks": _blocks()}))
    for kind, arrays in values:
        for number, (name, array) in enumerate(arrays.items()):
            held[f"{SET}/{kind}_{number}.pb"] = _tensor(name, array)
    kept = {n: data for n, data in {**held, **(changed or {})}.items() if data is not None}
    return Case("recorded-data", tuple(says.split("|")), kept)


def _archive(**arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


_INPUT, _OUTPUT = f"{SET}/input_0.pb", f"{SET}/output_0.pb"
RECORDED = {
    # With the image as the major index of the batch, as torch users do.
    "recorded_minor_major": _recorded(
        "'blocks'|differs from the recorded data|of 48 elements|belongs to another model",
        {"blocks": _blocks("nhwHWc")},
    ),
    "recorded_input_of_wrong_size": _recorded(
        "test_data_set_0|'image'|[N, 4, 6, 1]|not [2, 4, 5, 1]", inputs={"image": _X[:, :, :5]}
    ),
    "recorded_input_missing": _recorded("input_0.pb|is missing|'image'", changed={_INPUT: None}),
    "recorded_nan": _recorded(
        "'features'|NaN or infinity",
        {"features": _blocks() * np.float32([np.nan, -0.25])},
        model=_DENSE,
    ),
    "recorded_archive_of_another": _recorded(
        "model.npz|no array for image|it has picture, blocks",
        changed={_INPUT: None, _OUTPUT: None, "model.npz": _archive(picture=_X, blocks=_blocks())},
    ),
}


# Models that cannot be verified

UNVERIFIED = {
    "foreign_operator_alone": (
        "Magic|somebody.else",
        "net (float[4] x) => (float[4] y) { [magic] y = somebody.else.Magic(x) }",
    ),
    # The width is a multiple of 3, and 7.
    "no_legal_sizes": (
        "no legal sizes were found for N, W|--shape x=SIZE|--shape a=SIZE",
        "net (float[N,4,W,3] x, float[W] a, float[7] b) => (float[?,?,?,?] y, float[?] z) "
        f"<{BLOCK}> {{ [s2b] y = {S2B} [add] z = Add(a, b) }}",
    ),
    "sizes_from_data": (
        "no legal values were found for 'shape'|Reshape|'cut'|test_data_set_0",
        f"net (float[2,4,6,3] x, int64[2] shape) => (float[?,?] z) <{BLOCK}> "
        f"{{ [s2b] y = {S2B} [cut] z = Reshape(y, shape) }}",
    ),
}

CASES: dict[str, Case] = {
    **{name: _rule(*row) for name, row in RULES.items()},
    **{n: Case("conversion", ("'broken'", *s.split("|")), f) for n, (s, f) in PLACES.items()},
    **{n: Case("unreadable", tuple(s.split("|")), f) for n, (s, f) in UNREADABLE.items()},
    **{n: Case("does-not-run", tuple(s.split("|")), f) for n, (s, f) in DO_NOT_RUN.items()},
    **RECORDED,
    **{
        name: Case("unverified", tuple(says.split("|")), files(graph), "unverified")
        for name, (says, graph) in UNVERIFIED.items()
    },
    "block_cut_off": Case("conversion", ("'broken'", "'block'", "int32[2]"), _short_tensor()),
    # Without --strict these are not refused.
    "conv_pads_twice": Case(
        "conversion",
        ("'dilated' in main graph", "both auto_pad and pads", "contradict"),
        PADS_TWICE,
        code=0,
    ),
    "unknown_domain": Case(
        "conversion",
        ("'broken'", "'somebody.else'", "--domain somebody.else"),
        node(OF_NOBODY),
        code=0,
    ),
}
