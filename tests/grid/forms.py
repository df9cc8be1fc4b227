"""Write the model of each cell as ONNX text, one function for each column.

static_1d, static_2d, static_3d   x: float[2, 7, 3]      y = SpaceToBatchND (x, b, p)
dynamic                           x: float[n, d1, d2]    the same
run_time                          b and p are inputs of the graph
computed                          p is computed from the Shape of x, as for "dilated, same"
overridable                       b and p are initializers and inputs
subgraph_if, _loop, _scan         y in a branch or body, which captures b and p (and x)
function                          in a function that is called twice
quantised                         DequantizeLinear -> node -> QuantizeLinear
quantised_integers                QuantizeLinear -> node -> DequantizeLinear
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnx.parser

from grid import pieces
from grid.blocks import BlockRow, Table
from grid.cells import Cell
from grid.values import SCALE, ZERO_POINTS

#: What a function of the grid is called in.
FUNCTIONS = "zoo.layers"
TURNS = 2


def model(cell: Cell) -> onnx.ModelProto:
    """Return the model of a cell."""
    return onnx.parser.parse_model(text(cell))


def text(cell: Cell) -> str:
    """Return the model of a cell as ONNX text."""
    graph = _GRAPHS.get(cell.form, _plain)(cell)
    return f"<ir_version: {cell.ir_version}, {_imports(cell)}>\n{graph}"


def _imports(cell: Cell, *more: str) -> str:
    domains = {"": cell.opset}
    if cell.imported and cell.domain not in ("", "ai.onnx"):
        domains[cell.domain] = 1
    if cell.form == "function" and not more:
        domains[FUNCTIONS] = 1
    listed = ", ".join(f'"{domain}" : {version}' for domain, version in domains.items())
    return f"opset_import: [{listed}]"


def _plain(cell: Cell) -> str:
    data, output = pieces.declared(cell)
    return pieces.graph(
        [pieces.tensor(cell.dtype, "x", data)],
        [pieces.tensor(cell.dtype, "y", output)],
        pieces.parameters(cell),
        [pieces.node(cell, "y", "x")],
    )


def _run_time(cell: Cell) -> str:
    data, output = pieces.declared(cell)
    given = [pieces.tensor(cell.type_of(t), t.name, t.values.shape) for t in cell.inputs()]
    return pieces.graph(
        [pieces.tensor(cell.dtype, "x", data), *given],
        [pieces.tensor(cell.dtype, "y", output)],
        [],
        [pieces.node(cell, "y", "x")],
    )


def _overridable(cell: Cell) -> str:
    data, output = pieces.declared(cell)
    return pieces.graph(
        [pieces.tensor(cell.dtype, "x", data), *pieces.parameters(cell, other=True)],
        [pieces.tensor(cell.dtype, "y", output)],
        [],
        [pieces.node(cell, "y", "x")],
    )


def _computed(cell: Cell) -> str:
    """Compute pads that fill the last block, or crops that leave a multiple of some number."""
    row = cell.row
    assert isinstance(row, BlockRow)
    *others, computed = cell.inputs()
    dtype = cell.type_of(computed)
    # TensorFlow computes in the type that it needs; few runtimes have arithmetic of small integers.
    inside = dtype if dtype in ("int32", "int64") else "int64"
    blocks, _, _ = row.standard(cell.axes)
    front = 2 * row.entry_for_each_axis(cell.form)
    steps, begins, least, multiples = (
        np.array((neutral,) * front + values)
        for neutral, values in (
            (1, blocks.block),
            (0, blocks.begins),
            (0, blocks.ends),
            (1, tuple(b + 1 for b in blocks.block)),
        )
    )
    named = {"steps": steps}
    if row.forward:
        named |= {"around": begins + least, "least": least}
    else:
        named["multiples"] = multiples
    if not row.forward or row.style != "axes":
        named["begins"] = begins
    stored = [pieces.stored(t.name, t.values, cell.type_of(t)) for t in others]
    stored += [pieces.stored(name, values, inside) for name, values in named.items()]
    nodes = ["shape = Shape (x)"]
    sizes = "shape"
    if not row.entry_for_each_axis(cell.form):
        stored += ["int64[1] first = {1}", f"int64[1] behind = {{{1 + cell.axes}}}"]
        nodes.append("blocked = Slice (shape, first, behind)")
        sizes = "blocked"
    if inside != "int64":
        nodes.append(f"small = Cast <to = {pieces.number(inside)}> ({sizes})")
        sizes = "small"
    if row.forward:
        nodes += [
            f"full = Add ({sizes}, around)",
            "over = Mod (full, steps)",
            "lack = Sub (steps, over)",
            "fill = Mod (lack, steps)",
            "ends = Add (least, fill)",
        ]
    else:
        nodes += [
            f"full = Mul ({sizes}, steps)",
            "kept = Sub (full, begins)",
            "ends = Mod (kept, multiples)",
        ]
    if row.style == "axes":
        nodes.append(f"{computed.name} = Cast <to = {pieces.number(dtype)}> (ends)")
    else:
        stored.append("int64[2] pairs = {2, -1}")
        nodes += [
            "flat = Concat <axis = 0> (begins, ends)",
            "columns = Reshape (flat, pairs)",
            f"{computed.name} = Transpose <perm = [1, 0]> (columns)",
        ]
    data, output = pieces.declared(cell)
    return pieces.graph(
        [pieces.tensor(cell.dtype, "x", data)],
        [pieces.tensor(cell.dtype, "y", output)],
        stored,
        [*nodes, pieces.node(cell, "y", "x")],
    )


def _if(cell: Cell) -> str:
    data, output = pieces.declared(cell)
    moved = pieces.tensor(cell.dtype, "moved", output)
    same = pieces.tensor(cell.dtype, "same", data)
    return pieces.graph(
        [pieces.tensor(cell.dtype, "x", data), "bool take"],
        [pieces.tensor(cell.dtype, "y", [f"Y{i}" for i in range(len(output))])],
        pieces.parameters(cell),
        [
            "y = If (take) <\n"
            f"        then_branch = moving () => ({moved}) {{ {pieces.node(cell, 'moved', 'x')} }},\n"
            f"        else_branch = keeping () => ({same}) {{ same = Identity (x) }}>"
        ],
    )


def _loop(cell: Cell) -> str:
    """Rotate the batch by one in each iteration, so that the iterations differ."""
    data, output = pieces.declared(cell)
    image, after = (pieces.tensor(cell.dtype, name, data) for name in ("image", "after"))
    return pieces.graph(
        [pieces.tensor(cell.dtype, "x", data)],
        [pieces.tensor(cell.dtype, "y", (TURNS, *output))],
        [
            *pieces.parameters(cell),
            f"int64 turns = {{{TURNS}}}, bool go = {{1}}, int64[1] zero = {{0}}",
            f"int64[1] one = {{1}}, int64[1] far = {{{2**31 - 1}}}",
        ],
        [
            "last, y = Loop (turns, go, x) <\n"
            f"        body = turning (int64 turn, bool still, {image})\n"
            f"        => (bool on, {after}, {pieces.tensor(cell.dtype, 'part', output)})\n"
            "        {\n"
            "            on = Identity (still)\n"
            f"            {pieces.node(cell, 'part', 'image')}\n"
            "            head = Slice (image, zero, one)\n"
            "            tail = Slice (image, one, far)\n"
            "            after = Concat <axis = 0> (tail, head)\n"
            "        }>"
        ],
    )


def _scan(cell: Cell) -> str:
    (_, *data), (_, *output) = pieces.declared(cell)
    image = pieces.tensor(cell.dtype, "image", ["n", *data])
    part = pieces.tensor(cell.dtype, "part", ["N", *output])
    return pieces.graph(
        [pieces.tensor(cell.dtype, "x", ["t", "n", *data])],
        [pieces.tensor(cell.dtype, "y", ["t", "N", *output])],
        pieces.parameters(cell),
        [
            "y = Scan <num_scan_inputs = 1,\n"
            f"        body = scanning ({image}) => ({part}) {{ {pieces.node(cell, 'part', 'image')} }}>"
            " (x)"
        ],
    )


def _function(cell: Cell) -> str:
    """Call a function twice; the inputs of the node are attributes of the calls."""
    inputs = cell.inputs()
    passed = [*pieces.passed_attributes(cell), *(t.name for t in inputs)]

    def call(output: str, data: str, *, other: bool) -> str:
        # The attributes of the node itself have to be the same in both calls.
        attributes = pieces.attributes(cell)
        attributes |= {
            t.name: pieces.ints(t.values) for t in cell.tables(other=other) if not t.attribute
        }
        given = ", ".join(f"{name} = {attributes[name]}" for name in passed)
        return f"{output} = {FUNCTIONS}.Moving <{given}> ({data})"

    nodes = []
    for table in inputs:
        nodes += _from_attribute(table, cell.type_of(table))
    nodes.append(pieces.node(cell, "y", "x", refs=True))
    (x, y), (more, z) = cell.shapes(), cell.shapes(other=True)
    graph = pieces.graph(
        [pieces.tensor(cell.dtype, "x", x), pieces.tensor(cell.dtype, "more", more)],
        [pieces.tensor(cell.dtype, "y", y), pieces.tensor(cell.dtype, "z", z)],
        [],
        [call("y", "x", other=False), call("z", "more", other=True)],
    )
    body = "".join(f"    {node}\n" for node in nodes)
    header = f'<domain: "{FUNCTIONS}", {_imports(cell, "inside")}>'
    return f"{graph}\n{header}\nMoving <{', '.join(passed)}> (x) => (y)\n{{\n{body}}}"


def _from_attribute(table: Table, dtype: str) -> list[str]:
    """Return nodes that turn an attribute of the function into a parameter."""
    name = table.name
    steps = [f"Constant <value_ints: ints = @{name}> ()"]
    made = [f"{name}_list"]
    if table.values.ndim == 2:
        steps += ["Constant <value_ints = [-1, 2]> ()", f"Reshape ({name}_list, {name}_pairs)"]
        made += [f"{name}_pairs", f"{name}_table"]
    if dtype != "int64":
        steps.append(f"Cast <to = {pieces.number(dtype)}> ({made[-1]})")
        made.append(name)
    made[-1] = name
    return [f"{output} = {step}" for output, step in zip(made, steps, strict=True)]


def _quantised(cell: Cell) -> str:
    data, output = pieces.declared(cell)
    return pieces.graph(
        [pieces.tensor(cell.stored, "x", data)],
        [pieces.tensor(cell.stored, "y", output)],
        [*pieces.parameters(cell), *_scaling(cell)],
        [
            "real = DequantizeLinear (x, scale, zero_point)",
            pieces.node(cell, "moved", "real"),
            "y = QuantizeLinear (moved, scale, zero_point)",
        ],
    )


def _quantised_integers(cell: Cell) -> str:
    data, output = pieces.declared(cell)
    return pieces.graph(
        [pieces.tensor("float32", "x", data)],
        [pieces.tensor("float32", "y", output)],
        [*pieces.parameters(cell), *_scaling(cell)],
        [
            "levels = QuantizeLinear (x, scale, zero_point)",
            pieces.node(cell, "moved", "levels"),
            "y = DequantizeLinear (moved, scale, zero_point)",
        ],
    )


def _scaling(cell: Cell) -> list[str]:
    zero_point = f"{cell.stored} zero_point = {{{ZERO_POINTS[cell.stored]}}}"
    return [f"float scale = {{{SCALE}}}", zero_point]


_GRAPHS: dict[str, Callable[[Cell], str]] = {
    "run_time": _run_time,
    "computed": _computed,
    "overridable": _overridable,
    "subgraph_if": _if,
    "subgraph_loop": _loop,
    "subgraph_scan": _scan,
    "function": _function,
    "quantised": _quantised,
    "quantised_integers": _quantised_integers,
}
