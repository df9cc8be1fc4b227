"""What rewrites of SpaceToBatch -> Conv -> BatchToSpace elsewhere get wrong, one case each.

Whatever becomes of them, the numbers and shapes must be those of the definitions.
"""

from __future__ import annotations

import interpreter
import numpy as np
import onnx
import pytest
import running
from onnx import numpy_helper, parser

import onnx_spatial

HEAD = '<ir_version: 9, opset_import: ["" : 17, "com.microsoft" : 1]>\n'
CHANNELS = 2

REGION = """
    s = com.microsoft.SpaceToBatchND(x, block, pads)
    c = Transpose<perm = [0, 3, 1, 2]>(s)
    v = Conv<{conv}>(c, w{bias})
    r = Transpose<perm = [0, 2, 3, 1]>(v)
    y = com.microsoft.BatchToSpaceND(r, {back}, crops)
"""


def region(conv: str = "group = 1", back: str = "block", bias: str = "") -> str:
    return REGION.format(conv=conv, back=back, bias=bias)


def tables(
    pads: str = "2, 3, 2, 2", crops: str = "0, 1, 0, 0", block: str = "2, 2", back: str = "2, 2"
) -> str:
    return (
        f"int32[2] block = {{{block}}}, int32[2] back = {{{back}}}, "
        f"int32[2,2] pads = {{{pads}}}, int32[2,2] crops = {{{crops}}}"
    )


#: For each case the tables, the nodes, and the outputs beside y. x is [1, 9, 12, 2].
CASES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "plain": (tables(), region(), ()),
    # Stride on a blocked axis: every second cell, which is not every second or fourth pixel.
    "stride 2 on both axes": (tables(), region("strides = [2, 2]"), ()),
    "stride 2 on one axis": (tables(), region("strides = [2, 1]"), ()),
    "stride 2 where the block is 1": (
        tables(pads="2, 3, 1, 1", crops="0, 0, 0, 1", block="2, 1"),
        region("strides = [1, 2]"),
        (),
    ),
    # Dilations multiply.
    "own dilations": (tables(pads="4, 5, 4, 4"), region("dilations = [2, 2]"), ()),
    "own dilation on one axis": (tables(pads="4, 5, 2, 2"), region("dilations = [2, 1]"), ()),
    # The Conv pads each block: D times as much of the image.
    "own pads": (tables("0, 1, 0, 0"), region("pads = [1, 1, 1, 1]", bias=", b"), ()),
    "own pads on one side": (tables("0, 1, 0, 0"), region("pads = [2, 0, 0, 1]"), ()),
    "SAME_UPPER": (tables("0, 1, 0, 0"), region('auto_pad = "SAME_UPPER"'), ()),
    "SAME_LOWER": (tables("1, 0, 1, 1"), region('auto_pad = "SAME_LOWER"'), ()),
    # Others want what would be gone.
    "SpaceToBatch is read twice": (tables(), region() + "    also = Relu(s)\n", ("also",)),
    "SpaceToBatch is an output": (tables(), region(), ("s",)),
    "its Transpose is read twice": (tables(), region() + "    also = Relu(c)\n", ("also",)),
    "Conv is read twice": (tables(), region() + "    also = Relu(v)\n", ("also",)),
    "Conv is an output": (tables(), region(), ("v",)),
    "the shape of SpaceToBatch is read": (tables(), region() + "    h = Shape(s)\n", ("h",)),
    "two Convs on one SpaceToBatch": (
        tables(),
        region()
        + """
    v2 = Conv<pads = [0, 1, 0, 1], dilations = [1, 2]>(c, w, b)
    r2 = Transpose<perm = [0, 2, 3, 1]>(v2)
    z = com.microsoft.BatchToSpaceND(r2, block, crops)
""",
        ("z",),
    ),
    # Blocks that only share their product.
    "unequal blocks": (
        tables(pads="2, 3, 2, 2", crops="0, 1, 0, 0", back="4, 1"),
        region(back="back"),
        (),
    ),
    "blocks that have changed places": (
        tables(pads="2, 3, 3, 3", block="2, 3", back="3, 2"),
        region(back="back"),
        (),
    ),
    "a smaller block behind": (tables(back="2, 1"), region(back="back"), ()),
    "equal blocks of axes that have changed places": (
        tables(),
        region().replace(
            "r = Transpose<perm = [0, 2, 3, 1]>", "r = Transpose<perm = [0, 3, 2, 1]>"
        ),
        (),
    ),
    # Pads and crops that are neither SAME nor VALID.
    "crops exceed pads": (tables("0, 1, 0, 0", "2, 3, 1, 4"), region(), ()),
    "crops exceed the image": (tables("8, 9, 0, 2", "9, 8, 2, 5"), region(), ()),
    "crops leave nothing": (tables("0, 1, 0, 0", "4, 2, 1, 4"), region(), ()),
    "pads without crops": (tables("0, 1, 0, 0", "0, 0, 0, 0"), region(), ()),
    "pads that are uneven": (tables("5, 0, 1, 3", "3, 0, 0, 2"), region(), ()),
    "a whole block too much": (tables("2, 5, 2, 2", "0, 1, 0, 0"), region(), ()),
    # Zeros between two Convs are not what a bias or a sigmoid makes of zeros.
    "a bias in front of a padded Conv": (
        tables("0, 1, 0, 0"),
        """
    s = com.microsoft.SpaceToBatchND(x, block, pads)
    o = Add(s, b)
    c = Transpose<perm = [0, 3, 1, 2]>(o)
    v = Conv<pads = [1, 1, 1, 1]>(c, w)
    r = Transpose<perm = [0, 2, 3, 1]>(v)
    y = com.microsoft.BatchToSpaceND(r, block, crops)
""",
        (),
    ),
    "a sigmoid between two padded Convs": (
        tables("0, 1, 0, 0"),
        """
    s = com.microsoft.SpaceToBatchND(x, block, pads)
    c = Transpose<perm = [0, 3, 1, 2]>(s)
    v = Conv<pads = [1, 1, 1, 1]>(c, w)
    a = Sigmoid(v)
    v2 = Conv<pads = [1, 1, 1, 1]>(a, w, b)
    r = Transpose<perm = [0, 2, 3, 1]>(v2)
    y = com.microsoft.BatchToSpaceND(r, block, crops)
""",
        (),
    ),
    # Looking across cells is not looking across pixels.
    "MaxPool among the blocks": (
        tables(),
        region()
        .replace("(v)", "(m)")
        .replace("    r =", "    m = MaxPool<kernel_shape = [2, 2]>(v)\n    r ="),
        (),
    ),
}


def build(name: str, *, dynamic: bool) -> onnx.ModelProto:
    held, body, others = CASES[name]
    dims = "N, H, W, 2" if dynamic else "1, 9, 12, 2"
    outputs = ", ".join(
        f"{'int64' if output == 'h' else 'float'}[] {output}" for output in ("y", *others)
    )
    model = parser.parse_model(f"{HEAD}g (float[{dims}] x) => ({outputs}) <{held}> {{{body}}}")
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    numbers = np.random.default_rng(0)
    weights = numbers.uniform(-1, 1, (CHANNELS, CHANNELS, 3, 3)).astype(np.float32)
    bias = numbers.uniform(1, 2, CHANNELS).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    model.graph.initializer.append(numpy_helper.from_array(bias, "b"))
    return model


@pytest.mark.parametrize("fuse", [True, False], ids=["fused", "not fused"])
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", CASES)
def test_what_peers_get_wrong(name, dynamic, fuse):
    model = build(name, dynamic=dynamic)
    x = np.random.default_rng(1).uniform(-2, 2, (1, 9, 12, CHANNELS)).astype(np.float32)
    known = interpreter.run(model, {"x": x})
    converted = onnx_spatial.convert(model, verify=False, fuse=fuse).model
    for level in running.LEVELS:
        results = running.run(converted, {"x": x}, level)
        for output, result in zip(model.graph.output, results, strict=True):
            off = interpreter.difference(result, known[output.name])
            assert off is None, f"{output.name}: {off}"
