"""Read models given as path, bytes, ModelProto or onnx_ir.Model; none of these is changed.

    x: float[batch, H, 3], static {"batch": 4}  ->  x: float[4, H, 3]

Weights of external data stay on disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from numbers import Integral
from pathlib import Path

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from onnx_spatial.errors import Code, ModelFileError, UsageError
from onnx_spatial.model import traversal
from onnx_spatial.model.io import external_data, other_formats, validate
from onnx_spatial.model.io.source import Model, Source, of_ir

__all__ = ["Model", "Source", "freeze_dims", "read", "read_source", "resolved", "serialize"]

#: protobuf's message, for valid and invalid data, where its memory runs out.
_NO_MEMORY = "Arena alloc failed"


def read(model: Model | Source, *, data: bool = True) -> Source:
    """Parse and check a model.

    Args:
        model: the model; of a `Source` only the external data is checked.
        data: whether the files of its external data must exist.

    Raises:
        ModelFileError: there is no such file, it is not a valid ONNX model, or external data is
            missing; of a model of another framework the message says how to export it.
        MemoryError: there is too little memory to parse it.
    """
    try:
        return _read_form(model, data)
    except UnicodeDecodeError:
        name = model if isinstance(model, str | os.PathLike) else "model"
        raise ModelFileError(
            f"{name}: is damaged: a name in it is not UTF-8 text", code=Code.DAMAGED
        ) from None
    except ModelFileError as error:
        if isinstance(model, str | os.PathLike) and error.code in (Code.UNREADABLE, Code.NOT_ONNX):
            advice = other_formats.advise_export(Path(model))
            if advice is not None:
                raise ModelFileError(f"{model}: {advice}", code=Code.EXPORT_FIRST) from None
        raise


def _read_form(model: Model | Source, data: bool) -> Source:
    if isinstance(model, Source):
        external_data.check_data(model, files=data)
        return model
    if isinstance(model, onnx.ModelProto):
        source = Source(model)
    elif isinstance(model, ir.Model):
        source = of_ir(model)
    elif isinstance(model, bytes):
        source = Source(_parse_bytes(model, "model"), data=model)
    elif isinstance(model, str | os.PathLike):
        source = _read_file(Path(model))
    else:
        raise UsageError(
            f"a model is a path, bytes, onnx.ModelProto or onnx_ir.Model, not {type(model).__name__}"
        )
    if not source.proto.HasField("graph") or not source.proto.ir_version:
        reason = "it is empty" if source.data == b"" else "it holds no graph or no ir_version"
        raise ModelFileError(f"{source.name}: is not an ONNX model: {reason}", code=Code.NOT_ONNX)
    validate.check(source.proto, source.name)
    external_data.check_data(source, files=data)
    return source


def _read_file(path: Path) -> Source:
    try:
        data = path.read_bytes()
    except ValueError as error:  # a path that no system call takes
        raise ModelFileError(f"{str(path)!r}: cannot be read: {error}") from None
    except OSError as error:
        if os.path.isdir(path):  # noqa: PTH112  systems say it in several ways; this one never raises
            raise ModelFileError(_is_a_folder(path)) from None
        raise ModelFileError(f"{path}: cannot be read: {error.strerror or error}") from None
    return Source(_parse_bytes(data, str(path)), path, data)


def _is_a_folder(path: Path) -> str:
    """Return the message for a folder in the place of a file; it names a model in the folder."""
    models: list[Path] = []
    with suppress(OSError):
        models = sorted(each for each in path.glob("*.onnx") if each.is_file())
    instead = "a file, as no .onnx file is in it"
    if models:
        instead = f"a file in it, such as {models[0]}, or give it to `onnx-spatial validate`"
    return f"{path}: is a folder, not a model file; name {instead}"


def _parse_bytes(data: bytes, name: str) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except (DecodeError, RuntimeError) as error:
        if other_formats.is_lfs_pointer(data):
            raise ModelFileError(
                f"{name}: {other_formats.LFS_ADVICE}", code=Code.GIT_LFS_POINTER
            ) from None
        if _NO_MEMORY in str(error):
            raise MemoryError from None
        detail = str(error).strip()
        raise ModelFileError(
            f"{name}: is not an ONNX model, or was cut off: protobuf cannot parse its "
            f"{len(data)} bytes ({detail.removesuffix('.') or 'no detail'})",
            code=Code.NOT_ONNX,
        ) from None
    return proto


def read_source(
    model: Model | Source, static: Mapping[str, int] | None, *, data: bool = True
) -> Source:
    """Read a model and fix symbolic dims by name; with `data`, the files of external data must exist.

    Raises:
        ModelFileError: the model cannot be read.
        UsageError: a size cannot be that of a dim, or the model has no dim of that name.
    """
    source = read(model, data=data)
    if not static:
        return source
    for name, size in static.items():
        if not isinstance(size, Integral) or isinstance(size, bool) or size < 0:
            raise UsageError(f"the size of dim {name} must be 0 or more, not {size!r}")
        if size >= 2**63:
            raise UsageError(f"the size of dim {name} must be below 2^63, not {size}")
    copy, missing = freeze_dims(source.proto, dict(static))
    if missing:
        names = ", ".join(sorted(missing))
        raise UsageError(f"the model has no symbolic dim named {names}", code=Code.UNKNOWN_NAME)
    return source.holding(copy)


def freeze_dims(proto: onnx.ModelProto, sizes: dict[str, int]) -> tuple[onnx.ModelProto, set[str]]:
    """Replace symbolic dims by sizes, in a copy; also return the names that the model lacks."""
    copy = deepcopy(proto)
    replaced: set[str] = set()
    for _, graph in traversal.graphs(copy):
        for value in traversal.declared_values(graph):
            for dim in _tensor_dims(value.type):
                if dim.dim_param in sizes:
                    replaced.add(dim.dim_param)
                    dim.dim_value = sizes[dim.dim_param]
    return copy, sizes.keys() - replaced


def _tensor_dims(known: onnx.TypeProto) -> Iterator[onnx.TensorShapeProto.Dimension]:
    """Yield the dims of a tensor type, or of the tensors in a sequence, optional or map type."""
    kind = known.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        yield from getattr(known, kind).shape.dim
    elif kind in ("sequence_type", "optional_type"):
        yield from _tensor_dims(getattr(known, kind).elem_type)
    elif kind == "map_type":
        yield from _tensor_dims(known.map_type.value_type)


def resolved(source: Source) -> Source:
    """Resolve the links in the paths of a model's external data.

    Model hubs keep files as links to blobs in another folder. onnxruntime follows them for a model
    that it opens by path, but not for one that it gets as bytes.
    """
    folder = source.folder
    if folder is None:
        return source
    locations = external_data.locations(source)
    real = {location: (folder / location).resolve() for location in locations}
    if all(path.is_relative_to(folder.resolve()) for path in real.values()):
        return source
    try:
        root = Path(os.path.commonpath([path.parent for path in real.values()]))
        names = {name: path.relative_to(root).as_posix() for name, path in real.items()}
        return Source(external_data.with_locations(source.proto, names), base=root)
    except ValueError:  # on several drives, or in a folder whose name is not text
        return source


def serialize(proto: onnx.ModelProto, name: str = "model") -> bytes:
    """Serialize a model.

    Raises:
        ModelFileError: the model exceeds protobuf's 2 GiB.
    """
    try:
        return bytes(proto.SerializeToString())
    except (ValueError, RuntimeError, DecodeError) as error:
        raise ModelFileError(
            f"{name}: the model exceeds the 2 GiB that one protobuf file can hold; "
            f"move its weights to external data first ({error})",
            code=Code.TOO_LARGE,
        ) from None
