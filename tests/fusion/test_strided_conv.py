"""Patches and what makes sums of them become one strided convolution, wherever that is the same."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import pytest
import structure
from adapter import convert, plan, verify
from fusion.region_models import check, declined, lowerings, model
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

import onnx_spatial
from onnx_spatial.fusion import strided_conv

FUSED = ["strided convolution"]
KERNEL = ["Reshape", "Transpose"]


@pytest.fixture(autouse=True)
def dear(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever patches cost: what can be a convolution becomes one. Not in tests of `prices`."""
    if "prices" not in request.fixturenames:
        monkeypatch.setattr(strided_conv, "_saved_time", lambda *_: 1.0)


@pytest.fixture
def prices() -> None:
    """What patches cost counts."""


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(list(shape)).standard_normal(shape).astype(np.float32)


WEIGHTS = {
    "half": numbers(4, 9, 1, 1), "wide": numbers(4, 18, 2, 1), "other": numbers(4, 4, 1, 1),
    "line": numbers(18), "four": numbers(4, 5), "each": numbers(3, 18, 5),
}  # fmt: skip


class Window(NamedTuple):
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

    def node(self, openvino: bool = False) -> str:
        if openvino:
            padding = "valid" if self.padding == "VALID" else "same_lower"
            return (
                f"com.microsoft.ExtractImagePatches <sizes = {list(self.kernel)}, strides = "
                f'{list(self.strides)}, rates = {list(self.rates)}, auto_pad = "{padding}">'
            )
        ints = {"ksizes": self.kernel, "strides": self.strides, "rates": self.rates}
        if len(self.kernel) == 3:
            del ints["rates"]
        known = ", ".join(f"{name} = {[1, *v, 1]}" for name, v in ints.items())
        kind = "Volume" if len(self.kernel) == 3 else "Image"
        return f'com.microsoft.Extract{kind}Patches <{known}, padding = "{self.padding}">'


#: How the product is written behind patches p, with the first and last nodes around it.
FORMS = {
    "TensorFlow": "p = PATCHES (x) [turn] t = TO_FIRST (p) [conv] y = Conv (t, w4, b)",
    "TensorFlow, NCHW": "[front] f = TO_LAST (x) p = PATCHES (f) [turn] t = TO_FIRST (p) "
    "[conv] y = Conv (t, w4)",
    "OpenVINO": "p = PATCHES (x) [conv] y = Conv <dilations = [3, 3]> (p, w4, b)",
    "matrix": "p = PATCHES (x) [conv] y = MatMul (p, w)",
    "matrix and bias": "p = PATCHES (x) [conv] m = MatMul (p, w) y = Add (b, m)",
    "columns": "p = PATCHES (x) t = Transpose <perm = [0, 1, 3, 2]> (p) [conv] y = MatMul (w2, t)",
}


def is_last(form: str) -> bool:
    """Whether the image has its channels behind."""
    return form not in ("OpenVINO", "TensorFlow, NCHW")


def build(
    form: str, window: Window, outputs: int = 4, *, dims: str = "", rest: str = ""
) -> onnx.ModelProto:
    """A model of one of the forms, or of the nodes `rest` behind the patches p."""
    axes = len(window.kernel)
    image: Sequence[int | str] = dims.split(",") if dims else window.image
    shape = [2 if not dims else "N", *image]
    shape.insert(len(shape) if is_last(form) else 1, window.channels)
    digits = ", ".join(map(str, range(1, axes + 1)))
    text = rest or FORMS[form]
    text = text.replace("PATCHES", window.node(form == "OpenVINO"))
    text = text.replace("TO_FIRST", f"Transpose <perm = [0, {axes + 1}, {digits}]>")
    text = text.replace("TO_LAST", f"Transpose <perm = [0, {digits[3:]}, {axes + 1}, 1]>")
    unknown = ", ".join(f"d{axis}" for axis in range(axes + 2))
    return model(
        text, given=f"float[{', '.join(map(str, shape))}] x",
        gives=f"float[{unknown}] y" + ", float z" * ("z =" in text),
        b=numbers(outputs), w=numbers(window.rows, outputs), w2=numbers(outputs, window.rows),
        w4=numbers(outputs, window.rows, *(1,) * axes), **WEIGHTS,
    )  # fmt: skip


def conv_of(made: onnx.ModelProto) -> tuple[onnx.NodeProto, dict[str, object]]:
    """The convolution, and its attributes."""
    (node,) = [n for n in structure.nodes(made) if n.op_type == "Conv"]
    return node, {a.name: helper.get_attribute_value(a) for a in node.attribute}


sizes = st.integers(1, 4)
pairs = st.tuples(sizes, sizes)


@settings(max_examples=40)
@given(
    form=st.sampled_from(sorted(FORMS)), kernel=pairs, strides=pairs, dynamic=st.booleans(),
    rates=st.tuples(st.integers(1, 3), st.integers(1, 3)), padding=st.sampled_from(("VALID", "SAME")),
    more=st.tuples(st.integers(0, 6), st.integers(0, 6)), channels=sizes, outputs=sizes,
)  # fmt: skip
def test_any_window(
    form, kernel, strides, dynamic, rates, padding, more, channels, outputs
) -> None:
    spans = [(k - 1) * r + 1 for k, r in zip(kernel, rates, strict=True)]
    image = tuple(m + (1 if padding == "SAME" else s) for m, s in zip(more, spans, strict=True))
    window = Window(kernel, strides, rates, padding, image, channels)
    made = build(form, window, outputs, dims="H,W" if dynamic else "")
    shape = [2, *image]
    shape.insert(3 if is_last(form) else 1, channels)
    converted = check(made, tuple(shape))
    unknown_border = dynamic and padding == "SAME" and max(rates) > 1 and max(strides) > 1
    assert (lowerings(made) == FUSED) != unknown_border, declined(made)
    if not unknown_border:
        _, node = conv_of(converted)
        assert (node["kernel_shape"], node["strides"]) == (list(kernel), list(strides))


FILLED, EMPTY = ((2, 9, 11, 3), (1, 3, 2, 3)), ((2, 2, 8, 3), (1, 7, 1, 3), (0, 2, 1, 3))


@pytest.mark.parametrize(
    ("form", "left"),
    [
        ("TensorFlow", ["Transpose", *KERNEL, "Conv"]),
        ("TensorFlow, NCHW", [*KERNEL, "Conv"]),
        ("OpenVINO", [*KERNEL, "Conv"]),
        ("matrix", ["Transpose", *KERNEL, "Conv", "Transpose"]),
        ("matrix and bias", ["Transpose", *KERNEL, "Conv", "Transpose"]),
        ("columns", ["Transpose", *KERNEL, "Conv", "Transpose"]),
    ],
)
def test_what_is_left(form: str, left: list[str]) -> None:
    made = build(form, Window())
    assert structure.ops(convert(made)) == left
    result = verify(made, convert(made))
    assert result.evidence == "proven", result.message
    dynamic = build(form, Window(), dims="H,W")
    if is_last(form):
        empty = EMPTY if form != "TensorFlow" else ()  # without a window a Conv fails in both
        more = ["Slice"] if empty else []
        assert structure.ops(check(dynamic, *FILLED, *empty)) == [*left[:4], *more, *left[4:]]
    assert {site.proven for site in verify(dynamic, convert(dynamic)).operators} == {"all sizes"}


def test_padding_that_depends_on_the_size() -> None:
    for strides, kernel in (((2, 3), (3, 2)), ((4, 1), (2, 3))):
        window = Window(kernel, strides, padding="SAME")
        shapes = [(1, 7, size, 3) for size in range(1, 8)]
        converted = check(build("TensorFlow", window, dims="H,W"), *shapes)
        assert "auto_pad" in conv_of(converted)[1]
        converted = check(build("matrix", window, dims="H,W"), *shapes, (2, 0, 4, 3))
        assert structure.ops(converted).count("Slice") == structure.ops(converted).count("Pad") == 1
    # With a stride of 3, one element is legal for a window of 6, and one more window is not enough.
    shapes = [(2, size, 4, 3) for size in range(1, 8)]
    check(build("matrix", Window((6, 1), (3, 1)), dims="H,W"), *shapes)


def test_the_node_keeps_its_name_its_bias_and_what_is_said_of_it() -> None:
    made = build("TensorFlow, NCHW", Window())
    node = made.graph.node[3]
    node.doc_string = "said of it"
    node.metadata_props.add(key="note", value="kept")
    node.output[0] = "c"
    made.graph.node.append(helper.make_node("Relu", ["c"], ["y"]))
    for name, shape in (("p", [2, 5, 7, 18]), ("t", [2, 18, 5, 7]), ("c", [9, 9, 9, 9])):
        made.graph.value_info.append(helper.make_tensor_value_info(name, 1, shape))
    found = plan(made)
    (site,) = found.operators
    assert (site.action, site.lowering) == ("fuse", "strided convolution")
    assert site.absorbed == ("front", "turn", "conv")
    assert (site.nodes_before, site.nodes_after) == (4, 3)
    assert found.touched["nodes_replaced"][1:] == ["front", "turn", "conv"]
    assert found.model is not None
    conv, _ = conv_of(found.model)
    assert (conv.name, conv.doc_string) == ("conv", "said of it")
    noted = {p.key: p.value for p in conv.metadata_props}
    assert noted == {"note": "kept", "onnx_spatial.origin": "Conv conv"}
    assert found.model.graph.initializer[0] == made.graph.initializer[0]
    assert structure.dims(found.model, "c") == [2, 4, 5, 7]
    assert {"p", "t"}.isdisjoint(v.name for v in found.model.graph.value_info)


def test_volumes_and_transposes_around_a_matrix() -> None:
    window = Window((2, 3, 2), (1, 2, 2), (1, 1, 1), "SAME", (3, 4, 5))
    made = build("TensorFlow, NCHW", window)
    assert lowerings(made) == FUSED
    check(made, (2, 3, 3, 4, 5))
    check(build("matrix", window, dims="D,H,W"), (2, 3, 4, 5, 3), (1, 1, 0, 3, 3))
    behind = "m = MatMul (p, w) y = Transpose <perm = [3, 1, 0, 2]> (m)"
    around = """t = Transpose <perm = [2, 1, 0, 3]> (p) m = MatMul (t, w)
        y = Transpose <perm = [2, 3, 1, 0]> (m)"""
    for rest, count in ((behind, 3), (around, 2)):  # two: of the image and of the weight
        made = build("matrix", Window(strides=(2, 2), padding="SAME"), rest=f"{BEHIND} {rest}")
        assert structure.counts(check(made, (2, 7, 8, 3)))["Transpose"] == count
        assert lowerings(made) == FUSED


BEHIND = "p = PATCHES (x)"
TURN = "t = TO_FIRST (p)"
DECLINES = {
    "it has group 2": f"{TURN} y = Conv <group = 2> (t, half)",
    "it has strides of its own": f"{TURN} y = Conv <strides = [2, 1]> (t, w4)",
    "it has pads of its own": f"{TURN} y = Conv <pads = [0, 0, 0, 1]> (t, w4)",
    "its kernel is 2x1, not 1x1": f"{TURN} y = Conv (t, wide)",
    "it sums up along another axis": "y = Conv (p, other)",
    "other nodes read its input too": f"{TURN} y = Conv (t, w4)  z = Relu (t)",
    "other nodes read its input": "y = MatMul (p, w)  z = Shape (p)",
    "its second input is no matrix": "y = MatMul (p, each)",
    "input is no matrix": "y = MatMul (p, line)",
    "along another axis than the channels": f"{TURN} y = MatMul (t, four)",
}


@pytest.mark.parametrize("reason", DECLINES)
def test_why_not(reason: str) -> None:
    height = 5 if "each" in DECLINES[reason] else 7
    window = Window(strides=(2, 2), padding="SAME", image=(height, 8))
    made = build("matrix", window, rest=f"{BEHIND} {DECLINES[reason]}")
    for value in made.graph.output:
        value.type.tensor_type.ClearField("shape")
    if "Shape" in DECLINES[reason]:
        made.graph.output[1].type.tensor_type.elem_type = 7
    assert reason in declined(made)
    check(made, (2, height, 8, 3))


def test_borders_that_no_convolution_has() -> None:
    inside = Window((1, 1, 1), (5, 1, 1), (1, 1, 1), "SAME", (10, 3, 3))
    assert "sampling starts inside the image" in declined(build("TensorFlow", inside))
    check(build("TensorFlow", inside), (2, 10, 3, 3, 3))
    may = Window((1, 3, 2), (3, 2, 2), (1, 1, 1), "SAME", (3, 3, 3))
    assert "sampling may start inside the image" in declined(build("matrix", may, dims="D,H,W"))
    assert "there are no patches" in declined(build("TensorFlow", Window(image=(2, 8))))
    made = build("matrix", Window(strides=(3, 1)), dims="H,W")
    (site,) = plan(made, checked=True).operators
    assert "its sizes are checked at run time" in site.declined[0]
    (site,) = plan(build("TensorFlow", Window()), fuse=False).operators
    assert site.lowering not in FUSED and site.declined == ()


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_types(dtype: type) -> None:
    made = build("matrix", Window(padding="SAME"), dims="H,W")
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    for info in (made.graph.input[0], made.graph.output[0]):
        info.type.tensor_type.elem_type = kind
    weight = numpy_helper.to_array(made.graph.initializer[0]).astype(dtype)
    made.graph.initializer[0].CopyFrom(numpy_helper.from_array(weight, "w"))
    if dtype == np.float64:
        assert "onnxruntime has no convolution of" in declined(made)
    else:
        assert lowerings(made) == FUSED and onnx_spatial.convert(made).verification


#: Patches in a branch of a function: x is the image, and the weight is given from outside.
INNER = f"p = {Window((1, 2), (1, 2)).node()} (x) [conv] r = MatMul (p, v)"


EMBED = """<domain: "own", opset_import: ["" : 17, "com.microsoft" : 1]> Embed"""
PLACES = {
    "a branch": (
        f"""y = If (b) < then_branch = yes () => (float[h, i, j, k] r) {{ {INNER} }},
            else_branch = no () => (float[l, m, n, o] e) {{ e = Neg (x) }} >""", "",
    ),
    "a function": ("y = own.Embed (x, v)", f"{EMBED} (x, v) => (r) {{ {INNER} }}"),
    "an attribute": (
        "y = own.Embed <m = float[6,2] {1,2,3,4,5,6,7,8,9,10,11,12}> (x)",
        f"{EMBED} <m> (x) => (r) {{ v = Constant <value: tensor = @m> () {INNER} }}",
    ),
    "a computed weight": (f"n = Neg (v) {INNER.replace('r =', 'y =').replace('v)', 'n)')}", ""),
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_in_other_places(place: str) -> None:
    body, functions = PLACES[place]
    given = "float[N, H, W, 3] x, bool b"
    made = model(body, given=given, functions=functions, v=numbers(6, 2))
    assert lowerings(made) == FUSED, declined(made)
    converted = check(made, (2, 7, 8, 3), b=np.array(True))
    assert not structure.counts(converted)["MatMul"]


def test_external_weights_stay_where_they_are(tmp_path: Path) -> None:
    made = build("TensorFlow", Window())
    onnx.save(made, tmp_path / "in.onnx", save_as_external_data=True, size_threshold=0)
    assert onnx_spatial.convert(tmp_path / "in.onnx", tmp_path / "out.onnx").verification
    written = onnx.load(tmp_path / "out.onnx", load_external_data=False)
    weight = next(t for t in written.graph.initializer if t.name == "w4")
    assert weight.data_location == onnx.TensorProto.EXTERNAL


@pytest.mark.usefixtures("prices")
def test_what_is_faster_is_taken() -> None:
    overlapping = Window((3, 3), padding="SAME", image=(64, 64), channels=64)
    for form in ("TensorFlow", "TensorFlow, NCHW", "OpenVINO", "matrix"):
        assert lowerings(build(form, overlapping, 64)) == FUSED
    apart = Window((16, 16), (16, 16), image=(224, 224))
    slower = "one strided convolution would not be faster"
    assert slower in declined(build("matrix", apart, 768))
    (site,) = plan(build("TensorFlow", apart, 768), max_rank=2).operators
    assert site.lowering in FUSED  # where nothing else fits
