"""Build models of a cell: the package's lowerings and the textbook form.

Every model goes from x to y at opset 17 and holds only the operator.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from benchmarks.grid import Cell
from onnx_spatial import lowering
from onnx_spatial.lowering import Lowered, Request
from onnx_spatial.operators import ExtractPatches
from onnx_spatial.operators.spellings import Call, FixedCall, InputFacts, NodeFacts, read

OPSET, IR_VERSION = 17, 8
_DOMAIN = "ai.onnx.converters.tensorflow"


def request(cell: Cell, *, dynamic: bool = False) -> Request:
    """Return the request of a cell, with its sizes known, or with only the channels known.

    Args:
        cell: the cell.
        dynamic: whether only the channels are known.
    """
    shape: tuple[int | None, ...] = cell.input_shape
    if dynamic:
        channel_axis = len(shape) - 1 if cell.layout == "NHWC" else 1
        shape = tuple(d if axis == channel_axis else None for axis, d in enumerate(shape))
    data = InputFacts(cell.dtype, shape)
    call = _call(cell, data)
    element_type = int(helper.np_dtype_to_tensor_dtype(np.dtype(cell.dtype)))
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType(element_type)), shape=ir.Shape(shape))
    types = (element_type, int(onnx.TensorProto.INT64), int(onnx.TensorProto.INT64))
    known = (shape, frozenset({element_type}), types, OPSET)
    return Request(call, (x, None, None), *known)


def _call(cell: Cell, data: InputFacts) -> Call:
    """Return the operator; blocks are read from TensorFlow's spelling."""
    if isinstance(cell.kernel, ExtractPatches):
        return FixedCall(cell.kernel, "tensorflow")
    block = InputFacts.of(np.array(cell.block_shape))
    pairs = InputFacts.of(np.array(cell.all_pairs))
    return read(NodeFacts(f"{cell.operator}ND", _DOMAIN, (data, block, pairs)))


def chosen(cell: Cell, *, dynamic: bool = False) -> Lowered:
    """Return the lowering that the package chooses; see `request`."""
    return lowering.lower(request(cell, dynamic=dynamic))


def candidates(cell: Cell) -> dict[str, Lowered]:
    """Return the lowering of each strategy that can lower the operator, by strategy name."""
    asked = request(cell)
    names = [candidate.lowering for candidate in lowering.rank(asked).fitting]
    return {name: lowering.lower(asked, strategy=name) for name in names}


def model_of(lowered: Lowered, cell: Cell, *, dynamic: bool = False) -> onnx.ModelProto:
    """Build a model of the nodes of a lowering."""
    nodes, tensors = serialize(lowered)
    return _model(nodes, tensors, cell, dynamic=dynamic)


def serialize(lowered: Lowered) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """Name the values of a lowering, y its output; return its nodes and constants."""
    tensors = []
    for number, (value, _) in enumerate(lowered.emitted.constants):
        value.name = f"constant_{number}"
        assert value.const_value is not None
        tensors.append(ir.serde.serialize_tensor(value.const_value))
        tensors[-1].name = value.name
    for number, node in enumerate(lowered.emitted.nodes):
        node.name = f"{node.op_type}_{number}"
        for place, value in enumerate(node.outputs):
            value.name = "y" if value is lowered.output else f"value_{number}_{place}"
    return [ir.serde.serialize_node(node) for node in lowered.emitted.nodes], tensors


def textbook(cell: Cell) -> onnx.ModelProto:
    """Build Pad, Reshape, Transpose, Reshape, Slice; for patches a Slice per position and Concat."""
    writer = _Writer()
    if cell.window is None:
        _textbook_block(cell, writer)
    else:
        _textbook_patches(cell, writer)
    stored = [numpy_helper.from_array(array, name) for name, array in writer.tensors.items()]
    return _model(writer.nodes, stored, cell)


def one_hot(cell: Cell) -> onnx.ModelProto | None:
    """Build patches of one channel as a one-hot Conv, which is exact for finite data only.

    None for other cells and element types.
    """
    if cell.window is None or cell.channels != 1 or cell.dtype != "float32":
        return None
    kernel, stride, rate = cell.window
    m, (n, last) = len(cell.size), (cell.batch, cell.layout == "NHWC")
    pairs = [cell.kernel.padding(axis, size) for axis, size in enumerate(cell.size)]  # type: ignore[union-attr]
    writer = _Writer()
    if last:
        writer.op("Reshape", [n, 1, *cell.size])
    places = kernel**m
    writer.tensors["taps"] = np.eye(places, dtype=np.float32).reshape(places, 1, *[kernel] * m)
    writer.op(
        "Conv",
        data=[writer.last, "taps"],
        strides=[stride] * m,
        dilations=[rate] * m,
        pads=[*(begin for begin, _ in pairs), *(end for _, end in pairs)],
    )
    if last:
        writer.op("Transpose", perm=[0, *range(2, m + 2), 1])
    writer.nodes[-1].output[0] = "y"
    stored = [numpy_helper.from_array(array, name) for name, array in writer.tensors.items()]
    return _model(writer.nodes, stored, cell)


class _Writer:
    """Writes a chain of nodes that starts at x."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: dict[str, np.ndarray] = {}
        self.last = "x"

    def op(
        self,
        op_type: str,
        *constants: Sequence[int],
        data: Sequence[str] = (),
        **attributes: Any,
    ) -> str:
        """Add a node on `data`, or on the output of the last node."""
        inputs = list(data or [self.last])
        for values in constants:
            inputs.append(f"c{len(self.tensors)}")
            self.tensors[inputs[-1]] = np.array(values, np.int64)
        self.last = f"t{len(self.nodes)}"
        name = f"node_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [self.last], name, **attributes))
        return self.last

    def pad(self, pairs: Sequence[tuple[int, int]], first: int, rank: int) -> None:
        """Pad the axes from `first` on with zeros, if there are any."""
        if not any(map(any, pairs)):
            return
        begins, ends = [0] * rank, [0] * rank
        for axis, (begin, end) in enumerate(pairs, start=first):
            begins[axis], ends[axis] = begin, end
        self.op("Pad", [*begins, *ends])


def _textbook_block(cell: Cell, writer: _Writer) -> None:
    m, rank = len(cell.size), len(cell.image)
    first = 1 if cell.layout == "NHWC" else 2  # of the spatial axes
    n, c = cell.batch, cell.channels
    cells = [s // b for s, b in zip(cell.padded, cell.block, strict=True)]
    offsets = [first + 2 * i + 1 for i in range(m)]  # of the blocks in [N, (C), D1/b1, b1, ..]
    if cell.operator == "SpaceToBatch":
        writer.pad(cell.pairs, first, rank)
        split = [v for pair in zip(cells, cell.block, strict=True) for v in pair]
        rest = [a for a in range(rank + m) if a not in offsets]
        writer.op("Reshape", [n, *split, c] if first == 1 else [n, c, *split])
        writer.op("Transpose", perm=[*offsets, *rest])
        writer.op("Reshape", cell.output_shape)
    else:
        _, *inner = cell.input_shape
        writer.op("Reshape", [*cell.block, n, *inner])
        perm = list(range(m, m + first))
        for i in range(m):
            perm += [m + first + i, i]
        writer.op("Transpose", perm=[*perm, *range(2 * m + first, m + rank)])
        writer.op("Reshape", [n, *cell.padded, c] if first == 1 else [n, c, *cell.padded])
        if any(map(any, cell.pairs)):
            ends = [s - end for s, (_, end) in zip(cell.padded, cell.pairs, strict=True)]
            axes = range(first, first + m)
            writer.op("Slice", [begin for begin, _ in cell.pairs], ends, axes)
    writer.nodes[-1].output[0] = "y"


def _textbook_patches(cell: Cell, writer: _Writer) -> None:
    assert cell.window is not None
    kernel, stride, rate = cell.window
    m, rank = len(cell.size), len(cell.image)
    first = 1 if cell.layout == "NHWC" else 2
    operator = cell.kernel
    pairs = [operator.padding(axis, size) for axis, size in enumerate(cell.size)]  # type: ignore[union-attr]
    writer.pad(pairs, first, rank)
    padded = writer.last
    windows = cell.output_shape[first : first + m]
    taps = []
    for position in itertools.product(range(kernel), repeat=m):
        starts = [p * rate for p in position]
        ends = [b + (count - 1) * stride + 1 for b, count in zip(starts, windows, strict=True)]
        axes = range(first, first + m)
        taps.append(writer.op("Slice", starts, ends, axes, [stride] * m, data=[padded]))
    writer.op("Concat", data=taps, axis=rank - 1 if first == 1 else 1)
    writer.nodes[-1].output[0] = "y"


def _model(
    nodes: Sequence[onnx.NodeProto],
    tensors: Sequence[onnx.TensorProto],
    cell: Cell,
    *,
    dynamic: bool = False,
) -> onnx.ModelProto:
    element_type = helper.np_dtype_to_tensor_dtype(np.dtype(cell.dtype))
    infos = []
    for name, shape in (("x", cell.input_shape), ("y", cell.output_shape)):
        dims = [f"{name}{axis}" if dynamic else d for axis, d in enumerate(shape)]
        infos.append(helper.make_tensor_value_info(name, element_type, dims))
    graph = helper.make_graph(nodes, "cell", infos[:1], infos[1:], tensors)
    imports = [helper.make_opsetid("", OPSET)]
    return helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION)
