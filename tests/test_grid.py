"""The grid holds every operator in every spelling, type and domain; onnx's evaluator runs each cell.

That converted cells compute the right values is what tests/golden holds.
"""

import grid
import numpy as np
import onnx
import onnxruntime
import pytest
import reference
import running
from building import ELEMENT_TYPES, one_node
from definitions import space_to_batch
from onnx import parser
from onnx.reference import ReferenceEvaluator
from vocabulary import DOMAINS, LEFTOVER_OP_TYPES, OP_TYPES, PYTHON_OP_TYPES, Rearrange

import onnx_spatial
from onnx_spatial import OperatorError
from onnx_spatial.reference import OPS, operators


def test_every_operator_type_and_domain_has_a_row_and_cells():
    op_types = {row.op_type for row in grid.ROWS}
    # Rearrange takes the place of chains in memory: no converter writes it.
    assert op_types == (OP_TYPES | LEFTOVER_OP_TYPES | PYTHON_OP_TYPES) - {Rearrange.name}
    assert {cell.domain for cell in grid.CELLS} == DOMAINS
    for operator in {row.operator for row in grid.ROWS}:
        cells = [cell for cell in grid.CELLS if cell.row.operator == operator]
        assert {cell.dtype for cell in cells} == ELEMENT_TYPES.keys()
        forms = {cell.form for cell in cells}
        attributes_only = operator not in ("SpaceToBatch", "BatchToSpace")
        assert len(forms) >= len(grid.FORMS) - 5 if attributes_only else forms == grid.FORMS.keys()


@pytest.mark.parametrize("row", grid.ROWS, ids=lambda row: row.name)
def test_models_are_what_their_row_says_and_no_runtime_loads_them(row):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    for cell in [cell for cell in grid.CELLS if cell.row == row][::3]:  # golden tests convert all
        model = grid.model(cell)
        sites = onnx_spatial.inspect(model, chains=False).operators
        said = {(s.dialect, s.op_type, s.domain, s.element_type) for s in sites}
        assert said == {(row.dialect, row.op_type, cell.domain, cell.dtype)}, cell.name
        imports = {o.domain for o in model.opset_import} | {"ai.onnx"}
        assert (cell.domain in imports) == grid.imported(cell), cell.name
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        onnxruntime.InferenceSession(model.SerializeToString(), options)


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
