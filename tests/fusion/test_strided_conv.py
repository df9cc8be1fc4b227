"""Patches and what makes sums of them become one strided convolution, wherever that is the same."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
import reference
import running
import structure
from adapter import convert, plan, verify
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper, parser

import onnx_spatial
from onnx_spatial.fusion import strided_conv

HEAD = '<ir_version: {ir}, opset_import: ["" : {opset}, "com.microsoft" : 1, "local" : 1]>\n'


@pytest.fixture(autouse=True)
def dear(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever patches cost: what can be a convolution becomes one. Not in tests of `prices`."""
    if "prices" not in request.fixturenames:
        monkeypatch.setattr(strided_conv, "_saved", lambda *_: 1.0)


@pytest.fixture
def prices() -> None:
    """What patches cost counts."""


@dataclass(frozen=True)
class Window:
    """Patches of 2 or 3 spatial axes, and the image that they are taken of."""

    kernel: tuple[int, ...] = (3, 2)
    strides: tuple[int, ...] = (1, 1)
    rates: tuple[int, ...] = (1, 1)
    padding: str = "VALID"
    image: tuple[int, ...] = (7, 8)
    channels: int = 3

    @property
    def rows(self) -> int:
        return int(np.prod(self.kernel)) * self.channels

    def image_shape(self, *, last: bool) -> list[int]:
        return [2, *self.image, self.channels] if last else [2, self.channels, *self.image]

    def tensorflow(self) -> str:
        def around(values: tuple[int, ...]) -> list[int]:
            return [1, *values, 1]

        known = f'ksizes = {around(self.kernel)}, padding = "{self.padding}"'
        known += f", strides = {around(self.strides)}"
        if len(self.kernel) == 3:
            return f"com.microsoft.ExtractVolumePatches <{known}>"
        return f"com.microsoft.ExtractImagePatches <{known}, rates = {around(self.rates)}>"

    def openvino(self) -> str:
        auto_pad = self.padding.lower() if self.padding == "VALID" else self.padding
        values = f"sizes = {list(self.kernel)}, strides = {list(self.strides)}"
        return (
            f"com.microsoft.ExtractImagePatches <{values}, rates = {list(self.rates)}, "
            f'auto_pad = "{auto_pad}">'
        )


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(list(shape)).standard_normal(shape).astype(np.float32)


def model(text: str, *, ir: int = 9, opset: int = 17, **weights: np.ndarray) -> onnx.ModelProto:
    made = parser.parse_model(HEAD.format(ir=ir, opset=opset) + text)
    made.graph.initializer.extend(numpy_helper.from_array(w, n) for n, w in weights.items())
    if ir < 4:
        made.graph.input.extend(
            helper.make_tensor_value_info(n, 1, w.shape) for n, w in weights.items()
        )
    return made


def last(axes: int) -> str:
    return f"Transpose <perm = [0, {', '.join(map(str, range(2, axes + 2)))}, 1]>"


def first(axes: int) -> str:
    return f"Transpose <perm = [0, {axes + 1}, {', '.join(map(str, range(1, axes + 1)))}]>"


def unknown(axes: int) -> str:
    return ", ".join(f"d{axis}" for axis in range(axes + 2))


def in_tensorflow(window: Window, outputs: int = 4, dims: str | None = None) -> onnx.ModelProto:
    """NHWC as converters write it: a Transpose between the patches and the Conv."""
    axes = len(window.kernel)
    shape = dims or ", ".join(map(str, window.image_shape(last=True)))
    return model(
        f"""g (float[{shape}] x) => (float[{unknown(axes)}] y) {{
        [patches] p = {window.tensorflow()} (x)
        [turn] t = {first(axes)} (p)
        [conv] y = Conv (t, w, b) }}""",
        w=numbers(outputs, window.rows, *(1,) * axes),
        b=numbers(outputs),
    )


def between_transposes(window: Window, outputs: int = 4) -> onnx.ModelProto:
    """The same in a net that is NCHW around it."""
    axes = len(window.kernel)
    shape = ", ".join(map(str, window.image_shape(last=False)))
    return model(
        f"""g (float[{shape}] x) => (float[{unknown(axes)}] y) {{
        [front] f = {last(axes)} (x)
        [patches] p = {window.tensorflow()} (f)
        [turn] t = {first(axes)} (p)
        [conv] y = Conv (t, w) }}""",
        w=numbers(outputs, window.rows, *(1,) * axes),
    )


def in_openvino(window: Window, outputs: int = 4, dims: str | None = None) -> onnx.ModelProto:
    shape = dims or ", ".join(map(str, window.image_shape(last=False)))
    return model(
        f"""g (float[{shape}] x) => (float[{unknown(2)}] y) {{
        [patches] p = {window.openvino()} (x)
        [conv] y = Conv <kernel_shape = [1, 1], dilations = [3, 3]> (p, w, b) }}""",
        w=numbers(outputs, window.rows, 1, 1),
        b=numbers(outputs),
    )


def with_matrix(window: Window, outputs: int = 4) -> onnx.ModelProto:
    axes = len(window.kernel)
    shape = ", ".join(map(str, window.image_shape(last=True)))
    return model(
        f"""g (float[{shape}] x) => (float[{unknown(axes)}] y) {{
        [patches] p = {window.tensorflow()} (x)
        [product] y = MatMul (p, w) }}""",
        w=numbers(window.rows, outputs),
    )


FORMS = {
    "TensorFlow": in_tensorflow,
    "TensorFlow, NCHW": between_transposes,
    "OpenVINO": in_openvino,
    "matrix": with_matrix,
}

WINDOWS = {
    "overlapping": Window(),
    "side by side": Window((2, 3), (2, 3), image=(9, 11)),
    "apart": Window((2, 1), (3, 2), image=(9, 8)),
    "dilated": Window((3, 2), rates=(2, 3), image=(9, 10)),
    "dilated, in steps": Window((2, 3), (2, 1), (3, 2), image=(10, 9)),
    "padded": Window((3, 2), padding="SAME"),
    "padded, oddly": Window((2, 4), padding="SAME"),
    "padded, in steps": Window((3, 4), (2, 3), padding="SAME", image=(8, 10)),
    "padded, dilated": Window((3, 2), (2, 1), (2, 3), padding="SAME", image=(9, 6)),
    "wider than the image": Window((5, 5), padding="SAME", image=(2, 3)),
    "one element": Window((1, 1), (2, 3)),
    "one channel": Window((3, 3), channels=1),
}


def standing(made: onnx.ModelProto, op_type: str) -> list[onnx.NodeProto]:
    return [n for n in structure.nodes(made) if n.op_type == op_type]


def conv_of(made: onnx.ModelProto) -> dict[str, object]:
    (node,) = standing(made, "Conv")
    return {a.name: list(helper.get_attribute_value(a)) for a in node.attribute}


def agree(made: onnx.ModelProto, *feeds: dict[str, np.ndarray]) -> onnx.ModelProto:
    """Convert; the result gives what the definitions say, and holds no patches."""
    converted = convert(made)
    assert structure.spatial(converted) == []
    for fed in feeds:
        want = reference.run(made, fed)
        for level in running.LEVELS:
            got = running.run(converted, fed, level)
            for one, other in zip(got, want, strict=True):
                assert one.shape == other.shape and one.dtype == other.dtype
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    return converted


def strategy(made: onnx.ModelProto) -> str | None:
    (site,) = plan(made).operators
    return site.lowering


def declined(made: onnx.ModelProto) -> str:
    """Why there is no convolution; what there is instead is right all the same."""
    (site,) = plan(made).operators
    assert site.lowering != strided_conv.STRIDED
    return site.declined[0] if site.declined else ""


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("form", FORMS)
def test_one_convolution(form: str, name: str) -> None:
    window = WINDOWS[name]
    if form == "OpenVINO" and window.padding == "SAME":
        window = Window(
            window.kernel, window.strides, window.rates, "same_upper", window.image, window.channels
        )
    made = FORMS[form](window)
    x = numbers(*window.image_shape(last=form.startswith(("TensorFlow", "matrix"))))
    if form == "TensorFlow, NCHW":
        x = numbers(*window.image_shape(last=False))
    converted = agree(made, {"x": x})
    found = conv_of(converted)
    assert found["kernel_shape"] == list(window.kernel)
    assert (found["strides"], found["dilations"]) == ([*window.strides], [*window.rates])
    (site,) = plan(made).operators
    assert site.lowering == "strided convolution"
    assert verify(made, converted)


@pytest.mark.parametrize("auto_pad", ["same_upper", "same_lower"])
@pytest.mark.parametrize("strides", [(1, 1), (2, 3)])
def test_the_odd_zero_stands_where_the_operator_has_it(
    strides: tuple[int, int], auto_pad: str
) -> None:
    window = Window((4, 2), strides, (1, 3), auto_pad, image=(7, 9))
    agree(in_openvino(window), {"x": numbers(2, 3, 7, 9)})


@pytest.mark.parametrize("padding", ["VALID", "SAME"])
@pytest.mark.parametrize("form", ["TensorFlow", "TensorFlow, NCHW", "matrix"])
def test_volumes(form: str, padding: str) -> None:
    window = Window((2, 3, 2), (1, 2, 2), padding=padding, image=(4, 7, 6), channels=2)
    made = FORMS[form](window)
    x = numbers(*window.image_shape(last=form != "TensorFlow, NCHW"))
    found = conv_of(agree(made, {"x": x}))
    assert (found["kernel_shape"], found["strides"]) == ([2, 3, 2], [1, 2, 2])


def test_sampling_that_starts_inside_a_volume_is_none() -> None:
    made = in_tensorflow(Window((1, 1, 1), (5, 1, 1), padding="SAME", image=(10, 3, 3)))
    assert "sampling starts inside the image" in declined(made)
    agree(made, {"x": numbers(2, 10, 3, 3, 3)})


@pytest.mark.parametrize(
    ("form", "left"),
    [
        ("TensorFlow", ["Transpose", "Reshape", "Transpose", "Conv"]),
        ("TensorFlow, NCHW", ["Reshape", "Transpose", "Conv"]),
        ("OpenVINO", ["Reshape", "Transpose", "Conv"]),
        ("matrix", ["Transpose", "Reshape", "Transpose", "Conv", "Transpose"]),
    ],
)
def test_transposes_that_cancel_are_gone_and_the_others_are_written(
    form: str, left: list[str]
) -> None:
    assert structure.ops(convert(FORMS[form](Window()))) == left


def test_a_kernel_is_computed_once_and_the_weight_stays_as_it_is() -> None:
    made = in_tensorflow(Window())
    converted = convert(made)
    assert converted.graph.initializer[:2] == made.graph.initializer
    kernel = converted.graph.node[1]
    assert (kernel.op_type, kernel.input[0]) == ("Reshape", "w")


def test_the_node_keeps_its_name_its_bias_and_what_is_said_of_it() -> None:
    made = in_tensorflow(Window())
    made.graph.node[2].doc_string = "said of it"
    made.graph.node[2].metadata_props.add(key="note", value="kept")
    converted = convert(made)
    (conv,) = standing(converted, "Conv")
    assert (conv.name, conv.doc_string, conv.input[2]) == ("conv", "said of it", "b")
    noted = {p.key: p.value for p in conv.metadata_props}
    assert noted == {"note": "kept", "onnx_spatial.origin": "Conv conv"}
    assert {n.name for n in converted.graph.node} == {
        "conv", "conv/Transpose", "conv/Reshape", "conv/Transpose_1",
    }  # fmt: skip


def test_what_is_reported() -> None:
    made = between_transposes(Window())
    found = plan(made)
    (site,) = found.operators
    assert (site.action, site.lowering) == ("fuse", "strided convolution")
    assert site.absorbed == ("front", "turn", "conv")
    assert (site.nodes_before, site.nodes_after) == (4, 3)
    assert found.touched["nodes_replaced"] == ["patches", "front", "turn", "conv"]
    assert structure.dims(found.model, "y") == ["d0", "d1", "d2", "d3"]  # the user's own


def test_declared_types_follow() -> None:
    made = in_tensorflow(Window())
    (conv,) = (n for n in made.graph.node if n.op_type == "Conv")
    conv.output[0] = "c"
    made.graph.node.append(helper.make_node("Relu", ["c"], ["y"]))
    for name, shape in (("p", [2, 5, 7, 18]), ("t", [2, 18, 5, 7]), ("c", [9, 9, 9, 9])):
        made.graph.value_info.append(helper.make_tensor_value_info(name, 1, shape))
    converted = convert(made)
    assert structure.dims(converted, "c") == [2, 4, 5, 7]
    assert {"p", "t"}.isdisjoint(v.name for v in converted.graph.value_info)


@pytest.mark.parametrize("reads", ["x", "its Transpose"])
def test_a_transpose_in_front_stays_for_others(reads: str) -> None:
    made = between_transposes(Window())
    if reads == "its Transpose":
        made.graph.node.append(helper.make_node("Relu", ["f"], ["z"]))
        made.graph.output.append(helper.make_tensor_value_info("z", 1, [2, 7, 8, 3]))
    converted = agree(made, {"x": numbers(2, 3, 7, 8)})
    assert ("front" in {n.name for n in converted.graph.node}) == (reads == "its Transpose")
    (conv,) = standing(converted, "Conv")
    assert conv.input[0] == "x"


MATRIX = """g (float[2, 7, 8, 3] x) => (float[a, b, c, d] y) {
    [patches] p = com.microsoft.ExtractImagePatches <ksizes = [1, 3, 2, 1], strides = [1, 2, 2, 1],
        rates = [1, 1, 1, 1], padding = "SAME"> (x)
    REST }"""


@pytest.mark.parametrize(
    ("rest", "left"),
    [
        ("m = MatMul (p, w)  y = Transpose <perm = [0, 3, 1, 2]> (m)", 0),
        ("m = MatMul (p, w)  y = Transpose <perm = [3, 1, 0, 2]> (m)", 1),
        ("m = MatMul (p, w)  k = Transpose <perm = [1, 2, 3, 0]> (m) "
         " y = Transpose <perm = [3, 2, 0, 1]> (k)", 0),
        ("t = Transpose <perm = [1, 2, 0, 3]> (p)  y = MatMul (t, w)", 1),
        ("t = Transpose <perm = [2, 1, 0, 3]> (p)  m = MatMul (t, w)"
         "  y = Transpose <perm = [2, 3, 1, 0]> (m)", 0),
    ],
)  # fmt: skip
def test_transposes_around_a_matrix(rest: str, left: int) -> None:
    made = model(MATRIX.replace("REST", rest), w=numbers(18, 5))
    converted = agree(made, {"x": numbers(2, 7, 8, 3)})
    assert len(standing(converted, "Transpose")) == 2 + left  # of the image and of the weight
    assert strategy(made) == "strided convolution"


TURN = "t = Transpose <perm = [0, 3, 1, 2]> (p)  "
DECLINES = {
    "group": (f"{TURN} y = Conv <group = 2> (t, half)", "it has group 2"),
    "strides": (f"{TURN} y = Conv <strides = [2, 1]> (t, w)", "it has strides of its own"),
    "pads": (f"{TURN} y = Conv <pads = [0, 0, 0, 1]> (t, w)", "it has pads of its own"),
    "kernel": (f"{TURN} y = Conv (t, wide)", "its kernel is 2x1, not 1x1"),
    "other axis": ("y = Conv (p, other)", "it sums up along another axis"),
    "readers between": (f"{TURN} y = Conv (t, w)  z = Relu (t)", "other nodes read its input"),
    "readers": ("y = MatMul (p, m)  z = Relu (p)", "other nodes read its input"),
    "an output": (f"{TURN} y = Conv (t, w)  z = Identity (t)", "other nodes read its input"),
    "no matrix": ("y = MatMul (p, line)", "its second input is no matrix"),
    "other columns": (f"{TURN} y = MatMul (t, four)", "along another axis than the channels"),
}


@pytest.mark.parametrize("case", DECLINES)
def test_why_not(case: str) -> None:
    rest, reason = DECLINES[case]
    made = model(
        MATRIX.replace("REST", rest),
        w=numbers(4, 18, 1, 1),
        half=numbers(4, 9, 1, 1),
        wide=numbers(4, 18, 2, 1),
        other=numbers(4, 4, 1, 1),
        line=numbers(18),
        m=numbers(18, 5),
        four=numbers(4, 5),
        s=np.array([32, 18]),
    )
    made.graph.output[0].type.tensor_type.ClearField("shape")
    if "z =" in rest:
        made.graph.output.add(name="z").type.tensor_type.elem_type = 1
    assert reason in declined(made)
    x = {"x": numbers(2, 7, 8, 3)}
    for got, want in zip(running.run(convert(made), x), reference.run(made, x), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float64, np.int32])
def test_types_without_a_convolution(dtype: type) -> None:
    made = with_matrix(Window())
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    for info in (made.graph.input[0], made.graph.output[0]):
        info.type.tensor_type.elem_type = kind
    weight = numbers(18, 4).astype(dtype)
    made.graph.initializer[0].CopyFrom(numpy_helper.from_array(weight, "w"))
    assert "onnxruntime has no convolution of" in declined(made)


def test_half_precision() -> None:
    made = in_tensorflow(Window(padding="SAME"))
    for info in (made.graph.input[0], made.graph.output[0]):
        info.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    for tensor in made.graph.initializer:
        half = numpy_helper.to_array(tensor).astype(np.float16)
        tensor.CopyFrom(numpy_helper.from_array(half, tensor.name))
    assert strategy(made) == "strided convolution"
    x = numbers(2, 7, 8, 3).astype(np.float16)
    (got,) = running.run(convert(made), {"x": x})
    (want,) = reference.run(made, {"x": x})
    np.testing.assert_allclose(got, want, rtol=1e-2, atol=1e-2)
    assert verify(made, convert(made))


@pytest.mark.parametrize("form", ["TensorFlow", "OpenVINO"])
@pytest.mark.parametrize("window", ["overlapping", "side by side", "padded", "dilated"])
def test_sizes_that_only_the_run_knows(window: str, form: str) -> None:
    known = WINDOWS[window]
    padding = "same_lower" if form == "OpenVINO" and known.padding == "SAME" else known.padding
    given_by = Window(known.kernel, known.strides, known.rates, padding, known.image)
    dims = "N, H, W, 3" if form == "TensorFlow" else "N, 3, H, W"
    made = FORMS[form](given_by, dims=dims)
    assert strategy(made) == "strided convolution"
    shapes = [(2, 9, 11, 3), (1, 12, 13, 3), (3, 11, 9, 3)]
    if form == "OpenVINO":
        shapes = [(n, c, h, w) for n, h, w, c in shapes]
    converted = agree(made, *({"x": numbers(*shape)} for shape in shapes))
    assert verify(made, converted)


def test_a_static_image_without_a_window() -> None:
    made = in_tensorflow(Window((3, 2), image=(2, 8)))
    assert "there are no patches" in declined(made)


BRANCH = """g (bool b, float[2, 7, 8, 3] x) => (float[c, d, e, f] y) {
    z = Relu (x)
    y = If (b) <
      then_branch = yes () => (float[h, i, j, k] t) {
        p = com.microsoft.ExtractImagePatches <ksizes = [1, 3, 2, 1], strides = [1, 1, 1, 1],
            rates = [1, 1, 1, 1], padding = "VALID"> (z)
        q = Transpose <perm = [0, 3, 1, 2]> (p)
        [conv] t = Conv (q, w) },
      else_branch = no () => (float[l, m, n, o] e) { e = Neg (z) } > }"""


def test_in_a_branch_with_a_weight_from_outside() -> None:
    made = model(BRANCH, w=numbers(4, 18, 1, 1))
    x = numbers(2, 7, 8, 3)
    converted = agree(made, *({"b": np.array(b), "x": x} for b in (True, False)))
    assert strategy(made) == "strided convolution"
    (conv,) = standing(converted, "Conv")
    assert conv.name == "conv"
    branch = converted.graph.node[1].attribute[0].g
    assert [n.op_type for n in branch.node] == ["Transpose", "Reshape", "Transpose", "Conv"]


FUNCTION = """g (float[2, 7, 8, 3] x) => (float[c, d, e, f] y) { y = local.Embed (x) }
<domain: "local", opset_import: ["" : 17, "com.microsoft" : 1]> Embed (image) => (result) {
    w = Constant <value = float[2, 6, 1, 1] {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}> ()
    p = com.microsoft.ExtractImagePatches <ksizes = [1, 1, 2, 1], strides = [1, 1, 2, 1],
        rates = [1, 1, 1, 1], padding = "VALID"> (image)
    q = Transpose <perm = [0, 3, 1, 2]> (p)
    result = Conv (q, w) }"""


def test_in_a_function() -> None:
    made = model(FUNCTION)
    converted = agree(made, {"x": numbers(2, 7, 8, 3)})
    assert strategy(made) == "strided convolution"
    (function,) = converted.functions
    assert "Conv" in {n.op_type for n in function.node}


def test_a_weight_that_the_caller_of_a_function_gives() -> None:
    text = FUNCTION.replace("local.Embed (x)", "local.Embed (x, v)")
    lines = text.replace("Embed (image)", "Embed (image, w)").splitlines()
    given_by_caller = "\n".join(line for line in lines if "Constant" not in line)
    made = model(given_by_caller, v=numbers(2, 6, 1, 1))
    assert strategy(made) == "strided convolution"
    agree(made, {"x": numbers(2, 7, 8, 3)})


def test_a_weight_that_callers_may_override() -> None:
    made = in_tensorflow(Window())
    made.graph.input.append(helper.make_tensor_value_info("w", 1, [4, 18, 1, 1]))
    assert strategy(made) == "strided convolution"
    agree(made, {"x": numbers(2, 7, 8, 3), "w": numbers(1, 72).reshape(4, 18, 1, 1)})


def test_a_weight_that_is_computed() -> None:
    made = model(MATRIX.replace("REST", "v = Neg (w)  y = MatMul (p, v)"), w=numbers(18, 5))
    assert strategy(made) == "strided convolution"
    agree(made, {"x": numbers(2, 7, 8, 3)})


def test_before_ir_4_every_initializer_was_an_input() -> None:
    text = MATRIX.replace("REST", "y = MatMul (p, w)")
    made = model(text, ir=3, opset=11, w=numbers(18, 5))
    assert strategy(made) == "strided convolution"
    (got,) = running.run(convert(made), {"x": numbers(2, 7, 8, 3)})
    (want,) = reference.run(made, {"x": numbers(2, 7, 8, 3), "w": numbers(18, 5)})
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_external_weights_stay_where_they_are(tmp_path: Path) -> None:
    made = in_tensorflow(Window())
    onnx.save(made, tmp_path / "in.onnx", save_as_external_data=True, size_threshold=0)
    result = onnx_spatial.convert(tmp_path / "in.onnx", tmp_path / "out.onnx")
    assert result.verification
    written = onnx.load(tmp_path / "out.onnx", load_external_data=False)
    weight = next(t for t in written.graph.initializer if t.name == "w")
    assert weight.data_location == onnx.TensorProto.EXTERNAL


def test_not_without_fusion() -> None:
    (site,) = plan(in_tensorflow(Window()), fuse=False).operators
    assert site.lowering != "strided convolution" and site.declined == ()


def test_a_wrong_kernel_is_found() -> None:
    made = in_tensorflow(Window((2, 2)))
    converted = convert(made)
    (kernel,) = (n for n in converted.graph.node if n.name == "conv/Transpose_1")
    (perm,) = kernel.attribute
    assert list(perm.ints) == [0, 3, 1, 2]
    perm.ints[:] = [0, 3, 2, 1]  # rows and columns of the window swapped
    assert verify(made, converted).status == "failed"


sizes = st.integers(1, 4)


@given(
    form=st.sampled_from(sorted(FORMS)),
    kernel=st.tuples(sizes, sizes),
    strides=st.tuples(sizes, sizes),
    rates=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padded=st.booleans(),
    more=st.tuples(st.integers(0, 6), st.integers(0, 6)),
    channels=sizes,
    outputs=sizes,
)
def test_any_window(
    form: str,
    kernel: tuple[int, int],
    strides: tuple[int, int],
    rates: tuple[int, int],
    padded: bool,
    more: tuple[int, int],
    channels: int,
    outputs: int,
) -> None:
    padding = "VALID" if not padded else "same_lower" if form == "OpenVINO" else "SAME"
    spans = [(k - 1) * r + 1 for k, r in zip(kernel, rates, strict=True)]
    image = tuple(m + (1 if padded else s) for m, s in zip(more, spans, strict=True))
    window = Window(kernel, strides, rates, padding, image, channels)
    made = FORMS[form](window, outputs)
    x = numbers(*window.image_shape(last=form in ("TensorFlow", "matrix")))
    converted = agree(made, {"x": x})
    assert conv_of(converted)["kernel_shape"] == list(kernel)


@pytest.mark.usefixtures("prices")
@pytest.mark.parametrize("form", ["TensorFlow", "TensorFlow, NCHW", "OpenVINO", "matrix"])
def test_patches_that_overlap_are_worth_it(form: str) -> None:
    padding = "same_upper" if form == "OpenVINO" else "SAME"
    made = FORMS[form](Window((3, 3), padding=padding, image=(64, 64), channels=64), 64)
    assert strategy(made) == "strided convolution"


@pytest.mark.usefixtures("prices")
def test_a_matrix_of_many_rows_is_faster_by_itself() -> None:
    made = with_matrix(Window((16, 16), (16, 16), image=(224, 224)), 768)
    assert "one strided convolution would not be faster" in declined(made)


@pytest.mark.usefixtures("prices")
def test_where_nothing_else_fits_a_convolution_is_taken() -> None:
    made = in_tensorflow(Window((16, 16), (16, 16), image=(224, 224)), 768)
    (site,) = plan(made, max_rank=2).operators
    assert site.lowering == "strided convolution"
