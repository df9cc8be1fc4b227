"""Models with one error each, and what `validate`, `convert` and `inspect` must say of them.

name | kind of failure | what the message has to hold, in parts (where it is, which number is wrong,
    the model, as of `parsing.model`                        what to do)
"""

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from parsing import model, rows

MODEL, SET = "model.onnx", "test_data_set_0"

#: Parameters that are right for data of [2, 4, 6, 3], and a weight.
STORED = {
    "block": np.int32([2, 3]),
    "amounts": np.zeros((2, 2), np.int32),
    "weight": np.float32([[0.5, -0.25]]),
}

#: Exit codes of `convert` and `inspect` by kind; others, which a run shows, have 0.
_EXIT_CODES = {"unreadable": 2, "conversion": 3}


@dataclass(frozen=True)
class Case:
    """A model whose failure is the expected result.

    Attributes:
        kind: of failure, as docs/validation.md lists them.
        says: what the message has to hold.
        files: content by path in the folder of the model.
        code: exit code of `convert` and `inspect`; None: that of the kind.
    """

    kind: str
    says: tuple[str, ...]
    files: Mapping[str, bytes]
    code: int | None = None

    @property
    def status(self) -> str:
        """Status of `validate`."""
        return "unverified" if self.kind == "unverified" else "failed"

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


def parsed(graph: str) -> onnx.ModelProto:
    """Parse a model; a graph of one node may be given by its input and the node alone."""
    if "=>" not in graph:
        data, _, call = graph.partition(": ")
        kind = data.partition("[")[0].removeprefix("seq(")
        graph = f"net ({data} x) => ({kind}[n,h,w,c] y) {{ [broken] y = {call} }}"
    return model(graph, **STORED)


def serialized(made: onnx.ModelProto) -> bytes:
    """Serialize a model to the same bytes each time."""
    return bytes(made.SerializeToString(deterministic=True))


# Models that break a rule, disagree with themselves, do not run, or cannot be verified

TABLE = """
block_does_not_divide | conversion | 'broken' | axis 2: size 7 | its block, 3
    float[2,4,7,3]: tf.SpaceToBatchND(x, block, amounts)
data_is_a_sequence | conversion | 'broken' | the data input | sequence
    seq(float[2,4,6,3]): tf.SpaceToBatchND(x, block, amounts)
batch_not_divisible | conversion | 'broken' | batch 8 is not divisible by 6 | [2, 3]
    float[8,4,6,3]: tf.BatchToSpaceND(x, block, amounts)
prepared_parameters | conversion | 'broken' | attribute parameters | ExtractPatches
    float[4,3,4,6]: ours.ExtractPatches <site = "patches", parameters = "kernel=2,2"> (x)
in_loop | conversion | 'broken' | main graph > Loop y.body | axis 2: size 7 | its block, 3
    net (float[2,4,7,3] x, int64 turns) => (float[?,?,?,?] y) <bool yes = {1}> {
    [steps] y = Loop <body = step (int64 i, bool on, float[2,4,7,3] v) => (bool go, float[2,4,7,3] w) {
    go = Identity(on) [broken] p = tf.SpaceToBatchND(v, block, amounts) w = Identity(v) }>
    (turns, yes, x) }
in_function | conversion | 'broken' | function my.layers:Cut | size 7 | its block, 3
    net (float[2,4,7,3] x) => (float[?,?,?,?] y) { [layer] y = my.layers.Cut(x) }
    <domain: "my.layers", opset_import: ["" : 17]> Cut (v) => (w) {
    size = Constant <value_ints = [2, 3]> () pads = Constant <value = int32[2,2] {0, 0, 0, 0}> ()
    [broken] w = tf.SpaceToBatchND(v, size, pads) }
blocked_axes_unknown | conversion | 'broken' | block_shape | length is unknown | --static
    net (float[2,4,6,3] x, int32[m] size, int32[m,2] pads) => (float[?,?,?,?] y) {
    [broken] y = tf.SpaceToBatchND(x, size, pads) }
conv_pads_twice | conversion | 'dilated' in main graph | both auto_pad and pads | contradict
    net (float[1,1,8,8] x) => (float[?,?,?,?] y) <float[1,1,2,2] w = {1, 2, 3, 4}> { [dilated] y =
    Conv <auto_pad = "SAME_UPPER", dilations = [2, 2], pads = [1, 1, 1, 1]> (x, w) }
unknown_domain | conversion | 'broken' | 'somebody.else' | --domain somebody.else
    float[2,4,6,3]: somebody.else.SpaceToBatchND(x, block, amounts)
weights_do_not_fit | does-not-run | onnxruntime does not load it | Node (dense) | MatMul
    net (float[2,4] x) => (float[2,3] y) <float[2,3] w = {1, 2, 3, 4, 5, 6}> {
    [dense] y = MatMul(x, w) }
foreign_operator_alone | unverified | Magic | somebody.else
    net (float[4] x) => (float[4] y) { [magic] y = somebody.else.Magic(x) }
no_legal_sizes | unverified | no legal sizes were found for N, W | --shape x=SIZE | --shape a=SIZE
    net (float[N,4,W,3] x, float[W] a, float[7] b) => (float[?,?,?,?] y, float[?] z) {
    [s2b] y = tf.SpaceToBatchND(x, block, amounts) [add] z = Add(a, b) }
sizes_from_data | unverified | no legal values were found for 'shape' | Reshape | 'cut' | test_data_set_0
    net (float[2,4,6,3] x, int64[2] shape) => (float[?,?] z) {
    [s2b] y = tf.SpaceToBatchND(x, block, amounts) [cut] z = Reshape(y, shape) }
"""
#: Without --strict these are not refused.
_NOT_REFUSED = ("conv_pads_twice", "unknown_domain")


def _of_text() -> Iterator[tuple[str, Case]]:
    for name, (kind, *says), _, graph in rows(TABLE):
        made = parsed(graph)
        code = 0 if name in _NOT_REFUSED else None
        yield name, Case(kind, tuple(says), {MODEL: serialized(made)}, code)


# Files that are not models, inconsistent models, and models that no runtime loads


def _with_external(location: str, **held: bytes) -> dict[str, bytes]:
    """Store a weight of 12 bytes in another file."""
    made = model(
        "net (float[3] x) => (float[3] y) { y = Mul(x, factor) }", factor=np.float32([1, 2, 3])
    )
    (factor,) = made.graph.initializer
    factor.ClearField("raw_data")
    factor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("length", "12")):
        factor.external_data.add(key=key, value=value)
    return {MODEL: serialized(made), **{f"{name}.bin": data for name, data in held.items()}}


_GOOD = parsed("float[2,4,6,3]: tf.SpaceToBatchND(x, block, amounts)")
_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"
UNREADABLE = {
    "empty_file": ("is not an ONNX model: it is empty", {MODEL: b""}),
    "truncated": ("is not an ONNX model, or was cut off|bytes", {MODEL: serialized(_GOOD)[:-20]}),
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
# Correct models with recorded data that is damaged or belongs to another model

_SPATIAL = """net (float[N,4,6,1] image) => (float[M,2,2,1] blocks) {
    [s2b] blocks = tf.SpaceToBatchND(image, block, amounts) }"""
_DENSE = """net (float[N,4,6,1] image) => (float[M,2,2,2] features) {
    [s2b] blocks = tf.SpaceToBatchND(image, block, amounts)
    [dense] features = MatMul(blocks, weight) }"""
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
    graph: str = _SPATIAL,
    changed: Mapping[str, bytes | None] | None = None,
) -> Case:
    held: dict[str, bytes | None] = {MODEL: serialized(parsed(graph))}
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
        graph=_DENSE,
    ),
    "recorded_archive_of_another": _recorded(
        "model.npz|no array for image|it has picture, blocks",
        changed={_INPUT: None, _OUTPUT: None, "model.npz": _archive(picture=_X, blocks=_blocks())},
    ),
}


def _cut_off() -> dict[str, bytes]:
    """A stored tensor that is too short."""
    made = onnx.ModelProto.FromString(serialized(_GOOD))
    made.graph.initializer[0].raw_data = bytes(4)
    return {MODEL: serialized(made)}


CASES: dict[str, Case] = {
    **dict(_of_text()),
    **{n: Case("unreadable", tuple(s.split("|")), f) for n, (s, f) in UNREADABLE.items()},
    **RECORDED,
    "ir_version_unknown": Case(
        "does-not-run",
        ("Unsupported model IR version: 99",),
        {MODEL: serialized(model("net (float[2] x) => (float[2] y) { y = Relu(x) }", ir=99))},
    ),
    "block_cut_off": Case("conversion", ("'broken'", "'block'", "int32[2]"), _cut_off()),
}
