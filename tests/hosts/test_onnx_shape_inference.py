"""Symbolic shapes by onnx-shape-inference, in the real package."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from building import one_node
from onnx import numpy_helper
from operators import grid

host = pytest.importorskip(
    "onnx_shape_inference", reason="needs onnx-shape-inference (pip install onnx-shape-inference)"
)
GRID = Path(__file__).parents[2] / "models" / "operators"
X = np.zeros((4, 4, 6, 3), np.float32)
BLOCK, AMOUNTS = np.array([2, 3]), np.array([[0, 0], [1, 2]])
IMAGE = ["N", "H", "W", 3]
WINDOW = {"ksizes": [1, 3, 3, 1], "strides": [1, 2, 2, 1], "rates": [1, 1, 1, 1]}


@pytest.fixture(autouse=True)
def registered() -> None:
    from onnx_spatial.hosts.onnx_shape_inference import register

    register(["my.domain"])
    register()


def inferred(model: onnx.ModelProto, policy: str = "refine") -> ir.Shape | None:
    """The shape of the output of "site", without what the file declares of it."""
    found = ir.from_proto(model)
    for value in found.graph.outputs:
        value.shape = None
    host.infer_symbolic_shapes(found, policy=policy)
    (node,) = [node for node in found.graph if node.name == "site"]
    return node.outputs[0].shape


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "expected"),
    [
        ("SpaceToBatchND", (X, BLOCK, AMOUNTS), {}, "[6*N,floor(H/2),floor(W/3) + 1,3]"),
        ("BatchToSpaceND", (X, BLOCK, AMOUNTS), {}, "[floor(N/6),2*H,3*W - 3,3]"),
        (
            "ExtractImagePatches",
            (X,),
            {**WINDOW, "padding": "SAME"},
            "[N,floor(H/2 + 1/2),floor(W/2 + 1/2),27]",
        ),
        (
            "ExtractImagePatches",
            (X,),
            {**WINDOW, "padding": "VALID"},
            "[N,floor(H/2 - 1/2),floor(W/2 - 1/2),27]",
        ),
    ],
)
def test_sizes_are_expressions_of_the_names_in_the_model(op_type, inputs, attributes, expected):
    for domain in ("ai.onnx.converters.tensorflow", "my.domain"):
        model = one_node(op_type, inputs, shape=IMAGE, domain=domain, **attributes)
        assert str(inferred(model)) == expected


def test_a_block_that_the_model_computes_gives_expressions():
    text = """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.converters.tensorflow" : 1]>
    g (float[N, H, W, C] x) => (float[a, b, c, d] y)
    <int64[1] two = {2}, int64[1] three = {3}, int64[2, 2] zeros = {0, 0, 0, 0}> {
        shape = Shape (x)
        channels = Gather <axis = 0> (shape, three)
        block = Concat <axis = 0> (two, channels)
        [site] y = ai.onnx.converters.tensorflow.SpaceToBatchND (x, block, zeros)
    }"""
    assert str(inferred(onnx.parser.parse_model(text))) == "[2*C*N,floor(H/2),floor(W/C),C]"


def test_parameters_of_the_run_leave_new_names():
    model = one_node("SpaceToBatchND", (X, BLOCK, AMOUNTS), shape=IMAGE, run_time=(1, 2))
    n, h, w, c = inferred(model)
    assert c == 3 and len({str(dim) for dim in (n, h, w)} - {"N", "H", "W"}) == 3


def test_a_broken_rule_is_an_error_of_the_package():
    model = one_node("SpaceToBatchND", (X, np.array([3, 3]), AMOUNTS))
    with pytest.raises(host.ShapeInferenceError, match="not divisible by its block"):
        inferred(model)
    assert inferred(model, "skip") is None
    model.graph.node[0].input[0] = ""
    with pytest.raises(host.ShapeInferenceError, match="the data input is missing"):
        inferred(model)
    assert inferred(model, "skip") is None


def recorded(cell: str, kind: str) -> list[tuple[int, ...]]:
    """The shapes of the recorded data, in the order of the model."""
    paths = (GRID / cell / "test_data_set_0").glob(f"{kind}_*.pb")
    ordered = sorted(paths, key=lambda path: int(path.stem.split("_")[1]))
    return [numpy_helper.to_array(onnx.load_tensor(path)).shape for path in ordered]


def test_every_spelling_and_domain_has_the_recorded_shape():
    checked = 0
    for cell in grid.CELLS:
        model = ir.load(GRID / cell.name / "model.onnx")
        sizes: dict[str, int] = {}
        for value, shape in zip(model.graph.inputs, recorded(cell.name, "input"), strict=False):
            named = zip(value.shape or (), shape, strict=False)
            sizes |= {dim.value: n for dim, n in named if isinstance(dim, ir.SymbolicDim)}
        for value in model.graph.outputs:
            value.shape = None
        host.infer_symbolic_shapes(model, warn_on_missing=False)
        for value, shape in zip(model.graph.outputs, recorded(cell.name, "output"), strict=True):
            for dim, size in zip(value.shape or (), shape, strict=value.shape is not None):
                if isinstance(dim, int):
                    assert dim == size, cell.name
                elif dim.free_symbols() <= sizes.keys():
                    assert dim.evaluate(sizes) == size, cell.name
                else:
                    continue
                checked += 1
    assert checked > 800


def test_operators_of_onnx_with_a_name_of_tf2onnx_stay_what_they_are():
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[N, 4, H, W] x) => (float[a, b, c, d] y) {
        [site] y = DepthToSpace <blocksize = 2> (x)
    }"""
    assert str(inferred(onnx.parser.parse_model(text))) == "[N,1,2*H,2*W]"
