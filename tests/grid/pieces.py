"""Write nodes, tensors and graphs as ONNX text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from grid.blocks import BlockRow
from grid.cells import Cell
from grid.values import TYPES, Array

#: Forms whose data has no known size.
_SYMBOLIC = frozenset(
    {"dynamic", "run_time", "computed", "overridable", "subgraph_if", "quantised"}
)


def node(cell: Cell, output: str, data: str, *, refs: bool = False) -> str:
    """Write the node; `refs`: its attributes refer to those of the function."""
    passed = passed_attributes(cell) if refs else []
    given = [
        f"{name}: {_kind(value)} = @{name}" if name in passed else f"{name} = {value}"
        for name, value in attributes(cell).items()
    ]
    marks = f" <{', '.join(given)}>" if given else ""
    inputs = [data, *(table.name for table in cell.inputs())]
    if isinstance(cell.row, BlockRow) and cell.row.style == "axes":
        # Where a parameter is an attribute its place among the inputs stays empty.
        inputs = [data, *('""' if t.attribute else t.name for t in cell.tables())]
        while inputs[-1] == '""':
            inputs.pop()
    name = f"{cell.domain}.{cell.row.op_type}" if cell.domain else cell.row.op_type
    return f"{output} = {name}{marks} ({', '.join(inputs)})"


def attributes(cell: Cell, *, other: bool = False) -> dict[str, str]:
    """Write every attribute of the node."""
    fixed = cell.row.fixed(cell.form, cell.axes)
    tables = cell.tables(other=other)
    return {**fixed, **{t.name: ints(t.values) for t in tables if t.attribute}}


def passed_attributes(cell: Cell) -> list[str]:
    """Return the attributes of the node that a function gets from its callers."""
    return [name for name in attributes(cell) if name not in ("site", "batch_entry", "Tidx")]


def _kind(value: str) -> str:
    return {"[": "ints", '"': "string"}.get(value[0], "int")


def ints(values: Array) -> str:
    """Write an attribute; matrices row by row."""
    return str([int(v) for v in values.reshape(-1)])


def stored(name: str, values: Array, dtype: str) -> str:
    """Write an initializer."""
    dims = ",".join(map(str, values.shape))
    numbers = ", ".join(str(int(v)) for v in values.reshape(-1))
    return f"{dtype}[{dims}] {name} = {{{numbers}}}"


def parameters(cell: Cell, *, other: bool = False) -> list[str]:
    """Write the parameters that are inputs of the node, as initializers."""
    return [
        stored(t.name, t.values, cell.type_of(t))
        for t in cell.tables(other=other)
        if not t.attribute
    ]


def tensor(dtype: str, name: str, shape: Sequence[int | str]) -> str:
    """Write the declared type of a value."""
    return f"{TYPES[dtype]}[{', '.join(map(str, shape))}] {name}"


def declared(cell: Cell) -> tuple[Sequence[int | str], Sequence[int | str]]:
    """Write the declared types of the node's data and output."""
    data, output = cell.shapes()
    if cell.form in _SYMBOLIC:
        return (
            ["n", *(f"d{i}" for i in range(1, len(data)))],
            ["N", *(f"D{i}" for i in range(1, len(output)))],
        )
    return data, output


def graph(
    inputs: Sequence[str], outputs: Sequence[str], stored: Sequence[str], nodes: Sequence[str]
) -> str:
    """Write the main graph with the initializers `stored`."""
    lines = "".join(f"    {line}\n" for line in nodes)
    held = f"\n<{', '.join(stored)}>" if stored else ""
    return f"cell ({', '.join(inputs)}) => ({', '.join(outputs)}){held}\n{{\n{lines}}}"


def number(dtype: str) -> int:
    """Return the number of an element type, as in the attribute of a Cast."""
    return onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
