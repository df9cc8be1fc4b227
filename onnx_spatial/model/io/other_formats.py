"""Recognise files in the place of a model or its data: those of other frameworks, and Git LFS pointers.

net.tflite, saved_model.pb, net.keras ...       the command that exports it to ONNX
version https://git-lfs.github.com/spec/v1      where Git LFS did not fetch the content
"""

from __future__ import annotations

import shlex
import zipfile
from enum import Enum
from pathlib import Path

#: Operators that tf2onnx copies into the ONNX file only if `--custom-ops` names them.
CUSTOM_OPS = ("SpaceToBatchND", "BatchToSpaceND", "ExtractImagePatches", "ExtractVolumePatches")

_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
#: What a Git LFS pointer is, and what helps.
LFS_ADVICE = "is a pointer of Git LFS, not the file itself; fetch the file with: git lfs pull"

_SAVED_MODEL = ("saved_model.pb", "saved_model.pbtxt")
_HDF5 = b"\x89HDF\r\n\x1a\n"
_TFLITE = b"TFL3"  # behind the offset of the root table
_NODES = b"\x0a"  # the first field of a GraphDef


class _Format(Enum):
    """Format of a model that is not ONNX: its name, and tf2onnx's option and arguments for it."""

    SAVED_MODEL = ("a TensorFlow SavedModel", "--saved-model")
    KERAS = ("a Keras model", "--keras")
    TFLITE = ("a TFLite model", "--tflite")
    GRAPH = ("a TensorFlow graph", "--graphdef", "--inputs", "INPUT:0", "--outputs", "OUTPUT:0")
    PYTORCH = ("a PyTorch file",)


def advise_export(path: Path) -> str | None:
    """Return what a file or folder is and the command that exports it; None if it is not known."""
    if path.name in _SAVED_MODEL:
        path = path.parent
    try:
        kind = _of_folder(path) if path.is_dir() else _of_file(path)
    except (OSError, ValueError, zipfile.BadZipFile):
        return None
    if kind is None:
        return None
    name, *option = kind.value
    command = _export_command(path, *option) if option else "torch.onnx.export"
    return f"is {name}, not an ONNX model; export it first with: {command}"


def _of_folder(path: Path) -> _Format | None:
    found = any((path / name).is_file() for name in _SAVED_MODEL)
    return _Format.SAVED_MODEL if found else None


def _of_file(path: Path) -> _Format | None:
    with path.open("rb") as file:
        start = file.read(8)
        names = zipfile.ZipFile(file).namelist() if start.startswith(b"PK\x03\x04") else []
    if start[4:] == _TFLITE:
        return _Format.TFLITE
    if start == _HDF5 or "config.json" in names:
        return _Format.KERAS
    if any(name.endswith("data.pkl") for name in names):
        return _Format.PYTORCH
    return _Format.GRAPH if start.startswith(_NODES) and path.suffix == ".pb" else None


def _export_command(path: Path, option: str, *arguments: str) -> str:
    words = ["python", "-m", "tf2onnx.convert", option, str(path), *arguments]
    words += ["--output", f"{path.resolve().stem}.onnx", "--opset", "17"]
    return shlex.join([*words, "--custom-ops", ",".join(CUSTOM_OPS)])


def is_lfs_pointer(data: bytes) -> bool:
    """Tell whether the content of a file is a Git LFS pointer."""
    return data.startswith(_LFS_POINTER)


def is_lfs_pointer_file(path: Path) -> bool:
    """Tell whether a file is a Git LFS pointer; False if it cannot be read."""
    try:
        with path.open("rb") as file:
            return is_lfs_pointer(file.read(len(_LFS_POINTER)))
    except OSError:
        return False
