"""Record what the cells give: spatial nodes in TensorFlow or OpenVINO, the others in onnx's evaluator.

    python tests/grid/recording.py            writes outputs.pb.gz; needs models/requirements.txt
    python tests/grid/recording.py --check    writes nothing; 1 if a cell gives something else now

A model runs node by node in `onnx.reference`; where it comes to a spatial node, the kernel of
another framework moves the elements. Nothing of the package under test is used. Each result is
compared with two more: TensorFlow's kernel for whatever OpenVINO gave, and elements that are
picked by their numbers, after TensorFlow has moved the numbers.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.extend([str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "models")])

import _build  # first: it settles how TensorFlow starts

# isort: split
import numpy as np
import onnx
import onnx.inliner
import openvino
import tensorflow as tf
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from openvino import opset13

import grid
from grid import forms
from grid.blocks import BlockRow
from grid.cells import Cell
from grid.reorganised import ReorgRow
from grid.values import Array

#: What the spatial nodes are called while a cell is recorded: the evaluator would look up the
#: attributes of those that have the names of standard operators.
_DOMAIN, _OP_TYPE = "recorded.elsewhere", "Spatial"


def outputs(cell: Cell, model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """Return the outputs of the model, in their order."""
    # The evaluator does not look for new operators inside local functions.
    flat = onnx.inliner.inline_local_functions(model) if model.functions else model
    flat = onnx.ModelProto.FromString(flat.SerializeToString())
    for node in nodes(cell, flat):
        node.op_type, node.domain = _OP_TYPE, _DOMAIN
    for opset in flat.opset_import:
        # Which has QuantizeLinear from opset 19 on; with one scale it has always been the same.
        if cell.form.startswith("quantised") and not opset.domain:
            opset.version = max(opset.version, 19)
    flat.opset_import.add(domain=_DOMAIN, version=1)
    evaluator = ReferenceEvaluator(flat, new_ops=[_operator(cell)])
    found = [np.asarray(output) for output in evaluator.run(None, dict(feeds))]
    if cell.form == "subgraph_loop":  # onnx's evaluator joins the parts that ONNX stacks
        shape = cell.shapes()[1]
        found = [part.reshape(forms.TURNS, *shape) for part in found]
    return found


def nodes(cell: Cell, model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Return the spatial nodes of the model of a cell."""
    found = [*_build.all_nodes(model.graph.node)]
    for function in model.functions:
        found += _build.all_nodes(function.node)
    return [n for n in found if (n.op_type, n.domain) == (cell.row.op_type, cell.domain)]


def _operator(cell: Cell) -> type[OpRun]:
    def _run(self: OpRun, x: Array, *parameters: Array | None, **_: Any) -> tuple[Array]:
        # Read off the node: operators that ONNX does not know get no attributes passed.
        values = {a.name: onnx.helper.get_attribute_value(a) for a in self.onnx_node.attribute}
        attributes = {k: v.decode() if isinstance(v, bytes) else v for k, v in values.items()}
        return (moved(cell, x, [p for p in parameters if p is not None], attributes),)

    return type(_OP_TYPE, (OpRun,), {"op_domain": _DOMAIN, "_run": _run})


def moved(
    cell: Cell, x: Array, parameters: Sequence[Array], attributes: Mapping[str, Any]
) -> Array:
    """Return the output of a spatial node of a cell, by the recorder of the cell.

    Raises:
        SystemExit: the others that could have recorded it do not agree.
    """
    left = list(parameters)
    tables = [
        np.asarray(attributes[t.name]) if t.name in attributes else left.pop(0).astype(np.int64)
        for t in cell.tables()
    ]

    if isinstance(cell.row, ReorgRow):
        return _reorganised(cell, x)

    def tensorflow(array: Array) -> Array:
        if isinstance(cell.row, BlockRow):
            return _blocks(cell, array, tables, attributes)
        return _patches(cell, array, attributes)

    picked = _picked(x, tensorflow(np.arange(1, x.size + 1, dtype=np.int32).reshape(x.shape)))
    match grid.recorder(cell):
        case "I":
            return picked
        case "T":
            found = tensorflow(x)
        case "O":
            found = _openvino(cell, x, tables, attributes)
            _compare(cell, found, tensorflow(x))
    _compare(cell, found, picked)
    return found


def _picked(x: Array, numbers: Array) -> Array:
    """Return elements by their 1-based positions; 0 gives the padding value."""
    nothing = np.array([""], object) if x.dtype.kind in "OUST" else np.zeros(1, x.dtype)
    return np.concatenate([nothing, x.reshape(-1)])[numbers]


def _compare(cell: Cell, found: Array, other: Array) -> None:
    same = found.dtype == other.dtype and found.shape == other.shape
    if not same or found.tobytes() != other.tobytes():
        raise SystemExit(f"{cell.name}: those who could record it do not agree")


# ---------------------------------------------------------------- TensorFlow


def _blocks(cell: Cell, x: Array, tables: Sequence[Array], attributes: Mapping[str, Any]) -> Array:
    row = cell.row
    assert isinstance(row, BlockRow)
    if row.style == "size":
        (table,) = (t.reshape(-1, 2) for t in tables)
        size = attributes["block_size"]
        if row.forward:
            return _array(tf.raw_ops.SpaceToBatch(input=x, paddings=table, block_size=size))
        return _array(tf.raw_ops.BatchToSpace(input=x, crops=table, block_size=size))
    block, *amounts = tables
    table = np.stack(amounts, axis=1) if len(amounts) == 2 else amounts[0].reshape(-1, 2)
    if row.style == "axes" or attributes.get("batch_entry"):
        block, table = block[1:], table[1:]
    if row.forward:
        return _array(tf.raw_ops.SpaceToBatchND(input=x, block_shape=block, paddings=table))
    return _array(tf.raw_ops.BatchToSpaceND(input=x, block_shape=block, crops=table))


def _patches(cell: Cell, x: Array, attributes: Mapping[str, Any]) -> Array:
    if cell.row.style != "prepared":
        return _array(_build.run_spatial(cell.row.op_type, (x,), attributes))
    fields = json.loads(attributes["parameters"])
    first = fields["layout"] == "channels_first"
    kernel, strides, rates = (fields[name] for name in ("kernel", "strides", "rates"))
    if len(kernel) == 1:  # as an image of width 1
        x = x[..., np.newaxis] if first else x[:, :, np.newaxis]
        kernel, strides, rates = ([*values, 1] for values in (kernel, strides, rates))
    if len(kernel) == 2:
        x = x if first else x.transpose(0, 3, 1, 2)
        openvino_names = {"sizes": kernel, "strides": strides, "rates": rates}
        spelled = {**openvino_names, "auto_pad": fields["auto_pad"]}
        found = _array(_build.run_spatial("ExtractImagePatches", (x,), spelled))
        found = found if first else found.transpose(0, 2, 3, 1)
    else:
        x = x.transpose(0, 2, 3, 4, 1) if first else x
        spelled = {
            "ksizes": [1, *kernel, 1],
            "strides": [1, *strides, 1],
            "padding": {"same_unclamped": "SAME", "valid": "VALID"}[fields["auto_pad"]],
        }
        found = _array(_build.run_spatial("ExtractVolumePatches", (x,), spelled))
        found = found.transpose(0, 4, 1, 2, 3) if first else found
    if len(fields["kernel"]) == 1:
        found = found.squeeze(3 if first else 2)
    return np.ascontiguousarray(found)


def _array(tensor: tf.Tensor) -> Array:
    return np.asarray(tensor.numpy())


# ---------------------------------------------------------------- OpenVINO


def _reorganised(cell: Cell, x: Array) -> Array:
    # As floats, which hold every number exactly and are what its kernel computes with.
    numbers = np.arange(1, x.size + 1, dtype=np.float32).reshape(x.shape)
    picked = _picked(x, _openvino(cell, numbers, (), {}).astype(np.int32))
    if grid.recorder(cell) == "O":
        _compare(cell, _openvino(cell, x, (), {}), picked)
    return picked


def _openvino(
    cell: Cell, x: Array, tables: Sequence[Array], attributes: Mapping[str, Any]
) -> Array:
    data = opset13.parameter(list(x.shape), x.dtype)
    if isinstance(cell.row, BlockRow):
        make = opset13.space_to_batch if cell.row.forward else opset13.batch_to_space
        node = make(data, *(opset13.constant(table) for table in tables))
    elif isinstance(cell.row, ReorgRow):
        node = opset13.reorg_yolo(data, list(cell.row.windows(2, cell.form).strides[:1]))
    else:
        given = (attributes[name] for name in ("sizes", "strides", "rates", "auto_pad"))
        node = opset13.extract_image_patches(data, *given)
    # By default some processors compute in bfloat16.
    precision = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.compile_model(openvino.Model([node], [data], "cell"), "CPU", precision)
    return np.asarray(next(iter(compiled(x).values()))).copy()


# ---------------------------------------------------------------- the file


def recorded() -> bytes:
    """Return the outputs of all cells, serialized."""
    graph = onnx.GraphProto(name="outputs")
    for cell in grid.CELLS:
        model = grid.model(cell)
        arrays = outputs(cell, model, grid.recorded_inputs(cell))
        for value, array in zip(model.graph.output, arrays, strict=True):
            tensor = numpy_helper.from_array(array, f"{cell.name}/{value.name}")
            if tensor.data_type != value.type.tensor_type.elem_type:
                raise SystemExit(f"{tensor.name} is recorded in another type")
            graph.initializer.append(tensor)
    return bytes(graph.SerializeToString(deterministic=True))


def main() -> int:
    """Write the file, or compare with it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    check = parser.parse_args().check
    found = recorded()
    if check:
        same = gzip.decompress(grid.OUTPUTS.read_bytes()) == found
        print(f"{len(grid.CELLS)} cells, {'as' if same else 'not as'} recorded")
        return 0 if same else 1
    grid.OUTPUTS.write_bytes(gzip.compress(found, mtime=0))
    print(f"{len(grid.CELLS)} cells, {grid.OUTPUTS.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
