"""Original models in onnx's reference evaluator."""

from __future__ import annotations

import grid
import numpy as np
import onnx
import pytest
import reference
import running
from building import one_node
from definitions import space_to_batch
from onnx import parser
from onnx.reference import ReferenceEvaluator

from onnx_spatial import OperatorError
from onnx_spatial.reference import OPS, operators

X = np.arange(2 * 4 * 6 * 3, dtype=np.float32).reshape(2, 4, 6, 3)
#: Older evaluators give the body of a Scan no values of outer graphs.
LACKING = () if onnx.__version__ >= "1.23" else ("subgraph_scan",)
BLOCK, NONE = np.array([2, 2]), np.zeros((2, 2), int)


@pytest.mark.parametrize("row", grid.ROWS, ids=lambda row: row.name)
def test_every_spelling_and_domain_gives_the_recorded_outputs(row):
    cells = [cell for cell in grid.CELLS if cell.row == row and cell.form not in LACKING]
    assert len(cells) > 5
    for cell in cells:
        outputs = reference.evaluate(grid.model(cell), grid.recorded_inputs(cell), OPS)
        for output, recorded in zip(outputs, grid.recorded_outputs(cell), strict=True):
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
