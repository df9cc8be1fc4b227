"""Keep converted models in a folder for later sessions.

    FOLDER/KEY.model    8 bytes of magic, SHA-256 of the rest, a serialized ModelProto

KEY is a digest of everything that the converted model depends on: the bytes of the model and of its
external data, the options, the versions of this package and its dependencies. Large weights stay in
the model's files. A model that conversion does not change is kept as an empty message. A damaged file
is written anew; if the folder cannot be written nothing is kept.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import onnxruntime as ort
from google.protobuf.message import DecodeError, EncodeError

import onnx_spatial
from onnx_spatial.errors import Code
from onnx_spatial.model.io import external_data
from onnx_spatial.model.io.atomic import atomic_write
from onnx_spatial.model.io.byte_ranges import Content
from onnx_spatial.model.io.source import Source

logger = logging.getLogger(__name__)

#: Environment variable with the folder of sessions that name none.
VARIABLE = "ONNX_SPATIAL_CACHE"

_MARK = b"OSPMODL1"
_DIGEST = hashlib.sha256().digest_size


def key_of(source: Source, options: Mapping[str, object]) -> str:
    """Return the digest of a model and the options of its conversion."""
    versions = [onnx_spatial.__version__, onnx.__version__, ir.__version__, ort.__version__]
    digest = hashlib.sha256(_MARK)
    weights = source.weights
    # The kept model refers to its weights by the name of the model's file.
    name = "" if weights is None else weights.location
    _add(digest, json.dumps([versions, dict(options), name], sort_keys=True, default=str).encode())
    if weights is not None:
        weights.file.seek(0)
        opened: Any = weights.file  # typeshed's BinaryIO lacks readinto
        _add(digest, hashlib.file_digest(opened, "sha256").digest())
    else:
        data = source.data
        _add(digest, source.proto.SerializeToString(deterministic=True) if data is None else data)
    for location in external_data.locations(source):
        _add(digest, location.encode("utf-8", "surrogateescape"))
        try:
            with ((source.folder or Path()) / location).open("rb") as file:
                _add(digest, hashlib.file_digest(file, "sha256").digest())
        except (OSError, ValueError):  # missing, so nothing is read from it
            _add(digest, b"")
    return digest.hexdigest()


def _add(digest: hashlib._Hash, data: bytes) -> None:
    """Hash data behind its length, so that parts cannot run into each other."""
    digest.update(len(data).to_bytes(8, "little") + data)


def get(folder: Path, key: str) -> onnx.ModelProto | None:
    """Return the model kept under a key; None if there is none or its file is damaged."""
    try:
        data = memoryview((folder / f"{key}.model").read_bytes())
    except OSError:
        return None
    head, content = bytes(data[: len(_MARK) + _DIGEST]), data[len(_MARK) + _DIGEST :]
    if head != _MARK + hashlib.sha256(content).digest():
        return None
    model = onnx.ModelProto()
    try:
        model.ParseFromString(bytes(content))
    except DecodeError:
        return None
    return model


def put(folder: Path, key: str, model: onnx.ModelProto) -> None:
    """Keep a model, in one step; where that is not possible it is not kept."""
    try:
        content = model.SerializeToString()
        folder.mkdir(parents=True, exist_ok=True)
        parts = Content([_MARK + hashlib.sha256(content).digest(), content])
        atomic_write(folder / f"{key}.model", parts.write)
    except (OSError, ValueError, EncodeError) as error:  # read-only, full, no folder, over 2 GiB
        message = "%s: the converted model cannot be cached there: %s [%s]"
        logger.warning(message, folder, error, Code.UNWRITABLE)
