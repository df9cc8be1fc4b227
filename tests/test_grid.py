"""The grid has every operator in every spelling and form, and mistakes can be seen in each cell.

That cells compute what their rows say is what golden tests compare with recorded outputs.
"""

from __future__ import annotations

import json

import grid
import numpy as np
import onnx
import onnxruntime
import pytest
from grid import forms
from grid.blocks import BlockRow
from grid.cells import Cell
from grid.windows import PatchRow
from vocabulary import DOMAINS, LEFTOVER_OP_TYPES, OP_TYPES, Rearrange

import onnx_spatial
from onnx_spatial.operators.spellings import python_ops

#: The cells of one row after the other.
ROWS = pytest.mark.parametrize(
    "cells",
    [[c for c in grid.CELLS if c.row == row] for row in grid.ROWS],
    ids=[row.name for row in grid.ROWS],
)


def cells_of(form: str) -> list[Cell]:
    return [cell for cell in grid.CELLS if cell.form == form]


def names(values: object) -> set[str]:
    return {value.name for value in values}


# The grid as a whole


def test_every_row_and_form_has_a_cell_or_a_reason():
    there = {(cell.row.name, cell.form) for cell in grid.CELLS}
    wanted = {(row.name, form) for row in grid.ROWS for form in grid.FORMS}
    assert len(there) == len(grid.CELLS)
    assert there | grid.MISSING.keys() == wanted
    assert not there & grid.MISSING.keys()
    assert all(grid.MISSING.values())


#: Rearrange takes the place of chains in memory: no converter writes it.
PREPARED = python_ops.OP_TYPES - {Rearrange.name}


def test_every_operator_of_every_dialect_has_a_row():
    rows = {(row.dialect, row.op_type) for row in grid.ROWS}
    assert {op for dialect, op in rows if dialect == "prepared"} == PREPARED
    assert {op for dialect, op in rows if dialect != "prepared"} == (
        OP_TYPES - {Rearrange.name}
    ) | LEFTOVER_OP_TYPES
    blocks = {"SpaceToBatch", "BatchToSpace"}
    assert {dialect for dialect, op in rows if op in blocks} == {
        "tensorflow-4d",
        "tensorflow-nd",
        "openvino",
        "prepared",
    }


@pytest.mark.parametrize("form", grid.FORMS)
def test_every_operator_of_every_dialect_has_every_form_that_can_exist(form):
    """That the cells are what their rows say is seen below."""
    rows = {(row.dialect, row.op_type) for row in grid.ROWS if not row.missing(form)}
    assert {(cell.row.dialect, cell.row.op_type) for cell in cells_of(form)} == rows
    attributes_only = {row.op_type for row in grid.ROWS if isinstance(row, PatchRow)}
    wanted = (OP_TYPES - {Rearrange.name}) | LEFTOVER_OP_TYPES | PREPARED
    assert {op for _, op in rows} - attributes_only == wanted - attributes_only


def test_every_element_type_occurs_for_every_operator():
    for operator in {row.operator for row in grid.ROWS}:
        found = {cell.dtype for cell in grid.CELLS if cell.row.operator == operator}
        assert found == grid.TYPES.keys(), operator


def test_every_domain_occurs_and_some_are_not_imported():
    assert {cell.domain for cell in grid.CELLS} == DOMAINS
    for cell in grid.CELLS:
        imported = {o.domain for o in grid.model(cell).opset_import} | {"ai.onnx"}
        assert (cell.domain in imported) == grid.imported(cell)
    assert {cell.domain for cell in grid.CELLS if not grid.imported(cell)} == DOMAINS - {
        "",
        "ai.onnx",
    }


def test_parameters_come_in_every_integer_type():
    def kinds(dialect: str) -> set[tuple[str, ...]]:
        cells = (c for c in grid.CELLS if c.row.dialect == dialect and len(c.inputs()) > 1)
        return {tuple(c.type_of(t) for t in c.inputs()) for c in cells}

    assert kinds("tensorflow-nd") == {
        (a, b) for a in ("int32", "int64") for b in ("int32", "int64")
    }
    every = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
    assert {kind for found in kinds("openvino") for kind in found} == every


# Each cell


@ROWS
def test_the_models_are_what_the_row_says(cells):
    for cell in cells:
        sites = onnx_spatial.inspect(grid.model(cell)).operators
        found = {(s.dialect, s.op_type, s.domain, s.element_type) for s in sites}
        row = cell.row
        assert found == {(row.dialect, row.op_type, cell.domain, cell.dtype)}, cell.name


@ROWS
def test_onnxruntime_loads_none_of_them(cells):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    for cell in cells:
        data = grid.model(cell).SerializeToString()
        with pytest.raises(Exception, match="ONNXRuntimeError"):
            onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


@ROWS
def test_mistakes_can_be_seen_in_what_is_recorded(cells):
    for cell in cells:
        x = grid.recorded_inputs(cell)["x"]
        assert x.shape[1 if cell.form == "subgraph_scan" else 0] >= 2
        data, _ = cell.shapes()
        first = 2 if cell.row.entry_for_each_axis(cell.form) else 1
        assert cell.axes == 1 or len(set(data[first : first + cell.axes])) > 1, cell.name
        if cell.dtype != "bool" and not cell.form.startswith("quantised"):
            different = len({str(value) for value in x.reshape(-1)})
            assert different == min(x.size, 256 if x.dtype.itemsize == 1 else x.size), cell.name
        if isinstance(cell.row, BlockRow):
            blocks, _, _ = cell.row.standard(cell.axes)
            assert all(b != e for b, e in zip(blocks.begins, blocks.ends, strict=True))


@ROWS
def test_feeds_have_what_the_model_wants_and_vary(cells):
    for cell in cells:
        rng = np.random.default_rng(1)
        model = grid.model(cell)
        wanted = names(model.graph.input) - names(model.graph.initializer)
        drawn = [grid.feeds(cell, rng) for _ in range(4)]
        assert all(wanted <= feeds.keys() <= names(model.graph.input) for feeds in drawn)
        if cell.form in ("dynamic", "run_time", "computed", "overridable"):
            assert len({feeds["x"].shape for feeds in drawn}) > 1, cell.name


def test_reasons_are_short_sentences():
    assert all("\n" not in reason and len(reason) < 100 for reason in grid.MISSING.values())


def test_a_prepared_node_says_what_it_wants_in_json():
    model = grid.model(grid.get("prepared_extract_patches/static_2d"))
    (found,) = (a.s for a in model.graph.node[0].attribute if a.name == "parameters")
    assert json.loads(found)["kernel"]


def test_the_text_of_a_cell_is_its_model():
    cell = grid.get("tf_space_to_batch_nd/static_2d")
    assert onnx.parser.parse_model(forms.text(cell)) == grid.model(cell)
