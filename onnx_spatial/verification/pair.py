"""Hold the two models of a verification: the original and its conversion."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx

from onnx_spatial.conversion.local_functions.marked import without_earlier_form
from onnx_spatial.errors import ModelFileError
from onnx_spatial.model import traversal
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.model.io import reader
from onnx_spatial.verification.arrays import STRING, Array, dtype_of, is_float

_WITH_SIZE = frozenset(onnx.TensorProto.DataType.values()) - {onnx.TensorProto.UNDEFINED, STRING}


@dataclass(frozen=True)
class ModelPair:
    """An original, its conversion, and the user's own domains that hold spatial operators."""

    original: reader.Source
    converted: reader.Source
    domains: frozenset[str] = frozenset()

    @classmethod
    def read(
        cls,
        original: reader.Model | reader.Source,
        converted: reader.Model | reader.Source,
        domains: Iterable[str],
    ) -> ModelPair:
        """Read both models.

        Raises:
            ModelFileError: a model cannot be read.
        """
        before = original if isinstance(original, reader.Source) else reader.read(original)
        if isinstance(converted, reader.Source):
            return cls(before, converted, frozenset(domains))
        try:
            after = reader.read(converted)
        except ModelFileError:
            # A model in memory whose weights still lie beside the file that it was made from.
            if not isinstance(converted, onnx.ModelProto) or before.path is None:
                raise
            after = reader.Source(converted, before.path)
        return cls(before, after, frozenset(domains))

    def weight_bytes(self) -> int:
        """Return the bytes of the tensors in both models, wherever they are stored."""
        tensors = (t for m in (self.original, self.converted) for t in traversal.tensors(m.proto))
        known = (t for t in tensors if t.data_type in _WITH_SIZE)
        return sum(math.prod(t.dims) * dtype_of(t.data_type).itemsize for t in known)

    def resolved(self) -> ModelPair:
        """Return both with links resolved, the converted one with a folder of external data."""
        before, after = reader.resolved(self.original), reader.resolved(self.converted)
        if after.folder is None:
            after = replace(after, base=before.folder)
        return replace(self, original=before, converted=after)

    def as_fed(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Return the data of a run of the original as the converted model declares it.

        Reals are rounded where its inputs are of a shorter type.
        """
        types = {
            value.name: shape_inference.element_type(value.type)
            for value in self.converted.proto.graph.input
        }
        return {name: _as_type(array, types.get(name)) for name, array in feeds.items()}

    @property
    def folders(self) -> tuple[Path | None, Path | None]:
        """The folders of the external data of both."""
        return self.original.folder, self.converted.folder

    def without_earlier_form(self) -> ModelPair:
        """Return the pair with the original as it was before an earlier conversion wrapped it."""
        folder = self.original.folder
        unwrapped = without_earlier_form(self.original.proto, folder=folder)
        original = self.original
        if unwrapped.model is not original.proto:
            original = original.holding(unwrapped.model)
        return replace(self, original=original, domains=self.domains | unwrapped.domains)


def _as_type(array: Array, element_type: int | None) -> Array:
    """Convert an array of reals to another type of reals; others stay as they are."""
    if element_type is None or not is_float(array.dtype):
        return array
    dtype = dtype_of(element_type)
    if dtype == array.dtype or not is_float(dtype):
        return array
    with np.errstate(all="ignore"):
        return array.astype(dtype)
