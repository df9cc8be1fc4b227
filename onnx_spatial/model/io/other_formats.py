"""Recognise models of other frameworks, and say how each is exported to ONNX."""

from __future__ import annotations

import shlex
import zipfile
from enum import StrEnum
from pathlib import Path

#: Operators that tf2onnx copies into the ONNX file only if `--custom-ops` names them.
CUSTOM_OPS = ("SpaceToBatchND", "BatchToSpaceND", "ExtractImagePatches", "ExtractVolumePatches")

_SAVED_MODEL = ("saved_model.pb", "saved_model.pbtxt")
_HDF5 = b"\x89HDF\r\n\x1a\n"
_TFLITE = b"TFL3"  # behind the offset of the root table
_NODES = b"\x0a"  # the first field of a GraphDef


class Format(StrEnum):
    """Format of a model that is not ONNX, in words."""

    SAVED_MODEL = "a TensorFlow SavedModel"
    KERAS = "a Keras model"
    TFLITE = "a TFLite model"
    GRAPH = "a TensorFlow graph"
    PYTORCH = "a PyTorch file"


#: The option of tf2onnx for the formats that `onnx-spatial export` takes.
_OPTIONS = {
    Format.SAVED_MODEL: "--saved-model",
    Format.KERAS: "--keras",
    Format.TFLITE: "--tflite",
}


def recognise(path: Path) -> tuple[Path, Format | None]:
    """Return the model that a file or folder belongs to, and its format; None if it is not known."""
    try:
        if path.name in _SAVED_MODEL:
            path = path.parent
        if not path.is_dir():
            return path, _of_file(path)
        saved = any((path / name).is_file() for name in _SAVED_MODEL)
        return path, Format.SAVED_MODEL if saved else None
    except (OSError, ValueError, zipfile.BadZipFile):
        return path, None


def advice(path: Path) -> str | None:
    """Return what a file or folder is and the command that exports it; None if it is not known."""
    path, kind = recognise(path)
    if kind is None:
        return None
    what = f"is {kind}, not an ONNX model"
    if option := _OPTIONS.get(kind):
        command = shlex.join(["onnx-spatial", "export", str(path), "-o", _output(path)])
        first = _tf2onnx(option, path)
        return f"{what}; convert it with: {command}; or export it first with: {first}"
    if kind is Format.GRAPH:
        first = _tf2onnx("--graphdef", path, "--inputs", "INPUT:0", "--outputs", "OUTPUT:0")
        return f"{what}; export it first with: {first}"
    return f"{what}; export it first with torch.onnx.export"


def _of_file(path: Path) -> Format | None:
    with path.open("rb") as file:
        start = file.read(8)
        names = zipfile.ZipFile(file).namelist() if start.startswith(b"PK\x03\x04") else []
    if start[4:] == _TFLITE:
        return Format.TFLITE
    if start == _HDF5 or "config.json" in names:
        return Format.KERAS
    if any(name.endswith("data.pkl") for name in names):
        return Format.PYTORCH
    return Format.GRAPH if start.startswith(_NODES) and path.suffix == ".pb" else None


def _tf2onnx(option: str, path: Path, *more: str) -> str:
    command = ["python", "-m", "tf2onnx.convert", option, str(path), *more]
    command += ["--output", _output(path), "--opset", "17", "--custom-ops", ",".join(CUSTOM_OPS)]
    return shlex.join(command)


def _output(path: Path) -> str:
    return f"{path.resolve().stem}.onnx"
