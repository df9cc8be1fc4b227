"""Keep results of models in a folder, so that an interrupted run continues where it stopped.

    FOLDER/KEY.json    {"onnx_spatial_validation": 1, "key": KEY, "result": {...}}

KEY is a digest of everything that a result depends on: the bytes of the model, of its external data
and of its recorded data, the options and the data that they name, the source of this package, and the
versions of its dependencies. Failures are not kept: these models are validated again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Iterator
from pathlib import Path

import onnx_spatial
from onnx_spatial.conversion.options import ORACLE_PACKAGES
from onnx_spatial.errors import SpatialError
from onnx_spatial.model.io import external_data, reader
from onnx_spatial.model.io.atomic import atomic_write
from onnx_spatial.validation import data_sets
from onnx_spatial.validation.options import Options
from onnx_spatial.validation.result import ModelResult

_MARK, _VERSION = "onnx_spatial_validation", 1
_KEPT = ("passed", "unverified")
_DEPENDENCIES = ("ml_dtypes", "numpy", "onnx", "onnx-ir", "onnxruntime", "onnxruntime-extensions")


def key_of(model: Path, options: Options) -> str | None:
    """Return the key of a model; None if its files cannot be read, which the run then reports."""
    digest = hashlib.sha256()
    _add(digest, json.dumps([options.to_dict(), tools(), _own_source()], sort_keys=True).encode())
    try:
        for name, path in _parts(model, options.inputs):
            _add(digest, name.encode("utf-8", "surrogateescape"))
            with path.open("rb") as file:
                _add(digest, hashlib.file_digest(file, "sha256").digest())
    except (OSError, SpatialError):
        return None
    return digest.hexdigest()


@functools.cache
def tools() -> dict[str, str]:
    """Return the versions of this package, its dependencies and Python, and the platform."""
    versions = {"version": onnx_spatial.__version__, "python": platform.python_version()}
    versions["platform"] = f"{platform.system()} {platform.machine()}"
    for name in (*_DEPENDENCIES, *ORACLE_PACKAGES, *ORACLE_PACKAGES.values()):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


@functools.cache
def _own_source() -> str:
    """Return the digest of this package's source; its version does not change with every edit."""
    digest = hashlib.sha256()
    # In a checkout `custom_ops` is a folder beside the package.
    for package in (onnx_spatial, onnx_spatial.custom_ops):
        root = Path(str(package.__file__)).parent
        for path in sorted((*root.rglob("*.py"), *root.rglob("*.json"))):
            _add(digest, path.relative_to(root).as_posix().encode())
            _add(digest, path.read_bytes())
    return digest.hexdigest()


def _parts(model: Path, inputs: str | None) -> Iterator[tuple[str, Path]]:
    """Yield (name, file) of the model, its external data, its recorded data and data to run on."""
    yield "model", model
    source = reader.read(model)
    for location in external_data.locations(source):
        yield f"data {location}", model.parent / location
    for path in (*data_sets.find(model), *([Path(inputs)] if inputs else [])):
        for part in sorted(path.iterdir()) if path.is_dir() else [path]:
            if part.is_file():
                yield f"recorded {path.name}/{part.name}", part


def _add(digest: hashlib._Hash, data: bytes) -> None:
    """Hash data behind its length, so that parts cannot run into each other."""
    digest.update(len(data).to_bytes(8, "little") + data)


def get(folder: Path, key: str, model: str) -> ModelResult | None:
    """Return the result of an earlier run; None if there is none or its file is damaged."""
    try:
        document = json.loads((folder / f"{key}.json").read_text("utf-8"))
        if document[_MARK] != _VERSION or document["key"] != key:
            return None
        result = ModelResult.from_dict(document["result"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    if result.status not in _KEPT:
        return None
    result.model, result.cached = model, True  # the file may have been renamed
    return result


def put(folder: Path, key: str, result: ModelResult) -> None:
    """Keep a result for other runs, if the folder can be written."""
    if result.status not in _KEPT:
        return
    document = {_MARK: _VERSION, "key": key, "result": result.to_dict()}
    with contextlib.suppress(OSError):  # read-only, full, or no folder at all
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write(folder / f"{key}.json", json.dumps(document).encode())
