"""Write models around SpaceToBatch and BatchToSpace as text, and compare them with the definitions."""

import numpy as np
import onnx
import reference
import running
import structure
from adapter import convert, plan
from building import TF
from onnx import helper, numpy_helper, parser

RNG = np.random.default_rng(6)
TO_FIRST, TO_LAST = "<perm = [0, 3, 1, 2]>", "<perm = [0, 2, 3, 1]>"

#: What models read under these names, if they read it.
TABLES: dict[str, object] = {
    "block": [2, 2], "pads": [[2, 3], [2, 2]], "crops": [[0, 1], [0, 0]], "none": [[0, 0], [0, 0]],
    "zero": [0], "one": [1], "two": [2], "three": [3], "minus1": [-1],
}  # fmt: skip
WEIGHTS: dict[str, tuple[int, ...]] = {
    "w": (4, 3, 3, 3), "v": (2, 4, 3, 3), "u": (3, 3, 3, 3), "w11": (4, 3, 1, 1), "bias": (4, 1, 1),
    "channels": (4,), "each": (6, 1, 3, 3), "slope": (4, 1, 1), "scalar": (), "factor": (1, 1, 1, 4),
    "matrix": (3, 4), "place": (3, 4), "turned": (3, 2, 3, 2),
}  # fmt: skip


def around(node: str) -> str:
    """A node that reads t and gives c, channels first, between SpaceToBatch and BatchToSpace."""
    return f"""
        s = SpaceToBatchND(x, block, pads)
        [before] t = Transpose {TO_FIRST} (s)
        {node}
        [behind] b = Transpose {TO_LAST} (c)
        [out] y = BatchToSpaceND(b, block, crops)
    """


CONV = "[conv] c = Conv <kernel_shape = [3, 3]> (t, w)"
ATROUS = around(CONV)


def model(
    body: str = ATROUS,
    *,
    given: str = "float[N,H,W,3] x",
    gives: str = "float[?,?,?,?] y",
    opset: int = 17,
    functions: str = "",
    **tables: object,
) -> onnx.ModelProto:
    """A graph; what it reads and no node or input gives is one of `tables`, TABLES or WEIGHTS."""
    head = (
        f'<ir_version: 9, opset_import: ["" : {opset}, "{TF}" : 1, "com.microsoft" : 1, "own" : 1]>'
    )
    made = parser.parse_model(f"{head} g ({given}) => ({gives}) {{ {body} }} {functions}")
    for node in structure.nodes(made):
        if node.op_type.endswith("ND"):
            node.domain = TF
    there = {v.name for v in made.graph.input} | {o for n in made.graph.node for o in n.output}
    read = {name for node in structure.nodes(made) for name in node.input} - there
    for name in sorted(read & (TABLES | WEIGHTS | tables).keys()):
        if name in WEIGHTS and name not in tables:
            array = RNG.normal(size=WEIGHTS[name]).astype(np.float32)
        else:
            array = np.asarray((TABLES | tables)[name])
        made.graph.initializer.append(numpy_helper.from_array(array, name))
    return made


def check(made: onnx.ModelProto, *shapes: tuple[int, ...], **feeds: object) -> onnx.ModelProto:
    """The converted model, which gives what the definitions say, at these shapes of x."""
    converted = convert(made)
    assert not structure.spatial(converted)
    for shape in shapes:
        fed = {"x": RNG.normal(size=shape).astype(np.float32)}
        fed |= {name: np.asarray(value) for name, value in feeds.items()}
        expected = reference.run(made, fed)
        for level in running.LEVELS:
            results = running.run(converted, fed, level)
            for value, result, wanted in zip(made.graph.output, results, expected, strict=True):
                off = running.difference(np.asarray(result), np.asarray(wanted))
                assert off is None, f"{value.name} of {shape}: {off}"
    return converted


def ops(made: onnx.ModelProto) -> str:
    """The operator types of the main graph in one line."""
    return " ".join(structure.ops(made))


def lowerings(made: onnx.ModelProto) -> list[str | None]:
    return [site.lowering for site in plan(made).operators]


def declined(made: onnx.ModelProto) -> str:
    return "; ".join(reason for site in plan(made).operators for reason in site.declined)


def attributes(made: onnx.ModelProto, name: str) -> dict[str, object]:
    """The attributes of the node of a name."""
    (node,) = [n for n in structure.nodes(made) if n.name == name]
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}
