"""Build OpenVINO's spellings in ONNX: channels first, one entry per axis, own attributes.

No exporter writes these; they are what people write by hand, or with a script, from OpenVINO's
operator pages. SpaceToBatch and BatchToSpace take four inputs with an entry for every axis, batch
and channels too. ExtractImagePatches takes `sizes`, `strides`, `rates` for the two spatial axes
and `auto_pad`, whose same_lower TensorFlow does not have. The same network, built with OpenVINO's
own operators and run by OpenVINO, gives the expected outputs.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import _build  # first: it settles how TensorFlow starts

# isort: split
import numpy as np
import onnx
import onnx.parser
import openvino
from onnx import numpy_helper
from openvino import opset13

CHANNELS, HEIGHT, WIDTH = 4, 15, 13

# 15 + 1 + 2 and 13 + 2 + 3 are multiples of the rates 2 and 3; 3 x 3 kernels without padding.
BLOCK_SHAPE = (1, 1, 2, 3)
PADS_BEGIN, PADS_END = (0, 0, 1, 2), (0, 0, 2, 3)
CROPS_BEGIN, CROPS_END = (0, 0, 1, 0), (0, 0, 0, 1)

TEXT = f"""
<
    ir_version: {_build.IR_VERSION},
    opset_import: ["" : {_build.OPSET}, "{_build.OPENVINO_DOMAIN}" : 1]
>
openvino_style (float[batch, {CHANNELS}, {HEIGHT}, {WIDTH}] data)
    => (float[batch, 8, 7, 4] context, float[batch, 64, 3, 2] tiles)
{{
    [to_batch] blocks = {_build.OPENVINO_DOMAIN}.SpaceToBatch
        (data, block_shape, pads_begin, pads_end)
    [depthwise] filtered = Conv <group = {CHANNELS}> (blocks, depthwise_weight, depthwise_bias)
    [to_space] dilated = {_build.OPENVINO_DOMAIN}.BatchToSpace
        (filtered, block_shape, crops_begin, crops_end)
    [relu] active = Relu (dilated)
    [surroundings] patches = {_build.OPENVINO_DOMAIN}.ExtractImagePatches
        <sizes = [3, 2], strides = [2, 3], rates = [2, 1], auto_pad = "same_lower"> (active)
    [project] context = Conv (patches, project_weight)
    [tiling] tiles = {_build.OPENVINO_DOMAIN}.ExtractImagePatches
        <sizes = [4, 4], strides = [4, 4], rates = [1, 1], auto_pad = "valid"> (active)
}}
"""


def in_onnx(weights: dict[str, _build.Array]) -> onnx.ModelProto:
    model = onnx.parser.parse_model(TEXT)
    parameters = {
        "block_shape": BLOCK_SHAPE,
        "pads_begin": PADS_BEGIN,
        "pads_end": PADS_END,
        "crops_begin": CROPS_BEGIN,
        "crops_end": CROPS_END,
    }
    arrays = weights | {name: np.array(value, np.int64) for name, value in parameters.items()}
    model.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in arrays.items()
    )
    return model


def in_openvino(weights: dict[str, _build.Array]) -> openvino.CompiledModel:
    def constant(values: tuple[int, ...]) -> openvino.Node:
        return opset13.constant(np.array(values, np.int64))

    data = opset13.parameter([-1, CHANNELS, HEIGHT, WIDTH], np.float32)
    blocks = opset13.space_to_batch(
        data, constant(BLOCK_SHAPE), constant(PADS_BEGIN), constant(PADS_END)
    )
    # OpenVINO's depthwise weights have an axis for the groups; ONNX merges it with the outputs.
    grouped = weights["depthwise_weight"][:, np.newaxis]
    filtered = opset13.group_convolution(
        blocks, opset13.constant(grouped), [1, 1], [0, 0], [0, 0], [1, 1]
    )
    filtered = opset13.add(filtered, weights["depthwise_bias"].reshape(1, CHANNELS, 1, 1))
    dilated = opset13.batch_to_space(
        filtered, constant(BLOCK_SHAPE), constant(CROPS_BEGIN), constant(CROPS_END)
    )
    active = opset13.relu(dilated)
    patches = opset13.extract_image_patches(active, [3, 2], [2, 3], [2, 1], "same_lower")
    context = opset13.convolution(
        patches, opset13.constant(weights["project_weight"]), [1, 1], [0, 0], [0, 0], [1, 1]
    )
    tiles = opset13.extract_image_patches(active, [4, 4], [4, 4], [1, 1], "valid")
    model = openvino.Model([context, tiles], [data], "openvino_style")
    # By default some processors compute in bfloat16.
    return openvino.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})


def main() -> None:
    rng = np.random.default_rng(5)
    weights = {
        "depthwise_weight": _build.kernel(rng, (CHANNELS, 1, 3, 3), fan_in=9),
        "depthwise_bias": rng.uniform(-0.5, 0.5, CHANNELS).astype(np.float32),
        "project_weight": _build.kernel(rng, (8, 6 * CHANNELS, 1, 1), fan_in=6 * CHANNELS),
    }
    data = rng.uniform(-1, 1, (3, CHANNELS, HEIGHT, WIDTH)).astype(np.float32)
    outputs = list(in_openvino(weights)(data).values())
    domain = _build.OPENVINO_DOMAIN
    expect = {
        f"{domain}:SpaceToBatch": 1,
        f"{domain}:BatchToSpace": 1,
        f"{domain}:ExtractImagePatches": 2,
    }
    _build.record(__file__, in_onnx(weights), [data], outputs, expect=expect)


if __name__ == "__main__":
    main()
