"""Recorded data of a model: what it was fed once, and what it gave.

    test_data_set_N/input_I.pb, output_I.pb   as in the ONNX model zoo and onnxruntime's test runners
    NAME.npz beside NAME.onnx                 arrays by the names of inputs and outputs

A file I.pb holds a TensorProto, or a SequenceProto or OptionalProto where the model declares that; it
belongs to the input or output whose name it holds, else to the I-th. As in onnxruntime's runners the
sets in a folder belong to every model in it.
"""

from __future__ import annotations

import os
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

from onnx_spatial.errors import ModelFileError, UsageError
from onnx_spatial.model.io import git_lfs
from onnx_spatial.verification.arrays import Array
from onnx_spatial.verification.sizes.model_inputs import check_given, graph_inputs

_SET = re.compile(r"test_data_set_(\d+)")

#: An array, a list of arrays (a sequence), or None (an empty optional).
Value = Any


@dataclass(frozen=True)
class DataSet:
    """One set of recorded data.

    Attributes:
        name: of its folder or archive.
        inputs, outputs: by name; not all outputs have to be there, or any.
        unknown: names in it that the model does not have.
    """

    name: str
    inputs: dict[str, Value]
    outputs: dict[str, Value]
    unknown: tuple[str, ...] = ()

    @property
    def dense(self) -> bool:
        """Whether every input is an array."""
        return all(isinstance(value, np.ndarray) for value in self.inputs.values())


def is_set(name: str) -> bool:
    """Whether a folder of this name holds recorded data."""
    return _SET.fullmatch(name) is not None


def archive_of(model: Path) -> Path:
    """The .npz that would hold a model's recorded data."""
    return model.with_suffix(".npz")


def find(model: Path) -> list[Path]:
    """Recorded data of a model: sets by number, then the archive; also links that lead nowhere."""
    try:
        folders = [p for p in model.parent.iterdir() if is_set(p.name) and not p.is_file()]
    except OSError:  # a folder that may be entered and not listed
        folders = []
    sets = sorted(folders, key=lambda p: (int(p.name.removeprefix("test_data_set_")), p.name))
    archive = archive_of(model)
    is_there = archive.is_file() or archive.is_symlink()
    return [*sets, archive] if is_there and archive != model else sets


def read(path: Path, model: onnx.ModelProto) -> DataSet:
    """Recorded data, checked against what the model declares.

    Raises:
        UsageError: it does not fit the model's inputs or outputs.
        ModelFileError: it cannot be read.
    """
    if not path.exists():
        raise ModelFileError(f"{path}: is a link that leads nowhere")
    found = _folder(path, model) if path.is_dir() else _archive(path, model)
    if found.dense:
        try:
            check_given(graph_inputs(model), found.inputs)
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from None
    return found


def inputs(path: Path, model: onnx.ModelProto) -> dict[str, Array]:
    """Only the inputs in a folder or an archive, by name.

    Raises:
        UsageError: one is missing.
        ModelFileError: it cannot be read.
    """
    if path.is_dir():
        return _fed(path, model)
    return _archive(path, model).inputs


def required(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """The inputs of a model that have no default."""
    defaults = {t.name for t in model.graph.initializer}
    defaults.update(t.values.name for t in model.graph.sparse_initializer)
    return [v for v in model.graph.input if v.name not in defaults]


def _folder(path: Path, model: onnx.ModelProto) -> DataSet:
    given = list(model.graph.output)
    return DataSet(path.name, _fed(path, model), _values(path, "output", given, given))


def _fed(path: Path, model: onnx.ModelProto) -> dict[str, Value]:
    """Every input without a default, and by name those that have one."""
    declared = required(model)
    return _values(path, "input", declared, model.graph.input, range(len(declared)))


def _numbers(folder: Path, kind: str) -> list[int]:
    found = (re.fullmatch(rf"{kind}_(\d+)\.pb", p.name) for p in folder.iterdir())
    return sorted(int(match[1]) for match in found if match)


def _values(
    folder: Path,
    kind: str,
    declared: Sequence[onnx.ValueInfoProto],
    known: Iterable[onnx.ValueInfoProto],
    needed: Iterable[int] = (),
) -> dict[str, Value]:
    """What is in the files of a kind, by the names that the model has.

    Args:
        folder: that holds them.
        kind: "input" or "output".
        declared: what the numbers of files stand for.
        known: what files may name.
        needed: numbers that must be there.

    Raises:
        UsageError: a file is missing, or there are more than the model has.
    """
    by_name = {v.name: v for v in known}
    found: dict[str, Value] = {}
    for number in sorted({*needed, *_numbers(folder, kind)}):
        path = folder / f"{kind}_{number}.pb"
        at = declared[number] if number < len(declared) else None
        name, value = _read(path, by_name, at)
        if at is None and name not in by_name:
            count = f"{len(declared)} {kind}{'' if len(declared) == 1 else 's'}"
            named = f", and none called {name!r}" if name else ""
            raise UsageError(f"{path}: the model has only {count}{named}")
        if name in found:
            raise UsageError(f"{path}: holds {kind} {name!r}, as another file does")
        found[name] = value
    return found


def _read(
    path: Path, by_name: Mapping[str, onnx.ValueInfoProto], at: onnx.ValueInfoProto | None
) -> tuple[str, Value]:
    """(name, value) in a file, `at` is what its number stands for; else it has its own name.

    The kind of message is nowhere written in it: it is what the model declares at its place.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        name = "" if at is None else at.name
        raise UsageError(f"{path}: there is no such file, for input {name!r}") from None
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read: {error.strerror or error}") from None
    kind = "tensor_type" if at is None else at.type.WhichOneof("value") or "tensor_type"
    if kind not in _MESSAGES:
        what = kind.removesuffix("_type").replace("_", " ")
        raise UsageError(f"{path}: {at.name if at else ''!r} is a {what}, which is not read")
    message, to_value = _MESSAGES[kind]
    try:
        proto = message.FromString(data)
        value = to_value(proto)
    except (DecodeError, ValueError, TypeError, RuntimeError, OverflowError) as error:
        reason = f"is not a serialized {message.__name__} ({error if data else 'it is empty'})"
        reason = git_lfs.REASON if git_lfs.is_pointer(data) else reason
        raise ModelFileError(f"{path}: {reason}") from None
    if isinstance(value, np.ndarray) and value.dtype.kind in "UST":
        value = value.astype(object)
    return (proto.name if at is None or proto.name in by_name else at.name), value


_MESSAGES: dict[str, tuple[Any, Any]] = {
    "tensor_type": (onnx.TensorProto, numpy_helper.to_array),
    "sequence_type": (onnx.SequenceProto, numpy_helper.to_list),
    "optional_type": (onnx.OptionalProto, numpy_helper.to_optional),
}


def _archive(path: Path, model: onnx.ModelProto) -> DataSet:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, zipfile.BadZipFile, AttributeError, EOFError) as error:
        raise ModelFileError(f"{path}: is not an .npz file ({error})") from None
    names = [v.name for v in required(model)]
    fed = _take(arrays, names)
    if len(fed) < len(names):
        missing = ", ".join(n for n in names if n not in fed)
        raise UsageError(f"{path}: holds {', '.join(arrays) or 'nothing'}; missing: {missing}")
    outputs = _take(arrays, [v.name for v in model.graph.output])
    used = {n for name in (*fed, *outputs) for n in (name, name.removesuffix(":0"))}
    return DataSet(path.name, fed, outputs, tuple(n for n in arrays if n not in used))


def _take(arrays: Mapping[str, Array], names: Sequence[str]) -> dict[str, Array]:
    """Arrays by the names of the model: TensorFlow calls an input "x:0" and numpy users "x"."""
    found = {n: arrays[k] for n in names for k in (n.removesuffix(":0"), n) if k in arrays}
    return {n: a.astype(object) if a.dtype.kind in "UST" else a for n, a in found.items()}


def write(folder: Path, fed: Mapping[str, Value], given: Mapping[str, Value]) -> None:
    """Write a set: one file for each input and output, in the order of the mappings.

    Raises:
        ModelFileError: it cannot be written, or holds what no file can.
    """
    try:
        for kind, values in (("input", fed), ("output", given)):
            for number, (name, value) in enumerate(values.items()):
                data = _message(name, value).SerializeToString()
                (folder / f"{kind}_{number}.pb").write_bytes(data)
    except (OSError, ValueError, TypeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ModelFileError(f"{os.fspath(folder)}: cannot be written: {reason}") from None


def _message(name: str, value: Value) -> onnx.TensorProto | onnx.SequenceProto:
    if isinstance(value, list):
        return numpy_helper.from_list(value, name)
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{name!r} is a {type(value).__name__}, which no recorded data holds")
    if value.dtype == object:  # onnx takes text only as bytes or str
        value = np.array([str(v) for v in value.flat], object).reshape(value.shape)
    return numpy_helper.from_array(value, name)
