"""A model as it was read, and what it may be given as."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import onnx
import onnx_ir as ir

from onnx_spatial.model.io.embedded_data import Weights

Model = str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model


@dataclass(frozen=True)
class Source:
    """A model as it was read; `proto` is ours to read, never to change.

    Attributes:
        proto: the parsed model, without the weights that are still in its file.
        path: the file it came from, if it came from one.
        data: the bytes it was parsed from, if they are at hand.
        base: the folder of its external data, where that is known without a path.
        weights: those that are still in its file.
    """

    proto: onnx.ModelProto
    path: Path | None = None
    data: bytes | None = None
    base: Path | None = None
    weights: Weights | None = None

    @property
    def folder(self) -> Path | None:
        """The folder that external data is looked up in."""
        return self.path.parent if self.path is not None else self.base

    @property
    def name(self) -> str:
        """The model in messages."""
        return str(self.path) if self.path is not None else "model"

    def holding(self, proto: onnx.ModelProto) -> Source:
        """Another model made of this one: its weights are where this one's are."""
        return replace(self, proto=proto, data=None)

    def whole(self) -> onnx.ModelProto:
        """The model with its embedded weights; external data stays external.

        Raises:
            ModelFileError: the file was changed since it was read.
        """
        if self.weights is None:
            return self.proto
        proto = onnx.ModelProto()
        proto.CopyFrom(self.proto)
        self.weights.load(proto)
        return proto
