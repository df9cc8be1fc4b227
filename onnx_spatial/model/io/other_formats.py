"""Recognise models of other frameworks, and say how each is exported to ONNX."""

from __future__ import annotations

import shlex
import zipfile
from pathlib import Path

#: Operators that tf2onnx copies into the ONNX file only if `--custom-ops` names them.
CUSTOM_OPS = ("SpaceToBatchND", "BatchToSpaceND", "ExtractImagePatches", "ExtractVolumePatches")

_SAVED_MODEL = ("saved_model.pb", "saved_model.pbtxt")
_HDF5 = b"\x89HDF\r\n\x1a\n"
_TFLITE = b"TFL3"  # behind the offset of the root table
_NODES = b"\x0a"  # the first field of a GraphDef


def advice(path: Path) -> str | None:
    """Return what a file or folder is and the command that exports it; None if it is not known."""
    try:
        if path.name in _SAVED_MODEL:
            path = path.parent
        if path.is_dir():
            saved = any((path / name).is_file() for name in _SAVED_MODEL)
            return _tensorflow("a TensorFlow SavedModel", "--saved-model", path) if saved else None
        return _of_file(path)
    except (OSError, ValueError, zipfile.BadZipFile):
        return None


def _of_file(path: Path) -> str | None:
    with path.open("rb") as file:
        start = file.read(8)
        names = zipfile.ZipFile(file).namelist() if start.startswith(b"PK\x03\x04") else []
    if start[4:] == _TFLITE:
        return _tensorflow("a TFLite model", "--tflite", path)
    if start == _HDF5 or "config.json" in names:
        return _tensorflow("a Keras model", "--keras", path)
    if any(name.endswith("data.pkl") for name in names):
        return "is a PyTorch file, not an ONNX model; export it first with torch.onnx.export"
    if start.startswith(_NODES) and path.suffix == ".pb":
        names_of = ("--inputs", "INPUT:0", "--outputs", "OUTPUT:0")
        command = _tf2onnx("--graphdef", path, *names_of)
        return f"is a TensorFlow graph, not an ONNX model; export it first with: {command}"
    return None


def _tensorflow(what: str, option: str, path: Path) -> str:
    command = shlex.join(["onnx-spatial", "export", str(path), "-o", _output(path)])
    return (
        f"is {what}, not an ONNX model; convert it with: {command}; "
        f"or export it first with: {_tf2onnx(option, path)}"
    )


def _tf2onnx(option: str, path: Path, *more: str) -> str:
    command = ["python", "-m", "tf2onnx.convert", option, str(path), *more]
    command += ["--output", _output(path), "--opset", "17", "--custom-ops", ",".join(CUSTOM_OPS)]
    return shlex.join(command)


def _output(path: Path) -> str:
    return f"{path.resolve().stem}.onnx"
