"""Define `Source`, a model as it was read, and the forms in which callers may pass a model."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import onnx
import onnx_ir as ir

from onnx_spatial.errors import ModelFileError, innermost_message
from onnx_spatial.model import traversal

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

    @cached_property
    def external_tensors(self) -> list[onnx.TensorProto]:
        """The tensors whose bytes are in another file than the model's."""
        external = onnx.TensorProto.EXTERNAL
        return [t for t in traversal.tensors(self.proto) if t.data_location == external]

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


def of_ir(model: ir.Model) -> Source:
    """Serialize an onnx_ir model, whose external tensors may be in several folders and stay there.

    Raises:
        ModelFileError: onnx_ir cannot serialize the model.
    """
    try:
        proto = ir.to_proto(model)
    except Exception as error:  # onnx_ir raises many types, of which only some are its own
        reason = innermost_message(error)
        raise ModelFileError(f"model: onnx_ir cannot serialize it: {reason}") from None
    external = [
        (tensor, message)
        for tensor, message in _tensor_pairs(model, proto)
        if isinstance(tensor, ir.ExternalTensor)
    ]
    folders = {Path(tensor.base_dir) for tensor, _ in external}
    if len(folders) < 2:
        return Source(proto, base=folders.pop() if folders else None)
    try:
        root = os.path.commonpath([folder.absolute() for folder in folders])
    except ValueError:  # on several drives
        return Source(proto)
    for tensor, message in external:
        path = Path(tensor.base_dir, tensor.location).absolute()
        (entry,) = (entry for entry in message.external_data if entry.key == "location")
        entry.value = Path(os.path.relpath(path, root)).as_posix()
    return Source(proto, base=Path(root))


def _tensor_pairs(
    model: ir.Model, proto: onnx.ModelProto
) -> Iterator[tuple[ir.TensorProtocol | None, onnx.TensorProto]]:
    """Yield each tensor of a model with its message."""
    messages = (message for _, message in traversal.graphs(proto))
    for graph, message in zip(traversal.ir_graphs(model), messages, strict=True):
        if isinstance(message, onnx.GraphProto) and isinstance(graph, ir.Graph):
            for tensor in message.initializer:
                yield graph.initializers[tensor.name].const_value, tensor
        for node, node_message in zip(graph, message.node, strict=True):
            for attribute in node_message.attribute:
                if attribute.type == onnx.AttributeProto.TENSOR:
                    yield node.attributes[attribute.name].as_tensor(), attribute.t
                elif attribute.type == onnx.AttributeProto.TENSORS:
                    tensors = node.attributes[attribute.name].as_tensors()
                    yield from zip(tensors, attribute.tensors, strict=True)
