"""A Reshape that only moves axes of size 1 is a Transpose: of one channel, of blocks like the image."""

from __future__ import annotations

import interpreter
import numpy as np
import onnx
import pytest
import running
import structure
from adapter import convert, plan, verify
from onnx import numpy_helper, parser

HEAD = '<ir_version: 9, opset_import: ["" : 17, "tf" : 1]>\n'
RNG = np.random.default_rng(14)

#: x -> blocks -> {front} -> Conv -> {back} -> no blocks
REGION = """
    s = SpaceToBatchND(x, block, pads)
    {front}
    [conv] c = Conv <kernel_shape = [3, 3]> (t, w)
    {back}
    y = BatchToSpaceND(b, block, crops)
"""
TO_FIRST, TO_LAST = [0, 3, 1, 2], [0, 2, 3, 1]
SAME = {"block": [2, 2], "pads": [[2, 3], [2, 2]], "crops": [[0, 1], [0, 0]]}


def model(
    front: str,
    back: str,
    *,
    given: str = "float[N,H,W,1] x",
    kernel: tuple[int, ...] = (1, 1, 3, 3),
    body: str = REGION,
    **tables: object,
) -> onnx.ModelProto:
    body = body.format(front=front, back=back)
    made = parser.parse_model(f"{HEAD} g ({given}) => (float[?,?,?,?] y) {{ {body} }}")
    for node in made.graph.node:
        if node.op_type.endswith("ND"):
            node.domain = "tf"
    weights = RNG.normal(size=kernel).astype(np.float32)
    made.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    for name, table in (SAME | tables).items():
        made.graph.initializer.append(numpy_helper.from_array(np.array(table, np.int64), name))
    return made


def check(made: onnx.ModelProto, *shapes: tuple[int, ...]) -> onnx.ModelProto:
    """The converted model, which gives what the original means."""
    converted = convert(made, domains=["tf"])
    for shape in shapes:
        fed = {"x": RNG.normal(size=shape).astype(np.float32)}
        wanted = interpreter.run(made, fed)["y"]
        for level in running.LEVELS:
            (result,) = running.run_session(running.session(converted, level), fed)
            assert interpreter.difference(result, wanted) is None
    return converted


def declined(made: onnx.ModelProto) -> str:
    return "; ".join(d for site in plan(made, domains=["tf"]).operators for d in site.declined)


def dilations(converted: onnx.ModelProto) -> list[int]:
    (conv,) = [node for node in structure.nodes(converted) if node.op_type == "Conv"]
    return [i for a in conv.attribute if a.name == "dilations" for i in a.ints]


COMPUTED = (
    "n = Shape(s) m = Gather(n, first) t = Reshape(s, m)",
    "k = Shape(c) l = Gather(k, last) b = Reshape(c, l)",
)
#: As tf2onnx writes what its own optimizer has been at.
WIDENED = (
    "u = Unsqueeze(s, zero) t = Reshape(u, first)",
    "v = Reshape(c, last) b = Squeeze(v, zero)",
)


@pytest.mark.parametrize(
    ("front", "back", "tables"),
    [
        (*COMPUTED, {"first": TO_FIRST, "last": TO_LAST}),
        (*WIDENED, {"zero": [0], "first": [-1, 1, 0, 0], "last": [1, -1, 0, 0, 1]}),
        (
            "q = Squeeze(s, three) t = Unsqueeze(q, one)",
            "b = Transpose <perm = [0, 2, 3, 1]> (c)",
            {"three": [3], "one": [1]},
        ),
    ],
)
def test_one_channel_of_unknown_size(front: str, back: str, tables: dict[str, object]) -> None:
    converted = check(model(front, back, **tables), (1, 5, 6, 1), (2, 9, 4, 1))
    assert structure.counts(converted)["Conv"] == 1
    assert not {"Reshape", "Shape"} & set(structure.ops(converted))
    assert dilations(converted) == [2, 2]


@pytest.mark.parametrize("given", ["1,1,5,6", "N,1,H,W"])
def test_a_reshape_in_front_of_the_blocks(given: str) -> None:
    """Its target is computed, but has as many elements as the image has axes."""
    front = "n = Shape(z) m = Gather(n, last) x = Reshape(z, m)"
    made = model(
        "t = Transpose <perm = [0, 3, 1, 2]> (s)",
        "b = Transpose <perm = [0, 2, 3, 1]> (c)",
        given=f"float[{given}] z",
        body=front + REGION,
        last=TO_LAST,
    )
    converted = convert(made, domains=["tf"])
    assert dilations(converted) == [2, 2]
    fed = {"z": RNG.normal(size=(1, 1, 5, 6)).astype(np.float32)}
    wanted = interpreter.run(made, fed)["y"]
    (result,) = running.run_session(running.session(converted, running.LEVELS[1]), fed)
    assert interpreter.difference(result, wanted) is None


@pytest.mark.parametrize("channels", [1, 4])
@pytest.mark.parametrize("allow_zero", ["", "<allowzero = 1>"])
@pytest.mark.parametrize("last", [[4, 3, 3, -1], [-1, 3, 3, 1], [4, 3, 3, 1]])
def test_targets_of_known_sizes(last: list[int], allow_zero: str, channels: int) -> None:
    front = f"t = Reshape {allow_zero} (s, first)"
    if channels > 1:
        front = "t = Transpose <perm = [0, 3, 1, 2]> (s)"
    made = model(
        front,
        f"b = Reshape {allow_zero} (c, last)",
        given=f"float[1,5,6,{channels}] x",
        kernel=(1, channels, 3, 3),
        first=[4, 1, 5, 5],
        last=last,
        pads=[[2, 3], [2, 2]],
    )
    assert dilations(check(made, (1, 5, 6, channels))) == [2, 2]


def test_a_shape_that_is_computed_in_front_of_the_blocks() -> None:
    front = """
        n = Shape(x)
        hw = Slice(n, one, three)
        padded = Add(hw, total)
        cells = Div(padded, block)
        m = Concat <axis = 0> (minus, one, cells)
        t = Reshape(s, m)
    """
    made = model(
        front,
        "b = Transpose <perm = [0, 2, 3, 1]> (c)",
        pads=[[2, 2], [2, 2]],
        crops=[[0, 0], [0, 0]],
        one=[1],
        three=[3],
        total=[4, 4],
        minus=[-1],
    )
    assert dilations(check(made, (1, 4, 6, 1), (2, 8, 4, 1))) == [2, 2]


def test_blocks_as_large_as_the_image() -> None:
    """Nothing but batch and channels is left."""
    channels = 2
    made = model(
        "t = Reshape(s, first)",
        "b = Reshape(c, last)",
        given=f"float[N,3,4,{channels}] x",
        kernel=(2, channels, 3, 3),
        body=REGION.replace("<kernel_shape", "<pads = [1, 1, 1, 1], kernel_shape"),
        block=[3, 4],
        pads=[[0, 0], [0, 0]],
        crops=[[0, 0], [0, 1]],
        first=[-1, channels, 1, 1],
        last=[-1, 1, 1, 2],
    )
    converted = check(made, (1, 3, 4, channels), (2, 3, 4, channels))
    assert dilations(converted) == [3, 4]
    assert structure.ops(converted).count("Transpose") == 2


@pytest.mark.parametrize(
    ("given", "target", "kernel", "shape"),
    [
        ("N,H,W,1", "Gather(n, order)", 1, (1, 4, 6, 1)),  # height and width change places
        ("N,4,6,2", "Gather(n, first)", 2, (1, 4, 6, 2)),
        ("1,4,6,1", "Identity(static)", 1, (1, 4, 6, 1)),
        ("1,8,6,1", "Identity(joined)", 1, (1, 8, 6, 1)),
    ],
)
def test_a_reshape_that_is_no_transpose(
    given: str, target: str, kernel: int, shape: tuple[int, ...]
) -> None:
    made = model(
        f"n = Shape(s) m = {target} t = Reshape(s, m)",
        "b = Transpose <perm = [0, 2, 3, 1]> (c)",
        given=f"float[{given}] x",
        kernel=(1, kernel, 3, 3),
        pads=[[2, 2], [2, 2]],
        crops=[[0, 0], [0, 0]],
        first=TO_FIRST,
        order=[0, 3, 2, 1],
        static=[4, 1, 5, 4],
        joined=[4, 1, 3, 10],
    )
    fed = {"x": RNG.normal(size=shape).astype(np.float32)}
    results = []
    for fuse in (True, False):
        converted = convert(made, domains=["tf"], fuse=fuse)
        assert dilations(converted) in ([], [1, 1])
        results += running.run_session(running.session(converted, running.LEVELS[0]), fed)
    np.testing.assert_array_equal(*results)
    assert "Reshape splits or joins axes" in declined(made)


def test_it_is_verified_and_a_wrong_one_is_not() -> None:
    made = model(*COMPUTED, first=TO_FIRST, last=TO_LAST)
    converted = convert(made, domains=["tf"])
    assert verify(made, converted, domains=["tf"])
    for node in structure.nodes(converted):
        for attribute in node.attribute:
            if attribute.name == "perm":
                attribute.ints[:] = [0, 3, 2, 1]
    assert not verify(made, converted, domains=["tf"])
