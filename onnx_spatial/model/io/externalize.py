"""Move the weights of a model out of its file, into one file of external data beside it."""

from __future__ import annotations

from copy import deepcopy

import onnx

#: Smaller initializers stay in the model: sizes, axes and the like, which tools read as constants.
_MIN_BYTES = 1024
#: Offsets of large tensors start at a page, as ONNX recommends for files that are mapped.
_LARGE, _PAGE, _ALIGN = 65536, 4096, 64


def externalized(original: onnx.ModelProto, location: str) -> tuple[onnx.ModelProto, bytes]:
    """Move the initializers of the main graph into external data.

    Tensors of less than 1 KiB stay in the model, and so does what is no initializer or external already.

    Args:
        original: a model, which is not changed.
        location: name of the data file, beside the model.

    Returns:
        The model, and the content of the data file, which is empty if there is nothing to move.
    """
    model = deepcopy(original)
    content = bytearray()
    for tensor in model.graph.initializer:
        size = len(tensor.raw_data)
        if tensor.data_location == onnx.TensorProto.EXTERNAL or size < _MIN_BYTES:
            continue
        content += bytes(-len(content) % (_PAGE if size >= _LARGE else _ALIGN))
        offset = len(content)
        content += tensor.raw_data
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        del tensor.external_data[:]
        for key, value in (("location", location), ("offset", offset), ("length", size)):
            tensor.external_data.add(key=key, value=str(value))
    return model, bytes(content)
