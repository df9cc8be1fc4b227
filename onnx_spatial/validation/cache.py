"""Results of earlier runs, so that a run that was cut short goes on where it stopped.

    FOLDER/KEY.json    {"onnx_spatial_validation": 1, "key": KEY, "result": {...}}

KEY is a digest of all that a result depends on: the bytes of the model, of its external data and of
its recorded data, the options, this package's own source, and the versions of what it stands on.
Only what passed, or could not be verified, is kept: a failure is looked at again.
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
from onnx_spatial.errors import SpatialError
from onnx_spatial.model.io import external_data, reader
from onnx_spatial.model.io.atomic import atomic_write
from onnx_spatial.validation import data_sets
from onnx_spatial.validation.options import Options
from onnx_spatial.validation.result import ModelResult

_MARK, _VERSION = "onnx_spatial_validation", 1
_KEPT = ("passed", "unverified")
_STANDS_ON = ("ml_dtypes", "numpy", "onnx", "onnx-ir", "onnxruntime", "onnxruntime-extensions")
_ORACLES = ("openvino", "tensorflow", "tensorflow-cpu")


def key_of(model: Path, options: Options) -> str | None:
    """The digest for a model; None if its files cannot be read, which is for the run to say."""
    digest = hashlib.sha256()
    _add(digest, json.dumps([options.to_dict(), tools(), _own_source()], sort_keys=True).encode())
    try:
        for name, path in _parts(model):
            _add(digest, name.encode("utf-8", "surrogateescape"))
            with path.open("rb") as file:
                _add(digest, hashlib.file_digest(file, "sha256").digest())
    except (OSError, SpatialError):
        return None
    return digest.hexdigest()


@functools.cache
def tools() -> dict[str, str]:
    """Versions of this package, of what it stands on, of Python, and the kind of machine."""
    found = {"version": onnx_spatial.__version__, "python": platform.python_version()}
    found["platform"] = f"{platform.system()} {platform.machine()}"
    for name in (*_STANDS_ON, *_ORACLES):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@functools.cache
def _own_source() -> str:
    """The digest of this package: a version number stays the same while it is being developed."""
    digest = hashlib.sha256()
    # The custom operators lie elsewhere in a checkout.
    packages = (onnx_spatial, onnx_spatial.custom_ops)
    roots = [Path(str(package.__file__)).parent for package in packages]
    for root in roots:
        for path in sorted((*root.rglob("*.py"), *root.rglob("*.json"))):
            _add(digest, path.relative_to(root).as_posix().encode())
            _add(digest, path.read_bytes())
    return digest.hexdigest()


def _parts(model: Path) -> Iterator[tuple[str, Path]]:
    """(name, file) of everything that a model consists of."""
    yield "model", model
    source = reader.read(model)
    for location in external_data.locations(source):
        yield f"data {location}", model.parent / location
    for path in data_sets.find(model):
        inside = sorted(path.iterdir()) if path.is_dir() else [path]
        for part in inside:
            if part.is_file():
                yield f"recorded {path.name}/{part.name}", part


def _add(digest: hashlib._Hash, data: bytes) -> None:
    """What is hashed says how long it is: no two lists of parts look alike."""
    digest.update(len(data).to_bytes(8, "little") + data)


def get(folder: Path, key: str, model: str) -> ModelResult | None:
    """The result of an earlier run; None if there is none, or it is damaged."""
    try:
        document = json.loads((folder / f"{key}.json").read_text("utf-8"))
        if document[_MARK] != _VERSION or document["key"] != key:
            return None
        result = ModelResult.from_dict(document["result"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    if result.status not in _KEPT:
        return None
    result.model, result.cached = model, True  # the same bytes may have been called otherwise
    return result


def put(folder: Path, key: str, result: ModelResult) -> None:
    """Keep a result for other runs; where that is not possible it is not kept."""
    if result.status not in _KEPT:
        return
    document = {_MARK: _VERSION, "key": key, "result": result.to_dict()}
    with contextlib.suppress(OSError):  # read-only, full, or no folder at all
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write(folder / f"{key}.json", json.dumps(document).encode())
