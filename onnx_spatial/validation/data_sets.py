"""Read recorded data: inputs of a model and the outputs that it computed from them.

    test_data_set_N/input_I.pb, output_I.pb   as in the ONNX model zoo and onnxruntime's test runners
    NAME.npz beside NAME.onnx                 arrays by the names of inputs and outputs

A .pb file holds a TensorProto, or a SequenceProto or OptionalProto if the model declares one. It
belongs to the input or output of its name, or else to the I-th one. As in onnxruntime's test runners,
the data sets in a folder belong to every model in it.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import numpy_helper

from onnx_spatial.errors import Code, ModelFileError, UsageError
from onnx_spatial.model import traversal
from onnx_spatial.model.io import other_formats
from onnx_spatial.verification.options import Array
from onnx_spatial.verification.run.data import check_user_data, graph_inputs

_SET = re.compile(r"test_data_set_(\d+)")

#: An array, a list of arrays (a sequence), or None (an empty optional).
Value = Any


@dataclass(frozen=True)
class DataSet:
    """A set of recorded data.

    Attributes:
        name: name of its folder or archive.
        inputs, outputs: values by name; outputs may be missing.
        unknown: names that the model does not have.
    """

    name: str
    inputs: dict[str, Value]
    outputs: dict[str, Value]
    unknown: tuple[str, ...] = ()

    @property
    def dense(self) -> bool:
        """Whether every input is an array."""
        return all(isinstance(value, np.ndarray) for value in self.inputs.values())


def find(model: Path) -> list[Path]:
    """Find the recorded data of a model: folders by number, then the archive; also dangling links."""
    try:
        folders = [p for p in model.parent.iterdir() if _SET.fullmatch(p.name) and not p.is_file()]
    except OSError:  # a folder without permission to list it
        folders = []
    sets = sorted(folders, key=lambda p: (int(p.name.removeprefix("test_data_set_")), p.name))
    archive = model.with_suffix(".npz")
    exists = archive.is_file() or archive.is_symlink()
    return [*sets, archive] if exists and archive != model else sets


def read(path: Path, model: onnx.ModelProto) -> DataSet:
    """Read recorded data and check it against what the model declares.

    Raises:
        UsageError: it does not fit the model's inputs or outputs.
        ModelFileError: it cannot be read.
    """
    if not path.exists():
        raise ModelFileError(f"{path}: is a link to a missing file", code=Code.DATA_FILE)
    if path.is_dir():
        declared = list(model.graph.output)
        outputs = _read_files(path, "output", declared, declared)
        data = DataSet(path.name, _read_inputs(path, model), outputs)
    else:
        data = _read_archive(path, model)
    if data.dense:
        try:
            check_user_data(graph_inputs(model), data.inputs)
        except UsageError as error:
            raise UsageError(f"{path}: {error}", code=Code.INPUT_DATA) from None
    return data


def inputs(path: Path, model: onnx.ModelProto) -> dict[str, Array]:
    """Read only the inputs in a folder or an archive, by name.

    Raises:
        UsageError: one is missing.
        ModelFileError: it cannot be read.
    """
    return _read_inputs(path, model) if path.is_dir() else _read_archive(path, model).inputs


def _read_inputs(folder: Path, model: onnx.ModelProto) -> dict[str, Value]:
    """Read every input without a default, and those with a default that a file names."""
    declared = traversal.required_inputs(model)
    return _read_files(folder, "input", declared, model.graph.input, range(len(declared)))


def _read_files(
    folder: Path,
    kind: str,
    declared: Sequence[onnx.ValueInfoProto],
    known: Iterable[onnx.ValueInfoProto],
    needed: Iterable[int] = (),
) -> dict[str, Value]:
    """Read the inputs or outputs in a folder, by name.

    Args:
        folder: folder of the data set.
        kind: "input" or "output".
        declared: the inputs or outputs that the numbers of the files refer to.
        known: the inputs or outputs that files may name.
        needed: numbers that must exist.

    Raises:
        UsageError: a file is missing, or there are more than the model has.
    """
    by_name = {v.name: v for v in known}
    matches = (re.fullmatch(rf"{kind}_(\d+)\.pb", p.name) for p in folder.iterdir())
    values: dict[str, Value] = {}
    for number in sorted({*needed, *(int(match[1]) for match in matches if match)}):
        path = folder / f"{kind}_{number}.pb"
        info = declared[number] if number < len(declared) else None
        name, value = _read_file(path, by_name, info)
        if info is None and name not in by_name:
            count = f"{len(declared)} {kind}{'' if len(declared) == 1 else 's'}"
            named = f", none of them called {name!r}" if name else ""
            raise UsageError(f"{path}: the model has only {count}{named}", code=Code.INPUT_DATA)
        if name in values:
            raise UsageError(
                f"{path}: {kind} {name!r} is in another file too", code=Code.INPUT_DATA
            )
        values[name] = value
    return values


def _read_file(
    path: Path, by_name: Mapping[str, onnx.ValueInfoProto], info: onnx.ValueInfoProto | None
) -> tuple[str, Value]:
    """Read (name, value) from a file.

    Args:
        path: the file.
        by_name: the inputs or outputs that it may name.
        info: the one that its number refers to, if any. The file does not say whether it holds a
            tensor, a sequence or an optional; its declaration does.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        name = "" if info is None else info.name
        raise UsageError(
            f"{path}: is missing; input {name!r} has no data", code=Code.INPUT_DATA
        ) from None
    except OSError as error:
        raise ModelFileError(
            f"{path}: cannot be read: {error.strerror or error}", code=Code.DATA_FILE
        ) from None
    kind = "tensor_type" if info is None else info.type.WhichOneof("value") or "tensor_type"
    if kind not in _MESSAGES:
        what = kind.removesuffix("_type").replace("_", " ")
        raise UsageError(
            f"{path}: {info.name if info else ''!r} is a {what}, which is not supported",
            code=Code.INPUT_DATA,
        )
    message, to_value = _MESSAGES[kind]
    try:
        proto = message.FromString(data)
        value = to_value(proto)
    except (DecodeError, ValueError, TypeError, RuntimeError, OverflowError) as error:
        reason = f"is not a serialized {message.__name__} ({error if data else 'it is empty'})"
        reason = other_formats.LFS_ADVICE if other_formats.is_lfs_pointer(data) else reason
        raise ModelFileError(f"{path}: {reason}", code=Code.DATA_FILE) from None
    if isinstance(value, np.ndarray) and value.dtype.kind in "UST":
        value = value.astype(object)
    return (proto.name if info is None or proto.name in by_name else info.name), value


_MESSAGES: dict[str, tuple[Any, Any]] = {
    "tensor_type": (onnx.TensorProto, numpy_helper.to_array),
    "sequence_type": (onnx.SequenceProto, numpy_helper.to_list),
    "optional_type": (onnx.OptionalProto, numpy_helper.to_optional),
}


def _read_archive(path: Path, model: onnx.ModelProto) -> DataSet:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, zipfile.BadZipFile, AttributeError, EOFError) as error:
        raise ModelFileError(
            f"{path}: is not an .npz file ({error})", code=Code.DATA_FILE
        ) from None
    names = [v.name for v in traversal.required_inputs(model)]
    inputs = _by_name(arrays, names)
    if len(inputs) < len(names):
        missing = ", ".join(n for n in names if n not in inputs)
        raise UsageError(
            f"{path}: has no array for {missing}; it has {', '.join(arrays) or 'none'}",
            code=Code.INPUT_DATA,
        )
    outputs = _by_name(arrays, [v.name for v in model.graph.output])
    used = {n for name in (*inputs, *outputs) for n in (name, name.removesuffix(":0"))}
    return DataSet(path.name, inputs, outputs, tuple(n for n in arrays if n not in used))


def _by_name(arrays: Mapping[str, Array], names: Sequence[str]) -> dict[str, Array]:
    """Return arrays by the names of the model; an archive may say "x" for TensorFlow's "x:0"."""
    named = {n: arrays[k] for n in names for k in (n.removesuffix(":0"), n) if k in arrays}
    return {n: a.astype(object) if a.dtype.kind in "UST" else a for n, a in named.items()}
