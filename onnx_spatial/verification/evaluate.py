"""Run a model that no runtime loads: spatial operators by numpy kernels, the rest in onnxruntime."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx

from onnx_spatial import analysis
from onnx_spatial.conversion.local_functions import without_earlier_form
from onnx_spatial.errors import UsageError
from onnx_spatial.model.io import reader
from onnx_spatial.verification.arrays import Array, dtype_of
from onnx_spatial.verification.runtime.sessions import RunFailure
from onnx_spatial.verification.sizes import reference_runs
from onnx_spatial.verification.sizes.model_inputs import check_given, graph_inputs, named_dims


def evaluate(
    model: reader.Model, inputs: Mapping[str, Array], *, domains: Iterable[str] = ()
) -> dict[str, Any]:
    """Return the outputs of a model by name; no runtime has to know its spatial operators.

    Args:
        model: path, bytes, onnx.ModelProto, onnx_ir.Model, or a model read before. Not changed.
        inputs: data by input name.
        domains: operator domains of the user's own that hold spatial operators.

    Raises:
        UsageError: the inputs do not fit the model, or it does not run on them.
        ModelFileError: the model cannot be read.
    """
    source = reader.resolved(model if isinstance(model, reader.Source) else reader.read(model))
    unwrapped = without_earlier_form(source.proto)
    source = source.holding(unwrapped.model)
    declared = graph_inputs(source.proto)
    infos = analysis.find(
        named_dims(source.proto, declared), unwrapped.domains.union(domains), source.folder
    )
    types = {i.name: i.element_type for i in declared}
    feeds = check_given(declared, {n: _restored(a, types.get(n)) for n, a in inputs.items()})
    try:
        known = [info for info in infos if info.known_domain]
        return reference_runs.program_of(source, known, declared).run(feeds)
    except RunFailure as failure:
        raise UsageError(f"{source.name}: cannot be run on this data: {failure}") from None


def _restored(array: Array, element_type: int | None) -> Array:
    """Restore the type of an array from an .npz file, which keeps the bits of a bfloat16 only."""
    array = np.asarray(array)
    if element_type in (None, onnx.TensorProto.STRING):
        return array
    dtype = dtype_of(element_type)
    lost = array.dtype.kind == "V" and array.dtype != dtype
    return array.view(dtype) if lost and array.dtype.itemsize == dtype.itemsize else array
