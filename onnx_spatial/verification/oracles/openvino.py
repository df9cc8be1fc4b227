"""Run operators with OpenVINO's CPU plugin, except where it is known to be wrong.

Its SpaceToBatch of rank 4 and 5 reads a neighbour instead of 0 where a block exceeds D + pads_begin;
padded sizes of zero are uninitialised; 64-bit integers are computed with 32 bits, doubles and the int32
of ReorgYolo as floats.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from onnx_spatial.operators import (
    BatchToSpace,
    ExtractPatches,
    Operator,
    ReorgYolo,
    SpaceToBatch,
)
from onnx_spatial.verification.arrays import Array
from onnx_spatial.verification.oracles.silent import Silent

#: Element types that it moves without a conversion.
TYPES = ("float32", "float16", "int8", "uint8", "int32")


def run(operator: Operator, x: Array) -> Array:
    """Run an operator with OpenVINO.

    Raises:
        Silent: OpenVINO has no kernel for it, or is known to be wrong.
    """
    if x.dtype.name not in TYPES:
        raise Silent(f"OpenVINO computes {x.dtype.name} in another type")
    if x.dtype == np.float16 and np.isnan(x).any():
        raise Silent("OpenVINO makes signalling NaNs of float16 quiet")
    if 0 in x.shape or 0 in operator.output_shape(x.shape):
        raise Silent("OpenVINO leaves padded sizes of zero uninitialised")
    if isinstance(operator, ExtractPatches):
        return _patches(operator, x)
    if isinstance(operator, SpaceToBatch | BatchToSpace):
        return _blocks(operator, x)
    if isinstance(operator, ReorgYolo):
        return _reorg(operator, x)
    raise Silent(f"OpenVINO has no {operator.name}")


def _blocks(operator: SpaceToBatch | BatchToSpace, x: Array) -> Array:
    from openvino import opset13

    pairs = operator.amounts
    if x.ndim < 2:
        raise Silent("OpenVINO requires rank 2 or more")
    rest = [0] * (x.ndim - 1 - len(pairs))
    block = np.array([1, *operator.block_shape, *(1 for _ in rest)], np.int64)
    begins = np.array([0, *(b for b, _ in pairs), *rest], np.int64)
    ends = np.array([0, *(e for _, e in pairs), *rest], np.int64)
    known_wrong = x.ndim in (4, 5) and bool((block > np.array(x.shape) + begins).any())
    if isinstance(operator, SpaceToBatch) and known_wrong:
        raise Silent("OpenVINO reads a neighbour where a block exceeds D + pads_begin")
    make = opset13.space_to_batch if isinstance(operator, SpaceToBatch) else opset13.batch_to_space
    return _run(lambda parameter: make(parameter, block, begins, ends), x)


def _patches(operator: ExtractPatches, x: Array) -> Array:
    if len(operator.kernel) != 2:
        raise Silent("OpenVINO extracts patches of images only")
    if operator.signed_pads:
        raise Silent("OpenVINO pads SAME differently")
    if operator.major != "place":
        raise Silent("OpenVINO puts places before channels")
    from openvino import opset13

    last = operator.layout == "channels_last"
    data = np.ascontiguousarray(np.moveaxis(x, -1, 1)) if last else x
    windows = (list(operator.kernel), list(operator.strides), list(operator.rates))
    padding = operator.auto_pad
    y = _run(lambda p: opset13.extract_image_patches(p, *windows, padding), data)
    return np.ascontiguousarray(np.moveaxis(y, 1, -1)) if last else y


def _reorg(operator: ReorgYolo, x: Array) -> Array:
    from openvino import opset13

    if x.dtype == np.int32:
        raise Silent("OpenVINO computes ReorgYolo of int32 in floats")
    return _run(lambda parameter: opset13.reorg_yolo(parameter, [operator.stride]), x)


def _run(make: Any, x: Array) -> Array:
    import openvino as ov
    from openvino import opset13

    parameter = opset13.parameter(x.shape, x.dtype)
    try:
        compiled = _core().compile_model(
            ov.Model([make(parameter)], [parameter]), "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
        )
    except RuntimeError as error:
        reason = (str(error).strip().splitlines() or ["no reason given"])[-1]
        raise Silent(f"OpenVINO rejects it: {reason}") from None
    return np.array(compiled(x)[0])


@cache
def _core() -> Any:
    import openvino as ov

    return ov.Core()
