"""Check, read, compare and write external data: tensors with their bytes in other files of the folder.

onnx's own loader is not used: it refuses links, also hard links, which onnxruntime follows and of
which the caches of model hubs and package installers consist.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from copy import deepcopy
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

from onnx_spatial.errors import Code, ModelFileError
from onnx_spatial.model import traversal
from onnx_spatial.model.io import other_formats
from onnx_spatial.model.io.atomic import CHUNK_BYTES
from onnx_spatial.model.io.source import Source

#: Smaller initializers stay in the model: sizes, axes and the like, which tools read as constants.
_MIN_BYTES = 1024
#: Offsets of large tensors start at a page, as ONNX recommends for files that are mapped.
_LARGE, _PAGE, _ALIGN = 65536, 4096, 64

_TYPED = ("float_data", "double_data", "int32_data", "int64_data", "uint64_data")


def locations(source: Source) -> list[str]:
    """Return the files of the external data, relative to the model's folder."""
    return list(dict.fromkeys(_entries_of(t).get("location", "") for t in source.external_tensors))


def _entries_of(tensor: onnx.TensorProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}


def check_data(source: Source, *, files: bool = True) -> None:
    """Check that every external tensor is in a file of the model's folder that is long enough.

    Args:
        source: the model.
        files: also check the files. They may be missing where only the graph is rewritten:
            onnxruntime takes data from memory, too (`SessionOptions.add_external_initializers`).

    Raises:
        ModelFileError: an entry is invalid, or a file is missing or too short.
    """
    sizes: dict[str, int] = {}
    for tensor in source.external_tensors:
        entry = _entries_of(tensor)
        location = entry.get("location", "")
        if any(isinstance(text, bytes) for text in (*entry, *entry.values())):  # invalid UTF-8
            raise _refuse_data(
                f"is damaged: the external data entry of tensor {tensor.name!r} is not UTF-8 text",
                *(source, Code.DAMAGED),
            )
        try:
            offset, length = int(entry.get("offset", "0")), int(entry.get("length", "0"))
        except ValueError:
            offset = length = -1
        if min(offset, length) < 0:
            raise _refuse_data(
                f"tensor {tensor.name!r}: offset and length of its external data must be integers, "
                "0 or more",
                source,
            )
        if not files:
            continue
        if source.folder is None:
            raise _refuse_data(
                f"tensor {tensor.name!r} has its data in the file {location!r}; give the model as a "
                "path so that the file can be found",
                source,
            )
        if location not in sizes:
            sizes[location] = _size_of(source, source.folder, tensor.name, location)
        if offset + length > sizes[location]:
            if other_formats.is_lfs_pointer_file(source.folder / location):
                advice = f"external data {location!r} {other_formats.LFS_ADVICE}"
                raise _refuse_data(advice, source, Code.GIT_LFS_POINTER)
            raise _refuse_data(
                f"tensor {tensor.name!r} needs {offset + length} bytes of {location!r}, which has "
                f"only {sizes[location]}",
                source,
            )


def _refuse_data(text: str, source: Source, code: Code = Code.EXTERNAL_DATA) -> ModelFileError:
    return ModelFileError(f"{source.name}: {text}", code=code)


def _size_of(source: Source, folder: Path, tensor: str, location: str) -> int:
    what = f"tensor {tensor!r}: external data {location!r}"
    if _is_outside(location):
        raise _refuse_data(f"{what} leaves the model's folder", source)
    try:
        path = folder / location
        if source.path is not None and path.samefile(source.path):
            raise _refuse_data(f"{what} is the model itself", source)
        if not path.is_file():
            raise _refuse_data(f"{what} is no regular file", source)
        return path.stat().st_size
    except (OSError, ValueError):
        raise _refuse_data(
            f"external data file {location!r} is missing (tensor {tensor!r}); "
            "put it beside the model",
            source,
        ) from None


def _is_outside(location: str) -> bool:
    """Tell whether a location is empty or outside the model's folder."""
    path = Path(location)
    return not location or bool(path.anchor) or ".." in path.parts


def with_locations(model: onnx.ModelProto, names: Mapping[str, str]) -> onnx.ModelProto:
    """Return a copy of a model whose external data files have other names (old -> new)."""
    copy = deepcopy(model)
    for tensor in traversal.tensors(copy):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = names.get(entry.value, entry.value)
    return copy


def read_content(tensor: onnx.TensorProto, folder: Path | None) -> npt.NDArray[np.uint8]:
    """Read the bytes of an external tensor, as many as its shape needs.

    Args:
        tensor: the tensor.
        folder: the folder of its model.

    Raises:
        OSError: the file cannot be read.
        ValueError: the location is outside the folder, or the file is too short.
        TypeError: the element type has no fixed size.
    """
    entry = _entries_of(tensor)
    location = entry.get("location", "")
    if folder is None or _is_outside(location):
        raise ValueError(f"its data is in {location!r}, which is not in the model's folder")
    bits = ir.DataType(tensor.data_type).bitwidth * math.prod(max(dim, 0) for dim in tensor.dims)
    with (folder / location).open("rb") as file:
        file.seek(int(entry.get("offset", "0")))
        data = np.fromfile(file, np.uint8, -(-bits // 8))
    if 8 * data.size < bits:
        raise ValueError(f"its data in {location!r} is cut off")
    return data


def read_array(tensor: onnx.TensorProto, folder: Path | None) -> npt.NDArray[Any]:
    """Read a tensor, embedded or external, as an array; see `read_content`."""
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return onnx.numpy_helper.to_array(tensor)
    kind = ir.DataType(tensor.data_type)
    if kind.bitwidth >= 8:
        return read_content(tensor, folder).view(kind.numpy()).reshape(tuple(tensor.dims))
    copy = deepcopy(tensor)
    embed_content(copy, folder)
    return onnx.numpy_helper.to_array(copy)


def embed_content(tensor: onnx.TensorProto, folder: Path | None) -> None:
    """Read the bytes of an external tensor into its message, in place; see `read_content`."""
    data = read_content(tensor, folder).tobytes()
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")
    tensor.raw_data = data


def embed_all(model: onnx.ModelProto, folder: Path | None) -> None:
    """Read the bytes of all external tensors into a model, in place; see `read_content`."""
    for tensor in traversal.tensors(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            embed_content(tensor, folder)


def are_same(
    a: onnx.TensorProto, a_folder: Path | None, b: onnx.TensorProto, b_folder: Path | None
) -> bool:
    """Tell whether two tensors have equal fields and equal bytes, embedded or external."""
    external = onnx.TensorProto.EXTERNAL
    if external not in (a.data_location, b.data_location):
        return bool(a == b)
    if _without_data(a) != _without_data(b):
        return False
    if (
        a.data_location == b.data_location
        and a_folder == b_folder
        and _entries_of(a) == _entries_of(b)
    ):
        return True  # the same range of the same file
    pairs = zip_longest(_read_chunks(a, a_folder), _read_chunks(b, b_folder))
    try:
        return all(one == other for one, other in pairs)
    except (OSError, ValueError):
        return False


def _without_data(tensor: onnx.TensorProto) -> onnx.TensorProto:
    copy = deepcopy(tensor)
    for field in ("raw_data", "external_data", "data_location", *_TYPED):
        copy.ClearField(field)
    return copy


def _read_chunks(tensor: onnx.TensorProto, folder: Path | None) -> Iterator[bytes]:
    """Yield the bytes of a tensor in chunks of equal size."""
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        data = ir.serde.TensorProtoTensor(tensor).tobytes()
        yield from (data[i : i + CHUNK_BYTES] for i in range(0, len(data), CHUNK_BYTES))
        return
    entry = _entries_of(tensor)
    path = (folder or Path()) / entry["location"]
    offset = int(entry.get("offset", "0"))
    left = int(entry.get("length", "0")) or path.stat().st_size - offset
    with path.open("rb") as file:
        file.seek(offset)
        while left > 0 and (chunk := file.read(min(left, CHUNK_BYTES))):
            left -= len(chunk)
            yield chunk


def externalize_weights(original: onnx.ModelProto, location: str) -> tuple[onnx.ModelProto, bytes]:
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
