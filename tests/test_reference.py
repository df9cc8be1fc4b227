"""Original models in onnx's own tools: its reference evaluator, its checker and its shape inference."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import alone
import numpy as np
import onnx
import pytest
import reference
import running
from building import OPENVINO, TF, one_node
from definitions import space_to_batch
from onnx import checker, numpy_helper, parser, shape_inference
from onnx.reference import ReferenceEvaluator
from operators import grid

from onnx_spatial import OperatorError, convert, schemas
from onnx_spatial.operators.spellings import LEFTOVER_OP_TYPES
from onnx_spatial.reference import OPS, operators

GRID = Path(__file__).parents[1] / "models" / "operators"
X = np.arange(2 * 4 * 6 * 3, dtype=np.float32).reshape(2, 4, 6, 3)
#: Older evaluators give the body of a Scan no values of outer graphs.
LACKING = () if onnx.__version__ >= "1.23" else ("subgraph_scan",)
BLOCK, NONE = np.array([2, 2]), np.zeros((2, 2), int)


def tensors(folder: Path, kind: str) -> list[np.ndarray]:
    paths = sorted(folder.glob(f"{kind}_*.pb"), key=lambda path: int(path.stem.split("_")[1]))
    return [numpy_helper.to_array(onnx.load_tensor(path)) for path in paths]


@pytest.mark.parametrize("row", grid.ROWS, ids=lambda row: row.name)
def test_every_spelling_and_domain_gives_the_recorded_outputs(row):
    cells = [cell for cell in grid.CELLS if cell.row == row and cell.form not in LACKING]
    assert len(cells) > 5
    for cell in cells:
        model = onnx.load(GRID / cell.name / "model.onnx")
        folder = GRID / cell.name / "test_data_set_0"
        names = [value.name for value in model.graph.input]
        feeds = dict(zip(names, tensors(folder, "input"), strict=False))
        outputs = reference.evaluate(model, feeds, OPS)
        for output, recorded in zip(outputs, tensors(folder, "output"), strict=True):
            assert running.same_bits(np.asarray(output), recorded), cell.name


def test_operators_of_the_evaluator_stay_what_they_are():
    """SpaceToDepth and DepthToSpace with one input are those of ONNX."""
    text = """<ir_version: 8, opset_import: ["" : 13]> g (float[1, 4, 2, 2] x) => (float[a, b, c, d] z) {
        y = DepthToSpace <blocksize = 2> (x)
        z = SpaceToDepth <blocksize = 2> (y)
    }"""
    x = np.arange(16, dtype=np.float32).reshape(1, 4, 2, 2)
    (z,) = ReferenceEvaluator(parser.parse_model(text), new_ops=OPS).run(None, {"x": x})
    (plain,) = ReferenceEvaluator(parser.parse_model(text)).run(None, {"x": x})
    assert running.same_bits(z, plain)


def test_a_broken_rule_is_an_operator_error():
    model = one_node("SpaceToBatchND", (X, np.array([2, 5]), NONE), run_time=(1,))
    evaluator = ReferenceEvaluator(model, new_ops=OPS)
    with pytest.raises(OperatorError, match="5"):
        evaluator.run(None, {"x": X, "p1": np.array([2, 5])})


def test_operators_of_another_domain_are_asked_for():
    model = one_node("SpaceToBatchND", (X, BLOCK, NONE), domain="my.domain")
    evaluator = ReferenceEvaluator(model, new_ops=[*OPS, *operators("my.domain")])
    assert running.same_bits(evaluator.run(None, {"x": X})[0], space_to_batch(X, BLOCK, NONE))


# The schemas


@pytest.fixture
def registered() -> Iterator[None]:
    schemas.register()
    yield
    schemas.deregister()


def dims(model: onnx.ModelProto, name: str) -> list[int | str]:
    """The inferred shape of a value; "?" for a dim that inference had to name itself."""
    full = shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    known = {value.name: value for value in (*full.graph.value_info, *full.graph.output)}
    return [
        d.dim_value if d.HasField("dim_value") else d.dim_param.partition("unk__")[0] or "?"
        for d in known[name].type.tensor_type.shape.dim
    ]


def is_importable(model: onnx.ModelProto) -> bool:
    """Whether all domains are imported, without which no checker takes a model."""
    parts = [(model.graph, model.opset_import), *((f, f.opset_import) for f in model.functions)]
    return all(
        {node.domain for node in _nodes(part)} <= {o.domain for o in imports}
        for part, imports in parts
    )


def _nodes(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _nodes(inner)


@pytest.mark.usefixtures("registered")
def test_original_models_pass_the_checker_and_strict_shape_inference():
    checked = 0
    for cell in grid.CELLS:
        model = onnx.load(GRID / cell.name / "model.onnx")
        known = [n for f in (model.graph, *model.functions) for n in _nodes(f)]
        leftover = any(n.op_type in LEFTOVER_OP_TYPES and len(n.input) == 3 for n in known)
        listed = any(a.name == "stride" and a.ints for n in known for a in n.attribute)
        if leftover or listed or not is_importable(model):
            continue
        checker.check_model(model, full_check=True)
        shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
        checked += 1
    assert checked > 150


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (one_node("SpaceToBatchND", (X, BLOCK, NONE)), [8, 2, 3, 3]),
        (one_node("SpaceToBatchND", (X, BLOCK, NONE), domain=""), [8, 2, 3, 3]),
        (one_node("SpaceToBatch", (X, NONE), block_size=2, domain="com.microsoft"), [8, 2, 3, 3]),
        (
            one_node(
                "SpaceToBatch",
                (X, np.array([1, 2, 2, 1]), np.zeros(4, int), np.array([0, 2, 0, 0])),
                domain=OPENVINO,
            ),
            [8, 3, 3, 3],
        ),
        (one_node("SpaceToBatchND", (X, NONE), block_shape=[2, 2]), [8, 2, 3, 3]),
        (
            one_node("SpaceToBatchND", (X, BLOCK, NONE), shape=["n", "h", 6, "c"]),
            ["?", "?", 3, "c"],
        ),
        (one_node("SpaceToBatchND", (X, BLOCK, NONE), run_time=(2,)), [8, "?", "?", 3]),
        (one_node("ReorgYolo", (X[..., :2],), domain=OPENVINO, stride=2), [2, 16, 3, 1]),
    ],
)
def test_shapes_of_each_spelling_are_inferred(model, expected):
    for dim in model.graph.output[0].type.tensor_type.shape.dim:
        dim.Clear()
    checker.check_model(model, full_check=True)
    assert dims(model, "y") == expected


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda node: node.input.append("p2"), "input size"),
        (lambda node: node.attribute.add(name="blocks", type=2), "Unrecognized attribute: blocks"),
        (lambda node: node.attribute.add(name="block_shape", type=2), "Mismatched attribute type"),
    ],
)
def test_nodes_that_are_no_spelling_are_found_by_the_checker(change, message):
    model = one_node("SpaceToBatchND", (X, BLOCK, NONE))
    change(model.graph.node[0])
    with pytest.raises(checker.ValidationError, match=message):
        checker.check_model(model)


def test_schemas_can_be_registered_for_other_domains_and_removed():
    assert not onnx.defs.has("SpaceToBatchND", "my.domain")
    schemas.register(domains=["my.domain"])
    schemas.register(domains=["my.domain"])
    assert onnx.defs.has("SpaceToBatchND", "my.domain") and onnx.defs.has("SpaceToBatchND", TF)
    schemas.deregister()
    assert not any(onnx.defs.has("SpaceToBatchND", d) for d in ("", "my.domain", TF))


def test_the_evaluator_is_found_after_the_schemas():
    """It refuses to be imported where two domains have an operator of the same name."""
    alone.python(
        """
        from onnx_spatial import schemas
        schemas.register()
        from onnx.reference import ReferenceEvaluator
        from onnx_spatial.reference import OPS
        ReferenceEvaluator(model, new_ops=OPS)
        """,
        timeout=60,
    )


@pytest.mark.usefixtures("registered")
def test_schemas_change_nothing_in_a_conversion():
    """They make operators known to onnx, not to onnxruntime, and are no standard operators."""
    model = one_node("SpaceToBatchND", (X, BLOCK, NONE), domain="my.domain")
    schemas.register(domains=["my.domain"])
    assert [each.op_type for each in convert(model, verify=False).inspection.remaining] == [
        "SpaceToBatchND"
    ]
    original = one_node("SpaceToBatchND", (X, BLOCK, NONE))
    assert convert(original, mode="function").verification.status == "passed"
