"""Read models with symbolic dims fixed.

x: float[batch, H, 3], static {"batch": 4}  ->  x: float[4, H, 3]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy

import onnx

from onnx_spatial.errors import Code, UsageError
from onnx_spatial.model import traversal
from onnx_spatial.model.io import reader


def read_source(
    model: reader.Model | reader.Source, static: Mapping[str, int] | None, *, data: bool = True
) -> reader.Source:
    """Read a model and fix symbolic dims by name; with `data`, the files of external data must exist.

    Raises:
        ModelFileError: the model cannot be read.
        UsageError: a size is negative, or the model has no dim of that name.
    """
    source = reader.read(model, data=data)
    if not static:
        return source
    for name, size in static.items():
        if size < 0:
            raise UsageError(f"the size of dim {name} must be 0 or more, not {size}")
    copy, missing = freeze(source.proto, dict(static))
    if missing:
        names = ", ".join(sorted(missing))
        raise UsageError(f"the model has no symbolic dim named {names}", code=Code.UNKNOWN_NAME)
    return source.holding(copy)


def freeze(proto: onnx.ModelProto, sizes: dict[str, int]) -> tuple[onnx.ModelProto, set[str]]:
    """Replace symbolic dims by sizes, in a copy; also return the names that the model lacks."""
    copy = deepcopy(proto)
    replaced: set[str] = set()
    for _, graph in traversal.graphs(copy):
        infos = list(graph.value_info)
        if isinstance(graph, onnx.GraphProto):
            infos += [*graph.input, *graph.output]
        for info in infos:
            for dim in _dims(info.type):
                if dim.dim_param in sizes:
                    replaced.add(dim.dim_param)
                    dim.dim_value = sizes[dim.dim_param]
    return copy, sizes.keys() - replaced


def _dims(known: onnx.TypeProto) -> Iterator[onnx.TensorShapeProto.Dimension]:
    """Yield the dims of a tensor type, or of the tensors in a sequence, optional or map type."""
    kind = known.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        yield from getattr(known, kind).shape.dim
    elif kind in ("sequence_type", "optional_type"):
        yield from _dims(getattr(known, kind).elem_type)
    elif kind == "map_type":
        yield from _dims(known.map_type.value_type)
