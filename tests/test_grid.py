"""The grid holds every operator in every spelling, type and domain, and each cell is what its row says.

That converted cells compute the right values is what tests/golden holds.
"""

from __future__ import annotations

import grid
import onnxruntime
import pytest
from building import ELEMENT_TYPES
from vocabulary import DOMAINS, LEFTOVER_OP_TYPES, OP_TYPES, PYTHON_OP_TYPES, Rearrange

import onnx_spatial


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
    for cell in (cell for cell in grid.CELLS if cell.row == row):
        model = grid.model(cell)
        sites = onnx_spatial.inspect(model).operators
        said = {(s.dialect, s.op_type, s.domain, s.element_type) for s in sites}
        assert said == {(row.dialect, row.op_type, cell.domain, cell.dtype)}, cell.name
        imports = {o.domain for o in model.opset_import} | {"ai.onnx"}
        assert (cell.domain in imports) == grid.imported(cell), cell.name
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        onnxruntime.InferenceSession(model.SerializeToString(), options)
