"""The grid has every operator in every spelling and form, and each cell is what it says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import grid
import numpy as np
import onnx
import onnxruntime
import pytest
from grid import forms
from grid.blocks import BlockRow
from grid.cells import Cell
from grid.columns import STATIC
from grid.windows import PatchRow
from onnx import helper, numpy_helper
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


def of_form(*forms: str) -> Callable[[Callable[[Cell], None]], Callable[[], None]]:
    """A test of each cell that has one of the forms."""

    def decorate(test: Callable[[Cell], None]) -> Callable[[], None]:
        def tests() -> None:
            for cell in (cell for form in forms for cell in cells_of(form)):
                try:
                    test(cell)
                except AssertionError as error:
                    error.add_note(cell.name)
                    raise

        tests.__name__ = test.__name__
        return tests

    return decorate


def node_in(cell: Cell, nodes: object) -> onnx.NodeProto:
    """The one spatial node among some."""
    (found,) = (n for n in nodes if (n.op_type, n.domain) == (cell.row.op_type, cell.domain))
    return found


def parameters(node: onnx.NodeProto) -> list[str]:
    """What the node reads beside its data."""
    return [name for name in node.input[1:] if name]


def names(values: object) -> set[str]:
    return {value.name for value in values}


def dims(value: onnx.ValueInfoProto) -> list[int | str]:
    return [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]


def behind(model: onnx.ModelProto, name: str) -> Iterator[onnx.NodeProto]:
    """The nodes that a value is computed by."""
    for node in model.graph.node:
        if name in node.output:
            yield node
            for source in node.input:
                yield from behind(model, source)


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
def test_what_is_recorded_fits_the_model(cells):
    for cell in cells:
        graph, inputs = grid.model(cell).graph, grid.recorded_inputs(cell)
        assert list(inputs) == [value.name for value in graph.input]
        arrays = [*inputs.values(), *grid.recorded_outputs(cell)]
        for value, array in zip([*graph.input, *graph.output], arrays, strict=True):
            declared, shape = dims(value), array.shape
            assert 0 not in shape
            assert len(declared) == len(shape), cell.name
            assert all(d == n or isinstance(d, str) for d, n in zip(declared, shape, strict=True))
            assert helper.np_dtype_to_tensor_dtype(array.dtype) == value.type.tensor_type.elem_type


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


# Each form


@of_form(*STATIC)
def test_static_cells_know_every_size(cell):
    model = grid.model(cell)
    values = [*model.graph.input, *model.graph.output]
    assert [v.name for v in values] == ["x", "y"]
    assert all(isinstance(d, int) for v in values for d in dims(v))
    assert len(dims(values[0])) == STATIC[cell.form] + 2
    assert len(model.graph.node) == 1


@of_form("dynamic")
def test_dynamic_cells_know_no_size(cell):
    model = grid.model(cell)
    (x,), (y,) = model.graph.input, model.graph.output
    assert all(isinstance(d, str) for d in (*dims(x), *dims(y)))
    (node,) = model.graph.node
    assert set(parameters(node)) <= names(model.graph.initializer)


@of_form("run_time")
def test_run_time_parameters_are_inputs(cell):
    model = grid.model(cell)
    node = node_in(cell, model.graph.node)
    assert parameters(node)
    assert set(parameters(node)) <= names(model.graph.input)
    assert not model.graph.initializer


@of_form("computed")
def test_computed_parameters_come_from_the_shape_of_the_data(cell):
    model = grid.model(cell)
    node = node_in(cell, model.graph.node)
    shapes = [n for n in behind(model, node.input[-1]) if n.op_type == "Shape"]
    assert [list(n.input) for n in shapes] == [["x"]] * len(shapes)
    assert shapes
    assert all(isinstance(d, str) for d in dims(model.graph.input[0]))


@of_form("overridable")
def test_overridable_parameters_are_inputs_with_a_default_that_the_data_overrides(cell):
    model = grid.model(cell)
    node = node_in(cell, model.graph.node)
    stored = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    assert parameters(node)
    assert set(parameters(node)) == stored.keys()
    assert stored.keys() < names(model.graph.input)
    assert model.ir_version >= 4
    given = grid.recorded_inputs(cell)
    assert any(given[name].tolist() != value.tolist() for name, value in stored.items())


@of_form("subgraph_if", "subgraph_loop", "subgraph_scan")
def test_nodes_in_subgraphs_capture_their_parameters(cell):
    model = grid.model(cell)
    (holder,) = model.graph.node
    assert holder.op_type == {"if": "If", "loop": "Loop", "scan": "Scan"}[cell.form.split("_")[1]]
    (body,) = (a.g for a in holder.attribute if a.name in ("then_branch", "body"))
    node = node_in(cell, body.node)
    assert set(parameters(node)) == names(model.graph.initializer) & set(node.input)
    assert bool(parameters(node)) == bool(cell.inputs())
    assert (node.input[0] in names(model.graph.input)) == (cell.form == "subgraph_if")


@of_form("function")
def test_functions_are_called_twice_with_other_sizes(cell):
    model = grid.model(cell)
    (function,) = model.functions
    node_in(cell, function.node)
    calls = [n for n in model.graph.node if n.op_type == function.name]
    assert len(calls) == len(model.graph.node) == 2
    first, second = model.graph.input
    assert dims(first) != dims(second)
    passed = {a.ref_attr_name for n in function.node for a in n.attribute} - {""}
    assert passed == set(function.attribute)
    assert passed


@of_form("quantised")
def test_quantised_cells_move_numbers_between_integers(cell):
    model = grid.model(cell)
    before, node, after = model.graph.node
    assert (before.op_type, after.op_type) == ("DequantizeLinear", "QuantizeLinear")
    assert node == node_in(cell, model.graph.node)


@of_form("quantised_integers")
def test_quantised_integers_are_moved_as_they_are(cell):
    model = grid.model(cell)
    before, node, after = model.graph.node
    assert (before.op_type, after.op_type) == ("QuantizeLinear", "DequantizeLinear")
    assert node == node_in(cell, model.graph.node)
    assert cell.dtype in ("uint8", "int8")


def test_reasons_are_short_sentences():
    assert all("\n" not in reason and len(reason) < 100 for reason in grid.MISSING.values())


def test_a_prepared_node_says_what_it_wants_in_json():
    model = grid.model(grid.get("prepared_extract_patches/static_2d"))
    (found,) = (a.s for a in model.graph.node[0].attribute if a.name == "parameters")
    assert json.loads(found)["kernel"]


def test_the_text_of_a_cell_is_its_model():
    cell = grid.get("tf_space_to_batch_nd/static_2d")
    assert onnx.parser.parse_model(forms.text(cell)) == grid.model(cell)
