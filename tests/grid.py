"""Tiny models: every operator, in every spelling (rows), in every form of model (columns).

    for cell in grid.CELLS:
        grid.model(cell), grid.feeds(cell, rng)     # legal inputs; others in each call, if they can be
        grid.write(cell, folder)                    # folder/row/form/model.onnx, with recorded data

A row spells what `BLOCKS` and `WINDOWS` say; a column holds the node (`holders`) and says what is known
before the run. Combinations that cannot exist are left out. Element types, opsets, domains and types of
parameters are dealt out in turn, so that each meets every operator somewhere. Batches are 2, heights
differ from widths and begins from ends, elements from each other: mistakes can be seen. Outputs are
those of `definitions`, which the cases of TensorFlow and OpenVINO hold.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import cycle, islice
from math import prod
from pathlib import Path

import holders
import numpy as np
import onnx
import reference
from building import one_node, quantised
from onnx import helper, numpy_helper
from spelled import REORG, ROWS, Blocks, Call, Row, Windows, numpy_type

Rng = np.random.Generator
Feeds = dict[str, np.ndarray]

#: The columns, with what a model of each is like.
FORMS = {
    "static_1d": "every size is known; one axis is blocked, or has windows",
    "static_2d": "the same with two",
    "static_3d": "the same with three",
    "dynamic": "no size is known, the parameters are",
    "run_time": "the parameters are inputs, as far as the spelling has inputs for them",
    "computed": "paddings or crops are computed from the Shape of the data",
    "overridable": "parameters are initializers and inputs, and callers give others",
    "subgraph_if": "in a branch, which captures data and parameters",
    "subgraph_loop": "in the body of a Loop, which captures the parameters",
    "subgraph_scan": "in the body of a Scan, which captures the parameters",
    "function": "in a function that is called twice; parameters are attributes of the calls",
    "quantised": "float32 between DequantizeLinear and QuantizeLinear",
    "quantised_integers": "integers between QuantizeLinear and DequantizeLinear",
}
_STATIC = {"static_1d": 1, "static_2d": 2, "static_3d": 3}
_RUN_TIME = ("run_time", "computed", "overridable")
#: Forms whose sizes are all said in the model.
_KNOWN = (*_STATIC, "subgraph_loop", "function", "quantised_integers")

SCALE, ZERO_POINTS = 0.125, {"uint8": 100, "int8": -20}

#: By the number of blocked axes, what is recorded and what another call gives. Of the 4-D operators: 0.
BLOCKS = {
    1: (Blocks((3,), (1,), (4,), (4,), (3,)), Blocks((2,), (0,), (1,), (3,), (1,))),
    2: (Blocks((2, 3), (1, 0), (2, 1), (3, 2), (2,)), Blocks((3, 2), (0, 2), (1, 0), (2, 2), (1,))),
    3: (Blocks((2, 1, 3), (1, 0, 0), (0, 1, 2), (2, 3, 2), (1,)),
        Blocks((1, 2, 2), (0, 1, 1), (1, 0, 0), (2, 1, 2), (1,))),
    0: (Blocks((2, 2), (1, 0), (0, 1), (3, 2), (2,)), Blocks((2, 2), (0, 1), (1, 2), (2, 4), (1,))),
}  # fmt: skip
#: By the number of axes and whether windows stay inside.
#: A stride beyond the kernel is where SAME of the two operators of TensorFlow differs.
WINDOWS = {
    (1, True): Windows((3,), (2,), (2,), (8,), 3, ""),
    (1, False): Windows((3,), (2,), (2,), (7,), 3, ""),
    (2, True): Windows((2, 3), (2, 1), (1, 2), (5, 6), 2, ""),
    (2, False): Windows((3, 2), (2, 3), (1, 2), (5, 4), 2, ""),
    (3, True): Windows((2, 1, 2), (1, 2, 1), (1, 1, 1), (3, 4, 2), 2, ""),
    (3, False): Windows((1, 2, 2), (5, 1, 2), (1, 1, 1), (8, 2, 3), 1, ""),
}


def exists(row: Row, form: str) -> bool:
    """Return whether a model of that form can hold a row."""
    inputs = row.is_block and not (row.style == "size" and row.attributes)
    return _STATIC.get(form, row.dims[0]) in row.dims and (inputs or form not in _RUN_TIME)


def attribute_names(row: Row, form: str) -> set[str]:
    """Return which parameters are attributes."""
    names = row.parameters
    if not row.attributes:
        return set()
    if form not in (*_RUN_TIME, "subgraph_if", "subgraph_loop", "subgraph_scan"):
        return set(names)
    block, *amounts = ["block_shape", *(n for n in names if n != "block_shape")]
    if row.style == "size":
        return set(amounts)
    if row.style == "axes":
        by_form = {"run_time": {amounts[0]}, "computed": {block, amounts[0]}}
        return by_form.get(form, {block} if form == "overridable" else set(amounts))
    return set(amounts) if form == "run_time" and row.operator == "SpaceToBatch" else {block}


# ---------------------------------------------------------------- cells


@dataclass(frozen=True)
class Cell:
    """A row in a form, with what was dealt out to it.

    Attributes:
        row, form: where it stands.
        dtype, stored: types of the node's data, and of quantised data.
        axes: how many are blocked, or have windows.
        types: of the parameters.
        opset, domain, imported: of the model, of the node, and whether the model says it.
    """

    row: Row
    form: str
    dtype: str
    stored: str
    axes: int
    types: tuple[str, ...]
    opset: int
    domain: str
    imported: bool

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"{self.row.name}/{self.form}"

    @property
    def channels_first(self) -> bool:
        """Whether channels come before the axes, and parameters have an entry for every axis."""
        if self.row.style == "prepared" and self.row.is_block:
            return self.form in ("static_2d", "run_time", "subgraph_loop")
        return self.row.style in ("axes", "openvino") or (
            self.row.style == "prepared" and (len(self.form) % 2 == 0 or self.row.in_list)
        )

    def call(self, rng: Rng | None = None, *, other: bool = False) -> Call:
        """Return the recorded call, one with other sizes, or the second of a function."""
        draw = _draw_blocks if self.row.is_block else _draw_windows
        return draw(self, rng, other)


def _draw_blocks(cell: Cell, rng: Rng | None, other: bool) -> Call:
    row, forward = cell.row, cell.row.operator == "SpaceToBatch"
    usual, second = BLOCKS[0 if row.style == "size" else cell.axes]
    names, fixed = row.parameters, attribute_names(row, cell.form)
    # Attributes of the node itself are the same in both calls of a function.
    given = second if other and not fixed else usual
    if other and fixed:
        given = replace(given, cells=tuple(c + 1 for c in given.cells))

    def drawn(least: int, end: int, count: int) -> tuple[int, ...]:
        assert rng is not None
        return tuple(int(v) for v in rng.integers(least, end, count))

    if rng is not None and cell.form not in _KNOWN:
        given = replace(given, batch=int(rng.integers(1, 4)))
    if rng is not None and cell.form not in (*_KNOWN, "subgraph_scan"):
        count = len(given.block)
        if cell.form in ("run_time", "overridable"):
            if "block_shape" in {*names} - fixed:
                given = replace(given, block=drawn(1, 4, count))
            if names[-1] not in fixed:
                given = replace(given, ends=drawn(0, 3, count))
            if not fixed.intersection(names[-2:]):
                given = replace(given, begins=drawn(0, 3, count))
        given = replace(given, rest=(int(rng.integers(1, 4)),))
        axes = zip(given.block, given.begins, given.ends, strict=True)
        cells = tuple((a + z) // b + 1 + int(rng.integers(3)) for b, a, z in axes)
        given = replace(given, cells=cells)
    computed = forward and cell.form == "computed" and rng is not None
    image = drawn(1, 6, len(given.cells)) if computed else ()
    front = 2 if cell.channels_first else 0
    call = row.blocks(given, cell.types, front=front, fixed=fixed, image=image)
    if row.style == "size" and cell.form in ("static_2d", "run_time", "quantised"):
        call.attributes["Tidx"] = 3
    return call


def _draw_windows(cell: Cell, rng: Rng | None, other: bool) -> Call:
    row, kinds = cell.row, ("valid", "same_upper", "same_lower")
    varied = "same_unclamped" if cell.axes == 3 else kinds[len(cell.form) % 3]
    padding = row.padding or varied
    valid = padding.lower() == "valid"
    given = replace(WINDOWS[cell.axes, valid], padding=padding)
    windows = [*zip(given.kernel, given.rates, strict=True)]
    if row.operator == REORG:
        given = replace(given, kernel=(2,), sizes=(4, 6), channels=row.channels)
    drawn = rng is not None and cell.form not in (*_KNOWN, "subgraph_scan")
    if other:
        sizes = tuple(d + 2 - i for i, d in enumerate(given.sizes))
        given = replace(given, sizes=sizes, channels=given.channels + 1)
    elif rng is not None and cell.form not in _KNOWN:
        given = replace(given, batch=int(rng.integers(1, 4)))
        if drawn:
            spans = [(k - 1) * r + 1 if valid else 1 for k, r in windows]
            sizes = tuple(low + int(rng.integers(7)) for low in spans)
            given = replace(given, sizes=sizes, channels=int(rng.integers(1, 4)))
    if row.operator == REORG and (drawn or other):  # the stride, 2, must divide the sizes
        sizes = tuple(2 * size for size in given.sizes)
        given = replace(given, sizes=sizes, channels=given.channels + 3)
    return row.windows(given, first=cell.channels_first)


_OPSETS = (17, 11, 13, 21, 15, 18, 12, 23, 19)
#: The IR version that goes with each; 8 at least, which local functions need.
_IR_VERSIONS = {19: 9, 21: 10, 23: 11}


#: The order in which types are dealt out: those that quantised models have in any case come last.
_DEALT = (
    "float32", "string", "float16", "bool", "int64", "uint16", "bfloat16",
    "float64", "int16", "uint32", "int32", "uint64", "uint8", "int8",
)  # fmt: skip


def _deal() -> Iterator[Cell]:
    waiting: dict[str, list[str]] = {row.operator: [] for row in ROWS}
    stored = {row.operator: cycle(("uint8", "int8")) for row in ROWS}
    opsets = cycle(_OPSETS)
    for number, row in enumerate(ROWS):
        domains, types = cycle(row.domains), cycle(row.types)
        quant = next(stored[row.operator])
        for column, form in enumerate(FORMS):
            if not exists(row, form):
                continue
            dtype = {"quantised": "float32", "quantised_integers": quant}.get(form, "")
            if not dtype:
                queue = waiting[row.operator]
                while not (ready := [d for d in queue if _holds(row, form, d)]):
                    queue += _DEALT
                queue.remove(dtype := ready[0])
            lowest = 13 if form == "function" else 11
            if dtype == "bfloat16":
                lowest = 16 if form.startswith("subgraph") else 13
            # From 21 on onnxruntime 1.31 refuses DequantizeLinear (int8) -> Reshape -> Gather, which
            # is standard ONNX (microsoft/onnxruntime#25526).
            newest = 19 if (form, quant) == ("quantised", "int8") else 23
            opset = next(o for o in opsets if lowest <= o <= newest)
            axes = _STATIC.get(form, row.dims[(number + column) % len(row.dims)])
            taken = tuple(islice(types, 3 if row.style == "axes" else 2))
            imported = (number + 2 * column) % 7 != 0
            yield Cell(row, form, dtype, quant, axes, taken, opset, next(domains), imported)
            if column % 3 == 0:
                next(types)  # else no two parameters of a node would ever have different types


def _holds(row: Row, form: str, dtype: str) -> bool:
    # Strings that the turns of a Loop give end the process in onnxruntime 1.23, and some of them
    # are empty in 1.31 (microsoft/onnxruntime#29397). Python operators move some types by numbers.
    numbers = row.style == "prepared" and dtype in ("float16", "bfloat16", "string")
    return not numbers and (dtype, form) != ("string", "subgraph_loop")


CELLS = tuple(_deal())
_BY_NAME = {cell.name: cell for cell in CELLS}


def get(name: str) -> Cell:
    """Return the cell of a name, "row/form"."""
    return _BY_NAME[name]


def imported(cell: Cell) -> bool:
    """Return whether the model imports the domain of the spatial nodes."""
    return cell.imported or cell.domain in ("", "ai.onnx")


# ---------------------------------------------------------------- models


def model(cell: Cell) -> onnx.ModelProto:
    """Return the model of a cell."""
    # What a caller overrides is another value in the file.
    call = cell.call(other=cell.form == "overridable")
    known = cell.form not in ("dynamic", *_RUN_TIME, "subgraph_if", "quantised")
    made = one_node(
        cell.row.op_type,
        _inputs(cell, call),
        domain=cell.domain,
        shape=call.shape if known else [f"d{i}" for i in range(len(call.shape))],
        run_time=range(1, 4) if cell.form == "run_time" else (),
        opset=cell.opset,
        ir_version=_IR_VERSIONS.get(cell.opset, 8),
        **call.attributes,
    )
    if not imported(cell):
        del made.opset_import[1:]
    match cell.form:
        case "computed":
            return _computed(cell, made)
        case "overridable":
            return holders.overridable(made)
        case "subgraph_if" | "subgraph_loop" | "subgraph_scan":
            name = cell.form.removeprefix("subgraph_")
            return holders.HOLDERS[{"if": "branch"}.get(name, name)](made)
        case "function":
            second = cell.call(other=True)
            type_ = made.graph.input[0].type.tensor_type.elem_type
            more = helper.make_tensor_value_info("more", type_, second.shape)
            inputs = _inputs(cell, second)[1:]
            given = {f"p{i}": v.reshape(-1).tolist() for i, v in enumerate(inputs, 1)}
            return holders.called_twice(made, more, given)
        case "quantised":
            return quantised(made, SCALE, ZERO_POINTS[cell.stored])
        case "quantised_integers":
            return quantised(made, SCALE, ZERO_POINTS[cell.stored], outside=True)
    return made


def _inputs(cell: Cell, call: Call) -> list[np.ndarray | None]:
    """Data and parameters by their places; where one is an attribute of OpenVINO's, None."""
    data = np.zeros(call.shape, numpy_type(cell.stored if cell.form == "quantised" else cell.dtype))
    if cell.row.style != "axes":
        return [data, *call.parameters.values()]
    half = "pads" if cell.row.operator == "SpaceToBatch" else "crops"
    names = ("block_shape", f"{half}_begin", f"{half}_end")
    inputs = [data, *(call.parameters.get(name) for name in names)]
    while inputs[-1] is None:
        inputs.pop()
    return inputs


def _computed(cell: Cell, made: onnx.ModelProto) -> onnx.ModelProto:
    """Fill the last block: ends = -(size + begin) mod block; crop to (size * block - begin) mod more."""
    from chain_models import Net

    net, graph = Net(cell.opset), made.graph
    stored = graph.initializer[-1]
    given = BLOCKS[0 if cell.row.style == "size" else cell.axes][0]
    front = 2 if cell.channels_first else 0
    steps = np.array((1,) * front + given.block)
    starts = np.array((0,) * front + given.begins)
    sizes = net("Shape", "x")
    if not front:
        sizes = net("Slice", sizes, [1], [1 + len(given.block)])
    # TensorFlow computes in the type that it needs; few runtimes have arithmetic of small integers.
    inside = np.int32 if stored.data_type == onnx.TensorProto.INT32 else np.int64
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(inside))

    def numbers(values: np.ndarray) -> str:
        name = f"c{len(net.stored)}"
        net.stored.append(numpy_helper.from_array(values.astype(inside), name))
        return name

    if inside is np.int32:
        sizes = net("Cast", sizes, to=kind)
    if cell.row.operator == "SpaceToBatch":
        over = net("Mod", net("Add", sizes, numbers(starts)), numbers(steps))
        ends = net("Mod", net("Sub", numbers(steps), over), numbers(steps))
    else:
        left = net("Sub", net("Mul", sizes, numbers(steps)), numbers(starts))
        ends = net("Mod", left, numbers(steps + 1))
    if cell.row.style != "axes":
        columns = net("Concat", numbers(starts), ends, axis=0)
        ends = net("Transpose", net("Reshape", columns, [2, -1]), perm=[1, 0])
    net.nodes.append(helper.make_node("Cast", [ends], [stored.name], to=stored.data_type))
    nodes = [*net.nodes, *graph.node]
    del graph.node[:], graph.initializer[-1:]
    graph.node.extend(nodes)
    graph.initializer.extend(net.stored)
    return made


# ---------------------------------------------------------------- data


def feeds(cell: Cell, rng: Rng, *, recorded: bool = False) -> Feeds:
    """Return legal inputs; sizes, parameters and branches vary as far as the model allows."""
    call = cell.call(None if recorded else rng)
    shape = call.shape
    if cell.form == "subgraph_scan":
        shape = (holders.TURNS, *shape)
    if cell.form == "quantised_integers":
        levels = array(rng, cell.stored, shape).astype(np.float64) - ZERO_POINTS[cell.stored]
        x = ((levels + rng.uniform(-0.3, 0.3, shape)) * SCALE).astype(np.float32)
    else:
        x = array(rng, cell.stored if cell.form == "quantised" else cell.dtype, shape)
    found = {"x": x}
    if cell.form in ("run_time", "overridable"):
        found |= {f"p{i}": v for i, v in enumerate(_inputs(cell, call)) if i and v is not None}
    if cell.form == "subgraph_if":
        found["take"] = np.array(recorded or bool(rng.integers(4)))
    if cell.form == "function":
        found["more"] = array(rng, cell.dtype, cell.call(other=True).shape)
    return found


def array(rng: Rng, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return elements in random order, distinct if the type has enough, over all bit patterns."""
    count = prod(shape)
    order = rng.permutation(count)
    if dtype == "string":
        return np.array([f"ł{i}" if i % 4 == 0 else f"s{i}" for i in order], object).reshape(shape)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    type_ = numpy_type(dtype)
    span = 1 << 8 * type_.itemsize
    step = max(1, span // max(1, count)) | 1
    bits = [int(i) * step % span for i in order]
    return np.array(bits, f"u{type_.itemsize}").view(type_).reshape(shape)


def recorded_inputs(cell: Cell) -> Feeds:
    """Return the recorded inputs of a cell, in the order of the graph's inputs."""
    rng = np.random.default_rng(zlib.crc32(cell.name.encode()))
    given = feeds(cell, rng, recorded=True)
    return {v.name: given[v.name] for v in model(cell).graph.input if v.name in given}


@cache
def _recorded(name: str) -> list[np.ndarray]:
    cell = get(name)
    return [np.asarray(each) for each in reference.run(model(cell), recorded_inputs(cell))]


def recorded_outputs(cell: Cell) -> list[np.ndarray]:
    """Return what the definitions give for the recorded inputs."""
    return _recorded(cell.name)


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
        for index, (value, given) in enumerate(zip(values, arrays, strict=True)):
            tensor = numpy_helper.from_array(given, value.name)
            onnx.save_tensor(tensor, data / f"{kind}_{index}.pb")
    return path
