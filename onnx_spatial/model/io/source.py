"""Define `Source`, a model as it was read, and the forms in which callers may pass a model."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import onnx
import onnx_ir as ir

#: A model as callers pass it.
Model = str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model


@dataclass(frozen=True)
class Source:
    """A model as it was read.

    Attributes:
        proto: the parsed model; read-only.
        path: its file, if it was read from one.
        data: the bytes it was parsed from, if they are in memory.
        base: the folder of its external data, if that is known without a path.
    """

    proto: onnx.ModelProto = field(repr=False)
    path: Path | None = None
    data: bytes | None = field(default=None, repr=False)
    base: Path | None = None

    @property
    def folder(self) -> Path | None:
        """Folder of the external data."""
        return self.path.parent if self.path is not None else self.base

    @property
    def name(self) -> str:
        """Name of the model in messages."""
        return str(self.path) if self.path is not None else "model"

    def holding(self, proto: onnx.ModelProto) -> Source:
        """Return a source for an edited model whose external data is where this one's is."""
        return replace(self, proto=proto, data=None)
