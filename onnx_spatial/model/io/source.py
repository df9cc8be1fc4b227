"""Define `Source`, a model as it was read, and the forms in which callers may pass a model."""

from __future__ import annotations

import os
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path

import onnx
import onnx_ir as ir

from onnx_spatial.model.io.embedded_data import Weights

#: A model as callers pass it.
Model = str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model


@dataclass(frozen=True)
class Source:
    """A model as it was read.

    Attributes:
        proto: the parsed model without `weights`; read-only.
        path: its file, if it was read from one.
        data: the bytes it was parsed from, if they are in memory.
        base: the folder of its external data, if that is known without a path.
        weights: tensors whose bytes are still in its file.
    """

    proto: onnx.ModelProto = field(repr=False)
    path: Path | None = None
    data: bytes | None = field(default=None, repr=False)
    base: Path | None = None
    weights: Weights | None = None

    @property
    def folder(self) -> Path | None:
        """Folder of the external data."""
        return self.path.parent if self.path is not None else self.base

    @property
    def name(self) -> str:
        """Name of the model in messages."""
        return str(self.path) if self.path is not None else "model"

    def holding(self, proto: onnx.ModelProto) -> Source:
        """Return a source for an edited model whose weights are where this one's are."""
        return replace(self, proto=proto, data=None)

    def whole(self) -> onnx.ModelProto:
        """Return the model with its embedded weights; external data stays external.

        Raises:
            ModelFileError: the file was changed since it was read.
        """
        if self.weights is None:
            return self.proto
        proto = deepcopy(self.proto)
        self.weights.load(proto)
        return proto
