"""Rewritten models, kept in a folder so that the next session need not rewrite them again.

    FOLDER/KEY.model    8 bytes that say what it is, SHA-256 of what follows, a serialized ModelProto

KEY is a digest of all that the rewritten model depends on: the bytes of the model and of its external
data, the options, the version of this package and of what it stands on. Large weights stay where they
are, in the model's files, whatever those are called by then. A model with nothing to do is kept as an
empty message. What is damaged is written anew; where nothing can be written nothing is kept.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import onnx
import onnxruntime as ort
from google.protobuf.message import DecodeError, EncodeError

import onnx_spatial
from onnx_spatial.model.io import external_data
from onnx_spatial.model.io.atomic import atomic_write
from onnx_spatial.model.io.byte_ranges import Content
from onnx_spatial.model.io.source import Source

logger = logging.getLogger(__name__)

_MARK = b"OSPMODL1"
_DIGEST = hashlib.sha256().digest_size


def key_of(source: Source, options: Mapping[str, object]) -> str:
    """The digest of a model and the options that it is rewritten with."""
    versions = [onnx_spatial.__version__, onnx.__version__, ort.__version__]
    digest = hashlib.sha256(_MARK)
    weights = source.weights
    # What stays in the model's file is found under that file's name.
    name = "" if weights is None else weights.location
    _add(digest, json.dumps([versions, dict(options), name], sort_keys=True, default=str).encode())
    if weights is not None:
        weights.file.seek(0)
        _add(digest, _digest_of(weights.file))
    else:
        data = source.data
        _add(digest, source.proto.SerializeToString(deterministic=True) if data is None else data)
    for location in external_data.locations(source):
        _add(digest, location.encode("utf-8", "surrogateescape"))
        try:
            with ((source.folder or Path()) / location).open("rb") as file:
                _add(digest, _digest_of(file))
        except (OSError, ValueError):  # missing: nothing is read from it
            _add(digest, b"")
    return digest.hexdigest()


def _digest_of(file: BinaryIO) -> bytes:
    digest = hashlib.sha256()
    while chunk := file.read(1 << 20):
        digest.update(chunk)
    return digest.digest()


def _add(digest: hashlib._Hash, data: bytes) -> None:
    """What is hashed says how long it is: no two lists of parts look alike."""
    digest.update(len(data).to_bytes(8, "little") + data)


def get(folder: Path, key: str) -> onnx.ModelProto | None:
    """The model kept under a key; None if there is none, or it is damaged."""
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
        logger.warning("%s: the rewritten model cannot be kept there: %s", folder, error)
