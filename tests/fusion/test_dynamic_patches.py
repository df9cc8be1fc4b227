"""Patches of images whose sizes only the run knows, and a product behind them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import reference
import running
import structure
from adapter import convert, plan, verify
from onnx import numpy_helper, parser

from onnx_spatial.fusion import strided_conv

PATCHES = "p = com.microsoft.ExtractImagePatches <ksizes = [1, {k}, 1], strides = [1, {s}, 1], "
PATCHES += 'rates = [1, {r}, 1], padding = "{padding}"> (x)'

TURN = "t = Transpose <perm = [0, 3, 1, 2]> (p)  "
CONV = TURN + "y = Conv (t, w4, b)"

CONSTANTS = {
    "w": np.float32,
    "rows": [-1, 18],
    "first": [0],
}


@pytest.fixture(autouse=True)
def worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever patches cost: what can be a convolution becomes one."""
    monkeypatch.setattr(strided_conv, "_saved", lambda *_: 1.0)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(list(shape)).standard_normal(shape).astype(np.float32)


def model(
    rest: str,
    *,
    k: str = "3, 2",
    s: str = "1, 1",
    r: str = "1, 1",
    padding: str = "VALID",
    dims: str = "N, H, W, 3",
    opset: int = 17,
) -> onnx.ModelProto:
    patches = PATCHES.format(k=k, s=s, r=r, padding=padding)
    made = parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}, "com.microsoft" : 1]>\n'
        f"g (float[{dims}] x) => (float y) {{ {patches if 'Extract' not in rest else ''} {rest} }}"
    )
    made.graph.output[0].type.tensor_type.ClearField("shape")
    arrays = {name: np.array(v) for name, v in CONSTANTS.items() if name != "w"}
    arrays |= {
        "w": numbers(18, 5),
        "b": numbers(5),
        "left": numbers(5, 18),
        "w4": numbers(5, 18, 1, 1),
    }
    read = {name for node in made.graph.node for name in node.input}
    for name in sorted(read & arrays.keys()):
        made.graph.initializer.append(numpy_helper.from_array(arrays[name], name))
    return made


def agree(made: onnx.ModelProto, *shapes: tuple[int, ...]) -> onnx.ModelProto:
    """Convert; the result gives what the definitions say at each of these sizes."""
    (site,) = plan(made).operators
    assert site.lowering == "strided convolution", site.declined
    converted = convert(made)
    for shape in shapes:
        fed = {"x": numbers(*shape)}
        want = reference.run(made, fed)
        for level in running.LEVELS:
            for one, other in zip(running.run(converted, fed, level), want, strict=True):
                assert one.shape == other.shape, shape
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    return converted


SIZES = ((2, 9, 11, 3), (1, 3, 2, 3), (0, 5, 6, 3), (3, 4, 3, 3))
#: Sizes at which VALID has no window along one axis or both.
EMPTY = ((2, 2, 8, 3), (1, 7, 1, 3), (2, 2, 1, 3))
KERNEL = ["Reshape", "Transpose"]


@pytest.mark.parametrize(
    ("rest", "ops", "shapes"),
    [
        ("y = MatMul (p, w)", ["Conv", "Slice", "Transpose"], SIZES + EMPTY),
        (
            "q = MatMul (p, w)  y = Add (q, b)",
            ["Conv", "Slice", "Transpose"],
            SIZES + EMPTY,
        ),
        (
            "t = Transpose <perm = [0, 1, 3, 2]> (p)  y = MatMul (left, t)",
            ["Conv", "Slice", "Transpose"],
            SIZES + EMPTY,
        ),
        (CONV, ["Conv"], SIZES[:2]),
        (CONV + "\n[z] z = Relu (y)", ["Conv", "Relu"], SIZES[:2]),
    ],
)
def test_one_convolution(rest: str, ops: list[str], shapes: tuple[tuple[int, ...], ...]) -> None:
    made = model(rest)
    if "[z]" in rest:
        made.graph.output[0].name = "z"
    converted = agree(made, *shapes)
    assert structure.ops(converted) == ["Transpose", *KERNEL, *ops]


@pytest.mark.parametrize("size", range(8))
@pytest.mark.parametrize(
    ("window", "ops"),
    [
        ({"s": "2, 3"}, ["Transpose", *KERNEL, "Conv"]),
        ({"s": "2, 2", "k": "2, 3"}, ["Transpose", *KERNEL, "Conv"]),
        ({"s": "4, 1"}, ["Transpose", *KERNEL, "Conv"]),
    ],
)
def test_padding_that_depends_on_the_size(
    window: dict[str, str], ops: list[str] | None, size: int
) -> None:
    made = model(CONV, padding="SAME", **window)
    if size:
        converted = agree(made, (2, size, 6, 3), (1, 7, size, 3))
        assert ops is None or structure.ops(converted) == ops
        (conv,) = [n for n in converted.graph.node if n.op_type == "Conv"]
        assert ("auto_pad" in {a.name for a in conv.attribute}) == (ops is not None)
    made = model("y = MatMul (p, w)", padding="SAME", **window)
    converted = agree(made, (2, size, 6, 3), (1, 7, size, 3), (1, size, size, 3))
    assert structure.ops(converted).count("Slice") == structure.ops(converted).count("Pad") == 1


@pytest.mark.parametrize("auto_pad", ["same_upper", "same_lower"])
def test_images_of_channels_first(auto_pad: str) -> None:
    made = model(
        f"""p = com.microsoft.ExtractImagePatches <sizes = [4, 3], strides = [2, 3],
            rates = [1, 1], auto_pad = "{auto_pad}"> (x)
            c = Constant <value = float[2, 12, 1, 1] {{{", ".join(map(str, range(24)))}}}> ()
            y = Conv (p, c)""",
        dims="N, 1, H, W",
    )
    agree(made, (2, 1, 7, 8), (1, 1, 5, 9), (1, 1, 1, 1))


def test_volumes() -> None:
    rest = """p = com.microsoft.ExtractVolumePatches <ksizes = [1, 1, 3, 2, 1],
        strides = [1, 1, 2, 2, 1], padding = "SAME"> (x)  y = MatMul (p, w)"""
    converted = agree(model(rest, dims="N, D, H, W, 3"), (2, 3, 4, 5, 3), (1, 1, 0, 3, 3))
    assert structure.ops(converted)[:2] == ["Transpose", "Pad"]


def test_why_not() -> None:
    made = model("y = MatMul (p, w)  z = Shape (p)")
    made.graph.output.add(name="z").type.tensor_type.elem_type = 7
    (site,) = plan(made).operators
    assert "other nodes read its input too" in site.declined[0]
    made = model("y = MatMul (p, w)", s="3, 1")
    (site,) = plan(made, checked=True).operators
    assert "its sizes are checked at run time" in site.declined[0]


def test_proven_for_all_sizes() -> None:
    for rest, padding in ((CONV, "VALID"), (CONV, "SAME"), ("y = MatMul (p, w)", "SAME")):
        made = model(rest, s="2, 2", padding=padding)
        result = verify(made, convert(made))
        assert [site.proven for site in result.operators] == ["all sizes"], (rest, padding)


def test_a_wrong_border_is_found() -> None:
    made = model("y = MatMul (p, w)", padding="SAME")
    converted = convert(made)
    (conv,) = [n for n in converted.graph.node if n.op_type == "Conv"]
    (pads,) = [a for a in conv.attribute if a.name == "pads"]
    assert list(pads.ints) == [1, 0, 2, 2]
    pads.ints[:] = [0, 0, 3, 2]
    assert verify(made, converted).status == "failed"


def test_older_opsets() -> None:
    made = model("y = MatMul (p, w)", s="2, 1", padding="SAME", opset=9)
    converted = agree(made, (2, 5, 6, 3), (1, 4, 3, 3))
    assert "Pad" in structure.ops(converted)
    made = model("y = MatMul (p, w)", s="2, 1", r="2, 1", padding="SAME", opset=10)
    (site,) = plan(made).operators
    assert "dilated windows depends on sizes that are not known" in site.declined[0]


@pytest.mark.parametrize("rates", ["1, 1", "2, 1"])
def test_half_precision(rates: str) -> None:
    made = model("y = MatMul (p, w)", s="2, 1", r=rates, padding="SAME")
    made.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    made.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    half = numbers(18, 5).astype(np.float16)
    made.graph.initializer[0].CopyFrom(numpy_helper.from_array(half, "w"))
    for shape in ((2, 5, 6, 3), (1, 0, 6, 3)):
        x = numbers(*shape).astype(np.float16)
        (want,) = reference.run(made, {"x": x})
        (got,) = running.run(convert(made), {"x": x})
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-2, atol=1e-2)


def test_in_a_function() -> None:
    weights = ", ".join(map(str, range(12)))
    made = parser.parse_model(
        f"""<ir_version: 9, opset_import: ["" : 17, "com.microsoft" : 1, "local" : 1]>
        g (float[N, H, W, 3] x) => (float[a, b, c, d] y) {{ y = local.Embed (x) }}
        <domain: "local", opset_import: ["" : 17, "com.microsoft" : 1]> Embed (x) => (y) {{
            w = Constant <value = float[6, 2] {{{weights}}}> ()
            {PATCHES.format(k="1, 2", s="1, 2", r="1, 1", padding="SAME")}
            y = MatMul (p, w) }}"""
    )
    converted = agree(made, (2, 5, 6, 3), (1, 4, 3, 3))
    ops = [node.op_type for node in converted.functions[0].node]
    assert [op for op in ops if op in ("Conv", "MatMul")] == ["Conv"]


def test_windows_much_larger_than_the_image() -> None:
    """With a stride of 3, one element is legal for a window of 6, and one more window is not enough."""
    agree(model("y = MatMul (p, w)", k="6, 1", s="3, 1"), *((2, h, 4, 3) for h in range(1, 8)))


@pytest.mark.parametrize(
    ("added", "fits"),
    [([[1.0]], True), ([[[7.0]]], True), ([2.0], True), ([[1.0], [2], [3], [4], [5]], False)],
)
def test_what_is_added_to_each_channel(added: list[float], fits: bool) -> None:
    made = model("q = MatMul (p, w)  y = Add (c, q)", dims="2, 5, 6, 3")
    array = np.array(added, np.float32)
    made.graph.initializer.append(numpy_helper.from_array(array, "c"))
    converted = agree(made, (2, 5, 6, 3))
    assert ("Add" in structure.ops(converted)) == (not fits)


def test_a_matrix_for_each_row() -> None:
    made = model("y = MatMul (p, each)", dims="2, 5, 6, 3")
    made.graph.initializer.append(numpy_helper.from_array(numbers(3, 18, 5), "each"))
    (site,) = plan(made).operators
    assert site.declined[0].endswith("its second input is no matrix")


def test_what_is_added_may_be_computed_late() -> None:
    converted = agree(model("q = MatMul (p, w)  c = Neg (b)  y = Add (q, c)"), *SIZES)
    assert structure.ops(converted)[-2:] == ["Neg", "Add"]


def test_sampling_that_may_start_inside_a_volume() -> None:
    rest = """p = com.microsoft.ExtractVolumePatches <ksizes = [1, 1, 3, 2, 1],
        strides = [1, 3, 2, 2, 1], padding = "SAME"> (x)  y = MatMul (p, w)"""
    (site,) = plan(model(rest, dims="N, D, H, W, 3")).operators
    assert "sampling may start inside the image" in site.declined[0]
