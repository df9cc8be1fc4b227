"""Build tiny models: every operator, in every spelling (rows), in every form of model (columns).

    import grid
    for cell in grid.CELLS:
        grid.model(cell), grid.recorded_inputs(cell), grid.recorded_outputs(cell)
        grid.feeds(cell, rng)                # legal inputs of other sizes
        grid.write(cell, folder)             # folder/row/form/model.onnx, with its recorded data

`spellings` has the rows, `columns` the forms; a combination that cannot exist has its reason in
`MISSING`. Element types, opsets, domains and parameter types are dealt out to the cells in turn, so
that each of them meets every operator somewhere. onnxruntime loads no cell as it is.

What the cells give was recorded by TensorFlow and OpenVINO (`recording`), never by the package under
test. Batches are 2 (what is blocked: 2 times the blocks), heights differ from widths and begins from
ends: otherwise some mistakes could not be seen.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from functools import cache
from itertools import cycle, islice
from pathlib import Path

import onnx
from onnx import numpy_helper

from grid.blocks import BlockRow
from grid.cells import IR_VERSIONS, Cell
from grid.columns import FORMS, STATIC
from grid.feeding import feeds, recorded_inputs
from grid.forms import model
from grid.reorganised import ReorgRow
from grid.spellings import ROWS, Row
from grid.values import TYPES, Array
from grid.windows import PatchRow

_OPSETS = (17, 11, 13, 21, 15, 18, 12, 23, 19)
#: Starts with the types of which runtimes have fewest kernels.
_DEALT = (
    "float32", "string", "float16", "bool", "int64", "uint16", "bfloat16",
    "float64", "int16", "uint32", "int32", "uint64", "uint8", "int8",
)  # fmt: skip
#: What OpenVINO's CPU plugin moves without looking at it.
_OPENVINO_TYPES = frozenset({"float32", "float16", "int8", "uint8", "int32"})

#: The outputs of all cells: a GraphProto, whose initializers are called CELL/OUTPUT.
OUTPUTS = Path(__file__).parent / "outputs.pb.gz"

RECORDERS = {
    "T": "TensorFlow's eager kernel",
    "I": "TensorFlow's eager kernel, which moves the elements' numbers: it has no kernel for their type",
    "O": "OpenVINO's CPU plugin",
    "N": "OpenVINO's CPU plugin, which moves the elements' numbers: it takes their type through others",
}


def recorder(cell: Cell) -> str:
    """Return the key of `RECORDERS` that records the spatial nodes of a cell."""
    if isinstance(cell.row, ReorgRow):
        return "O" if cell.dtype in _OPENVINO_TYPES - {"int32"} else "N"
    spelled = cell.row.dialect == "openvino"
    if spelled and cell.dtype in _OPENVINO_TYPES:
        return "O"
    return "I" if cell.dtype in ("bool", "string") else "T"


def imported(cell: Cell) -> bool:
    """Return whether the model imports the domain of the spatial nodes."""
    return cell.imported or cell.domain in ("", "ai.onnx")


def _cells() -> Iterator[Cell]:
    waiting: dict[str, list[str]] = {row.operator: [] for row in ROWS}
    opsets = cycle(_OPSETS)
    stored = {row.operator: cycle(("uint8", "int8")) for row in ROWS}
    for number, row in enumerate(ROWS):
        domains, types = cycle(row.domains), cycle(row.types)
        quantised = next(stored[row.operator])
        for column, form in enumerate(FORMS):
            if row.missing(form):
                continue
            if form == "quantised":
                dtype = "float32"
            elif form == "quantised_integers":
                dtype = ""
            else:
                dtype = _dealt(waiting[row.operator], row, form)
            allowed = _opsets(form, dtype or quantised, quantised)
            opset = next(o for o in opsets if o in allowed)
            axes = _axes(row, form, number + column)
            tables = 3 if isinstance(row, BlockRow) and row.style == "axes" else 2
            yield Cell(
                row,
                form,
                dtype or quantised,
                quantised,
                axes,
                tuple(islice(types, tables)),
                opset,
                IR_VERSIONS[opset],
                next(domains),
                imported=(number + 2 * column) % 7 != 0,
            )
            if column % 3 == 0:
                next(types)  # else no two parameters of a node would ever have different types


def _dealt(waiting: list[str], row: Row, form: str) -> str:
    """Return the next element type that a cell can have; others wait for the next cell."""
    while True:
        for position, dtype in enumerate(waiting):
            # Strings that the turns of a Loop give end the process in onnxruntime 1.23, and some of
            # them are empty in 1.31 (microsoft/onnxruntime#29397).
            if row.takes(dtype) and (dtype, form) != ("string", "subgraph_loop"):
                return waiting.pop(position)
        waiting += _DEALT


def _opsets(form: str, dtype: str, stored: str) -> range:
    """Return the opsets in which a cell can be written."""
    if form == "quantised" and stored == "int8":
        # From 21 on onnxruntime 1.31 refuses DequantizeLinear (int8) -> Reshape -> Gather, which is
        # standard ONNX (microsoft/onnxruntime#25526).
        return range(11, 21)
    if dtype == "bfloat16":
        return range(16 if form.startswith("subgraph") else 13, 24)
    return range(13 if form == "function" else 11, 24)


def _axes(row: Row, form: str, turn: int) -> int:
    if form in STATIC:
        return STATIC[form]
    if isinstance(row, PatchRow):
        return row.dims[turn % len(row.dims)]
    return 2 if row.style == "size" else (2, 1, 2, 3)[turn % 4]


CELLS = tuple(_cells())
#: (row, form) -> why there is no such cell.
MISSING = {
    (row.name, form): reason for row in ROWS for form in FORMS if (reason := row.missing(form))
}


def get(name: str) -> Cell:
    """Return the cell of a name, "row/form"."""
    return _BY_NAME[name]


def recorded_outputs(cell: Cell) -> list[Array]:
    """Return what TensorFlow or OpenVINO gives for the recorded inputs."""
    return [_outputs()[f"{cell.name}/{value.name}"] for value in model(cell).graph.output]


@cache
def _outputs() -> dict[str, Array]:
    graph = onnx.GraphProto.FromString(gzip.decompress(OUTPUTS.read_bytes()))
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}


def write(cell: Cell, folder: Path) -> Path:
    """Write the model of a cell and its recorded data below a folder, and return the model's path."""
    made = model(cell)
    path = folder / cell.name / "model.onnx"
    data = path.parent / "test_data_set_0"
    data.mkdir(parents=True)
    onnx.save(made, path)
    for kind, values, arrays in (
        ("input", made.graph.input, recorded_inputs(cell).values()),
        ("output", made.graph.output, recorded_outputs(cell)),
    ):
        for index, (value, array) in enumerate(zip(values, arrays, strict=True)):
            tensor = numpy_helper.from_array(array, value.name)
            onnx.save_tensor(tensor, data / f"{kind}_{index}.pb")
    return path


_BY_NAME = {cell.name: cell for cell in CELLS}

__all__ = [
    "CELLS",
    "FORMS",
    "MISSING",
    "RECORDERS",
    "ROWS",
    "TYPES",
    "Cell",
    "feeds",
    "get",
    "imported",
    "model",
    "recorded_inputs",
    "recorded_outputs",
    "recorder",
    "write",
]
