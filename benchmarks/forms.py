"""Build models of a cell, from x to y at opset 17: the operator, its lowerings, and the textbook form.

blocks    Pad, Reshape, Transpose, Reshape, Slice
patches   Pad, a Slice for each position in the window, Concat
"""

import itertools
from collections.abc import Sequence

import numpy as np
import onnx
from building import OPENVINO, TF, one_node
from chain_models import Net
from onnx import helper

import onnx_spatial
from benchmarks.grid import Cell
from onnx_spatial.conversion.options import LOWERING_NAMES

OPSET = 17


def spatial(cell: Cell) -> onnx.ModelProto:
    """Build a model of the operator: blocks and NHWC as TensorFlow, patches in NCHW as OpenVINO."""
    x = np.broadcast_to(np.zeros((), cell.dtype), cell.input_shape)
    if cell.window is None:
        tables = np.array(cell.block_shape), np.array(cell.all_pairs)
        return one_node(f"{cell.operator}ND", (x, *tables), opset=OPSET)
    last, axes = cell.layout == "NHWC", len(cell.size)
    named = zip(("ksizes" if last else "sizes", "strides", "rates"), cell.window, strict=True)
    attributes: dict[str, object] = {name: [value] * axes for name, value in named}
    if last:
        attributes = {name: [1, *values, 1] for name, values in attributes.items()}  # type: ignore[misc]
        attributes["padding"] = cell.amounts
        if axes == 3:
            del attributes["rates"]
    else:
        attributes["auto_pad"] = "same_upper" if cell.amounts == "SAME" else "valid"
    op_type = "ExtractImagePatches" if axes == 2 else "ExtractVolumePatches"
    return one_node(op_type, (x,), domain=TF if last else OPENVINO, opset=OPSET, **attributes)


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
    net = Net(OPSET)
    y = _textbook_block(cell, net) if cell.window is None else _textbook_patches(cell, net)
    model = net.model(cell.input_shape, y)
    element_type = helper.np_dtype_to_tensor_dtype(np.dtype(cell.dtype))
    model.graph.output[0].CopyFrom(
        helper.make_tensor_value_info("y", element_type, cell.output_shape)
    )
    model.graph.input[0].type.tensor_type.elem_type = element_type
    model.graph.node[-1].output[0] = "y"
    return model


def _padded(net: Net, pairs: Sequence[tuple[int, int]], first: int, rank: int) -> str:
    """Pad the axes of x from `first` on with zeros, if there are any."""
    if not any(map(any, pairs)):
        return "x"
    behind = [(0, 0)] * (rank - first - len(pairs))
    begins, ends = zip(*[(0, 0)] * first, *pairs, *behind, strict=True)
    return str(net("Pad", "x", [*begins, *ends]))


def _textbook_block(cell: Cell, net: Net) -> str:
    m, rank = len(cell.size), len(cell.image)
    first = 1 if cell.layout == "NHWC" else 2  # of the spatial axes
    n, c = cell.batch, cell.channels
    cells = [s // b for s, b in zip(cell.padded, cell.block, strict=True)]
    offsets = [first + 2 * i + 1 for i in range(m)]  # of the blocks in [N, (C), D1/b1, b1, ..]
    if cell.operator == "SpaceToBatch":
        x = _padded(net, cell.pairs, first, rank)
        split = [v for pair in zip(cells, cell.block, strict=True) for v in pair]
        rest = [a for a in range(rank + m) if a not in offsets]
        x = net("Reshape", x, [n, *split, c] if first == 1 else [n, c, *split])
        x = net("Transpose", x, perm=[*offsets, *rest])
        return str(net("Reshape", x, cell.output_shape))
    _, *inner = cell.input_shape
    x = net("Reshape", "x", [*cell.block, n, *inner])
    perm = list(range(m, m + first))
    for i in range(m):
        perm += [m + first + i, i]
    x = net("Transpose", x, perm=[*perm, *range(2 * m + first, m + rank)])
    x = net("Reshape", x, [n, *cell.padded, c] if first == 1 else [n, c, *cell.padded])
    if any(map(any, cell.pairs)):
        ends = [s - end for s, (_, end) in zip(cell.padded, cell.pairs, strict=True)]
        begins, axes = [begin for begin, _ in cell.pairs], [*range(first, first + m)]
        x = net("Slice", x, begins, ends, axes)
    return str(x)


def _textbook_patches(cell: Cell, net: Net) -> str:
    assert cell.window is not None
    kernel, stride, rate = cell.window
    m, rank = len(cell.size), len(cell.image)
    first = 1 if cell.layout == "NHWC" else 2
    pairs = [cell.kernel.padding(axis, size) for axis, size in enumerate(cell.size)]  # type: ignore[union-attr]
    padded = _padded(net, pairs, first, rank)
    windows, axes, taps = cell.output_shape[first : first + m], [*range(first, first + m)], []
    for position in itertools.product(range(kernel), repeat=m):
        starts = [p * rate for p in position]
        ends = [b + (count - 1) * stride + 1 for b, count in zip(starts, windows, strict=True)]
        taps.append(net("Slice", padded, starts, ends, axes, [stride] * m))
    return str(net("Concat", *taps, axis=rank - 1 if first == 1 else 1))
