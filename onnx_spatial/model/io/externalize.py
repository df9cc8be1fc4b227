"""Move the weights of a model out of its file, into one file of external data beside it."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import onnx

from onnx_spatial.model.io.byte_ranges import Content, Range, size_of
from onnx_spatial.model.io.source import Source

#: Smaller initializers stay in the model: sizes, axes and the like, which tools read as constants.
_MIN_BYTES = 1024
#: Offsets of large tensors start at a page, as ONNX recommends for files that are mapped.
_LARGE, _PAGE, _ALIGN = 65536, 4096, 64


def externalized(source: Source, location: str) -> tuple[Source, Content | None]:
    """Move the initializers of the main graph into external data.

    Tensors of less than 1 KiB stay in the model, and so does what is no initializer or external already.

    Args:
        source: a model, with its large weights in memory or still in the file that it was read from.
        location: name of the data file, beside the model.

    Returns:
        The model, and the content of the data file; None if there is nothing to move.
    """
    model = deepcopy(source.proto)
    parts: list[bytes | Range] = []
    position = 0
    for tensor in model.graph.initializer:
        data = _data(source, tensor)
        if data is None or (size := size_of(data)) < _MIN_BYTES:
            continue
        gap = -position % (_PAGE if size >= _LARGE else _ALIGN)
        parts += [bytes(gap), data]
        position += gap
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        del tensor.external_data[:]
        for key, value in (("location", location), ("offset", position), ("length", size)):
            tensor.external_data.add(key=key, value=str(value))
        position += size
    if not parts:
        return source, None
    file = None if source.weights is None else source.weights.file
    return replace(source, proto=model, data=None), Content(parts, file)


def _data(source: Source, tensor: onnx.TensorProto) -> bytes | Range | None:
    """Return the bytes of an embedded tensor, or where they are in the model's file."""
    if source.weights is not None and (place := source.weights.range_of(tensor)) is not None:
        return place
    if tensor.data_location == onnx.TensorProto.EXTERNAL or not tensor.HasField("raw_data"):
        return None
    return bytes(tensor.raw_data)
