"""Read models from whatever they are given as; write them atomically, their external data beside.

Weights stay where they are: external data is never loaded, embedded weights stay inside the
ModelProto that was parsed. An output in another folder gets its own copy of the data files.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from onnx_spatial.errors import ModelFileError, UsageError
from onnx_spatial.graph import walk

Model = str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model


@dataclass(frozen=True)
class Source:
    """A model as it was read; `proto` is ours to read, never to change.

    Attributes:
        proto: the parsed model.
        path: the file it came from, if it came from one.
        data: the bytes it was parsed from, if it came as a file or bytes.
        base: the folder of its external data, where that is known without a path.
    """

    proto: onnx.ModelProto
    path: Path | None = None
    data: bytes | None = None
    base: Path | None = None

    @property
    def folder(self) -> Path | None:
        """The folder that external data is looked up in."""
        return self.path.parent if self.path is not None else self.base

    @property
    def name(self) -> str:
        """The model in messages."""
        return str(self.path) if self.path is not None else "model"


def read(model: Model) -> Source:
    """Parse a model given as path, bytes, ModelProto or onnx_ir.Model; nothing given is changed.

    Raises:
        ModelFileError: there is no such file, it is no ONNX model, or external data is missing.
    """
    if isinstance(model, onnx.ModelProto):
        source = Source(model)
    elif isinstance(model, ir.Model):
        source = Source(ir.to_proto(model), base=_base_of(model))
    elif isinstance(model, bytes):
        source = Source(_parse(model, "model"), None, model)
    elif isinstance(model, str | os.PathLike):
        path = Path(model)
        try:
            data = path.read_bytes()
        except IsADirectoryError:
            raise ModelFileError(f"{path}: is a folder, not a model file") from None
        except OSError as error:
            raise ModelFileError(f"{path}: cannot be read: {error.strerror or error}") from None
        source = Source(_parse(data, str(path)), path, data)
    else:
        raise UsageError(
            f"a model is a path, bytes, onnx.ModelProto or onnx_ir.Model, not {type(model).__name__}"
        )
    try:
        _check_functions(source)
        _check_external_data(source)
        _check_inputs(source)
    except UnicodeDecodeError:
        raise ModelFileError(f"{source.name}: is damaged: a name in it is not UTF-8 text") from None
    return source


def _base_of(model: ir.Model) -> Path | None:
    """The folder that the external tensors of an onnx_ir model speak of, if it is one."""
    graphs = (model.graph, *model.graph.subgraphs())
    tensors = (v.const_value for g in graphs for v in g.initializers.values())
    folders = {Path(t.base_dir) for t in tensors if isinstance(t, ir.ExternalTensor)}
    return folders.pop() if len(folders) == 1 else None


def _parse(data: bytes, name: str) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except (DecodeError, RuntimeError) as error:
        detail = str(error).strip()
        raise ModelFileError(
            f"{name}: is not an ONNX model, or was cut off: protobuf cannot parse its "
            f"{len(data)} bytes ({detail.removesuffix('.') or 'no detail'})"
        ) from None
    if not proto.HasField("graph") or not proto.ir_version:
        raise ModelFileError(f"{name}: is not an ONNX model: it holds no graph or no ir_version")
    return proto


def _check_functions(source: Source) -> None:
    """Functions that call each other in a ring have no meaning; every walk over them would hang."""
    calls: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for function in source.proto.functions:
        place = walk.Place((function.domain, function.name, function.overload))
        called = calls.setdefault((function.domain, function.name), set())
        called.update((n.domain, n.op_type) for _, _, n in walk.graph_nodes(place, function))
    done: set[tuple[str, str]] = set()
    while ready := [f for f in calls if f not in done and not (calls[f] & calls.keys()) - done]:
        done.update(ready)
    if ring := [f"{domain}:{name}" for domain, name in calls if (domain, name) not in done]:
        raise ModelFileError(
            f"{source.name}: functions call each other in a ring: {', '.join(sorted(ring))}"
        )


def _check_inputs(source: Source) -> None:
    """Every node must read what something gives; this also reads every name once."""
    for function in source.proto.functions:
        _check_graph(source, function, frozenset(), _place_of(function))
    _check_graph(source, source.proto.graph, frozenset(), walk.Place())


def _check_graph(
    source: Source, graph: walk.GraphLike, outer: frozenset[str], place: walk.Place
) -> None:
    given = {name for node in graph.node for name in node.output}
    if isinstance(graph, onnx.GraphProto):
        given.update(v.name for v in graph.input)
        given.update(t.name for t in graph.initializer)
        given.update(t.values.name for t in graph.sparse_initializer)
        results = [v.name for v in graph.output]
    else:
        given.update(graph.input)
        results = list(graph.output)
    visible = outer | given
    for node in graph.node:
        for name in node.input:
            if name and name not in visible:
                raise ModelFileError(
                    f"{source.name}: {node.op_type} {walk.label(node)!r} in {place} reads "
                    f"{name!r}, which nothing gives"
                )
        for step, inner in walk.subgraphs(node):
            _check_graph(source, inner, visible, place.inside(f"{node.op_type}.{step}"))
    for name in results:
        if name not in visible:
            raise ModelFileError(f"{source.name}: {place} returns {name!r}, which nothing gives")


def _place_of(function: onnx.FunctionProto) -> walk.Place:
    return walk.Place((function.domain, function.name, function.overload))


def external_tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor message whose data lies in another file."""
    for _, graph in walk.graphs(proto):
        if isinstance(graph, onnx.GraphProto):
            yield from (t for t in graph.initializer if t.data_location == t.EXTERNAL)
            for sparse in graph.sparse_initializer:
                yield from (
                    t for t in (sparse.values, sparse.indices) if t.data_location == t.EXTERNAL
                )
        for node in graph.node:
            for attribute in node.attribute:
                tensors = (attribute.t, *attribute.tensors) if attribute.HasField("t") else ()
                yield from (t for t in tensors if t.data_location == t.EXTERNAL)


def _location(tensor: onnx.TensorProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}


def _check_external_data(source: Source) -> None:
    sizes: dict[str, int] = {}
    for tensor in external_tensors(source.proto):
        entry = _location(tensor)
        location = entry.get("location", "")
        if source.folder is None:
            raise ModelFileError(
                f"{source.name}: tensor {tensor.name!r} has its data in the file {location!r}; "
                "give the model as a path so that the file can be found"
            )
        if location not in sizes:
            sizes[location] = _size_of(source, tensor.name, location)
        try:
            end = int(entry.get("offset", "0")) + int(entry.get("length", "0"))
        except ValueError:
            raise ModelFileError(
                f"{source.name}: tensor {tensor.name!r}: offset and length of its external data "
                "must be integers"
            ) from None
        if end > sizes[location]:
            raise ModelFileError(
                f"{source.name}: tensor {tensor.name!r} needs {end} bytes of {location!r}, "
                f"which has only {sizes[location]}"
            )


def _size_of(source: Source, tensor: str, location: str) -> int:
    assert source.folder is not None
    path = Path(location)
    if not location or path.is_absolute() or ".." in path.parts:
        raise ModelFileError(
            f"{source.name}: tensor {tensor!r}: external data {location!r} leaves the model's folder"
        )
    try:
        return (source.folder / path).stat().st_size
    except (OSError, ValueError):
        raise ModelFileError(
            f"{source.name}: external data file {location!r} is missing (tensor {tensor!r}); "
            "put it beside the model"
        ) from None


def resolved(source: Source) -> Source:
    """The same model with links in the way to its external data followed.

    Model hubs keep files as links to blobs in another folder. onnxruntime follows them for a model
    that it opens by path, but not for one that it is given as bytes.
    """
    folder = source.folder
    if folder is None:
        return source
    real = {location: (folder / location).resolve() for location in _locations(source)}
    if all(path.is_relative_to(folder.resolve()) for path in real.values()):
        return source
    root = Path(os.path.commonpath([path.parent for path in real.values()]))
    proto = onnx.ModelProto()
    proto.CopyFrom(source.proto)
    for tensor in external_tensors(proto):
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = str(real[entry.value].relative_to(root))
    return Source(proto, base=root)


def write(proto: onnx.ModelProto | bytes, output: str | os.PathLike[str], source: Source) -> None:
    """Write a model so that `output` holds either what it held before or all of the new model.

    External data is copied beside an output in another folder; a file there that differs from
    the one to copy is never overwritten.

    Raises:
        UsageError: output is the input.
        ModelFileError: it cannot be written.
    """
    path = Path(output)
    check_output(path, source)
    data = proto if isinstance(proto, bytes) else serialize(proto, str(path))
    copies = _copies(source, path.parent) if source.folder is not None else []
    made: list[Path] = []
    try:
        for origin, target in copies:
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                _atomically(target, lambda temporary, o=origin: shutil.copyfile(o, temporary))
                made.append(target)
        _atomically(path, lambda temporary: temporary.write_bytes(data))
    except OSError as error:
        for target in made:
            target.unlink(missing_ok=True)
        raise ModelFileError(f"{path}: cannot be written: {error.strerror or error}") from None


def check_output(path: Path, source: Source) -> None:
    """Refuse outputs that cannot be written before any work is done.

    Raises:
        UsageError: output is the input.
        ModelFileError: its folder does not exist, or it is a folder.
    """
    if source.path is not None and path.exists() and path.samefile(source.path):
        raise UsageError(f"{path}: the output must not be the input")
    for location in _locations(source):
        assert source.folder is not None
        if path.resolve() in ((source.folder / location).resolve(), _beside(path, location)):
            raise UsageError(f"{path}: is where the model's external data lies or would be copied")
    if path.exists() and not path.is_file():  # never put a file in the place of a device or pipe
        what = "a folder" if path.is_dir() else "no regular file"
        raise ModelFileError(f"{path}: cannot be written: it is {what}")
    if not path.parent.is_dir():
        raise ModelFileError(f"{path}: cannot be written: there is no folder {str(path.parent)!r}")


def _locations(source: Source) -> list[str]:
    """Files that hold external data, relative to the model's folder."""
    return list(dict.fromkeys(_location(t)["location"] for t in external_tensors(source.proto)))


def _beside(path: Path, location: str) -> Path:
    return (path.parent / location).resolve()


def serialize(proto: onnx.ModelProto, name: str = "model") -> bytes:
    """The bytes of a model.

    Raises:
        ModelFileError: it exceeds protobuf's 2 GiB.
    """
    try:
        return bytes(proto.SerializeToString())
    except (ValueError, RuntimeError, DecodeError) as error:
        raise ModelFileError(
            f"{name}: the model exceeds the 2 GiB that one protobuf file can hold; "
            f"move its weights to external data first ({error})"
        ) from None


def _copies(source: Source, folder: Path) -> list[tuple[Path, Path]]:
    assert source.folder is not None
    if folder.resolve() == source.folder.resolve():
        return []
    copies = []
    for location in _locations(source):
        origin, target = source.folder / location, folder / location
        if target.exists() and not filecmp.cmp(origin, target, shallow=False):
            raise ModelFileError(
                f"{target}: exists and differs from the model's external data; "
                "write to another folder"
            )
        copies.append((origin, target))
    return copies


def _atomically(path: Path, fill: object) -> None:
    """Fill a temporary file beside `path`, then move it there in one step."""
    assert callable(fill)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        fill(temporary)
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)  # mkstemp is private; a model file is an ordinary file
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
