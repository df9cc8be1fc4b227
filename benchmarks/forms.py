"""Build models of a cell, from x to y at opset 17: the operator, its lowerings, and the textbook form.

blocks    Pad, Reshape, Transpose, Reshape, Slice
patches   Pad, a Slice for each position in the window, Concat
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import onnx_spatial
from benchmarks.grid import Cell
from onnx_spatial.conversion.options import LOWERING_NAMES

OPSET, IR_VERSION = 17, 8
TENSORFLOW, OPENVINO = "ai.onnx.converters.tensorflow", "org.openvinotoolkit"


def spatial(cell: Cell) -> onnx.ModelProto:
    """Build a model of the operator: blocks and NHWC as TensorFlow, patches in NCHW as OpenVINO."""
    if cell.window is None:
        tables = {"block": np.array(cell.block_shape), "pads": np.array(cell.all_pairs)}
        node = helper.make_node(
            f"{cell.operator}ND", ["x", *tables], ["y"], "op", domain=TENSORFLOW
        )
        stored = [numpy_helper.from_array(array, name) for name, array in tables.items()]
        return _model([node], stored, cell)
    last = cell.layout == "NHWC"
    sizes, strides, rates = ([value] * len(cell.size) for value in cell.window)
    attributes: dict[str, object] = {"ksizes" if last else "sizes": sizes, "strides": strides}
    if last:
        attributes = {name: [1, *value, 1] for name, value in attributes.items()}  # type: ignore[misc]
        attributes["padding"] = cell.amounts
        if len(cell.size) == 2:  # volumes have none
            attributes["rates"] = [1, *rates, 1]
    else:
        attributes["rates"] = rates
        attributes["auto_pad"] = "same_upper" if cell.amounts == "SAME" else "valid"
    op_type = "ExtractImagePatches" if len(cell.size) == 2 else "ExtractVolumePatches"
    domain = TENSORFLOW if last else OPENVINO
    return _model(
        [helper.make_node(op_type, ["x"], ["y"], "op", domain=domain, **attributes)], [], cell
    )


def lowered(cell: Cell) -> tuple[str, dict[str, onnx.ModelProto]]:
    """Return the name of the lowering that is chosen, and the model of each that applies."""
    chosen, models = "", {}
    for name in (None, *LOWERING_NAMES):
        made = onnx_spatial.convert(spatial(cell), prefer=name, fuse=False, verify=False)
        used = str(made.operators[0].lowering)
        chosen = chosen or used
        models[used] = made.model
    return chosen, models


def textbook(cell: Cell) -> onnx.ModelProto:
    """Build Pad, Reshape, Transpose, Reshape, Slice; for patches a Slice per position and Concat."""
    writer = _Writer()
    if cell.window is None:
        _textbook_block(cell, writer)
    else:
        _textbook_patches(cell, writer)
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
    nodes: Sequence[onnx.NodeProto], tensors: Sequence[onnx.TensorProto], cell: Cell
) -> onnx.ModelProto:
    element_type = helper.np_dtype_to_tensor_dtype(np.dtype(cell.dtype))
    shapes = {"x": cell.input_shape, "y": cell.output_shape}
    x, y = (helper.make_tensor_value_info(n, element_type, s) for n, s in shapes.items())
    graph = helper.make_graph(nodes, "cell", [x], [y], tensors)
    imports = [helper.make_opsetid("", OPSET)]
    imports += [helper.make_opsetid(domain, 1) for domain in (TENSORFLOW, OPENVINO)]
    return helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION)
