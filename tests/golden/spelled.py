"""Models in which standard nodes spell the operators, and what is beside the operators."""

from __future__ import annotations

import chain_models
import movement_models
import numpy as np
import onnx
import patch_models
from building import TF
from chain_models import Net
from onnx import helper
from patch_models import one_hot

#: What replaces the symbolic dims of the models, at most: each is a multiple of the blocks.
SIZES = {"n": 2, "h": 12, "w": 18, "t": 12, "c": 3, "m": 24, "d": 6}

#: SpaceToBatch -> convolution -> BatchToSpace.
BLOCKS = {
    "six dims": lambda: chain_models.six_dims(),
    "six dims, symbolic": lambda: chain_models.six_dims(("n", "h", "w", 3)),
    "six dims, rate 3": lambda: chain_models.six_dims((2, 9, 15, 3), (3, 3), 3),
    "depth": lambda: chain_models.depth_to_space(),
    "depth, rate 3": lambda: chain_models.depth_to_space(d=3),
    "stacked": lambda: chain_models.stacked(),
    "channels first": lambda: chain_models.channels_first(),
    "one dim": lambda: chain_models.one_dim(),
    "one axis of two": lambda: chain_models.uneven(),
    "volume": lambda: chain_models.volume(),
}

PATCHES = {
    "one-hot": lambda: _first(strides=[2, 2]),
    "one-hot, SAME_UPPER": lambda: _first(auto_pad="SAME_UPPER", strides=[2, 2]),
    "one-hot, SAME_LOWER": lambda: _first(auto_pad="SAME_LOWER", strides=[3, 2]),
    "one-hot, pads": lambda: _first(pads=[0, 2, 1, 3], strides=[2, 1]),
    "one-hot, dilations": lambda: _first(dilations=[2, 3]),
    "one-hot, channel major": lambda: _first(major="channel", pads=[1, 1, 1, 1]),
    "one-hot, channels last": lambda: patch_models.channels_last(
        one_hot((2, 4), 3), ("n", "h", "w", 3), strides=[2, 3]
    ),
    "one-hot, one axis": lambda: patch_models.channels_first(
        one_hot((2,), 2), ("n", 2, "t"), strides=[2]
    ),
    "one-hot, one window": lambda: _flat((2, 3, 8, 10), (3, 3), strides=[8, 10]),
    "one-hot, one row": lambda: _flat((2, 3, 1, 12), (1, 3), strides=[1, 2]),
    "one-hot, one row of windows": lambda: _flat((2, 3, 8, 12), (1, 3), strides=[8, 2]),
    "one-hot, columns": lambda: _flat(("n", 3, "h", "w"), (3, 1), strides=[2, 3]),
    "one-hot, side by side": lambda: _flat(("n", 3, "h", "w"), (2, 3), strides=[2, 3]),
    "one-hot, volume": lambda: _flat(("n", 2, "d", "h", "w"), (2, 1, 2), strides=[1, 2, 2]),
    "one-hot, depthwise": lambda: patch_models.channels_first(
        one_hot((3, 3), 4, group=True), ("n", 4, "h", "w"), group=4
    ),
    "tf2onnx": lambda: patch_models.tf2onnx((2, 9, 11, 3), stride=2),
    "unfold": lambda: patch_models.im2col((2, 2, 12, 18), 3, 1, 1, computed=False),
    "unfold, computed": lambda: patch_models.im2col(("n", 2, "h", "w"), 3, 2, 1, computed=True),
}

#: Patches in front of what multiplies them.
EMBEDDINGS = {
    "MatMul": lambda: _embedding("MatMul", (3, 3), (2, 2), "SAME"),
    "MatMul, rates": lambda: _embedding("MatMul", (2, 3), (1, 2), "VALID", rates=(2, 1)),
    "MatMul, side by side": lambda: _embedding("MatMul", (4, 4), (4, 4), "VALID"),
    "Conv": lambda: _embedding("Conv", (3, 3), (1, 1), "SAME"),
    "Conv, static": lambda: _embedding("Conv", (3, 2), (2, 1), "VALID", shape=(2, 9, 8, 3)),
    "MatMul, overlapping, static": lambda: _embedding(
        "MatMul", (3, 3), (1, 2), "SAME", shape=(2, 9, 8, 3)
    ),
    "MatMul, one row": lambda: _embedding("MatMul", (1, 3), (1, 1), "SAME", shape=(2, 1, 9, 3)),
    "MatMul, larger strides": lambda: _embedding("MatMul", (2, 2), (3, 4), "SAME"),
    "Conv, large and static": lambda: _embedding(
        "Conv", (5, 5), (2, 2), "SAME", shape=(2, 32, 30, 3)
    ),
    "Conv, rates": lambda: _embedding("Conv", (3, 3), (2, 1), "SAME", rates=(2, 3)),
    "Gemm": lambda: _embedding("Gemm", (2, 2), (2, 2), "VALID", shape=(2, 8, 6, 3)),
    "another reader": lambda: _embedding("another", (3, 3), (1, 1), "SAME"),
    "MatMul of a volume": lambda: _embedding("MatMul", (1, 2, 2), (2, 1, 2), "SAME"),
}


def _first(major: str = "place", **attributes: object) -> onnx.ModelProto:
    weight = one_hot((3, 3), 3, major=major)
    return patch_models.channels_first(weight, ("n", 3, "h", "w"), **attributes)


def _flat(
    shape: tuple[int | str, ...], kernel: tuple[int, ...], **attributes: object
) -> onnx.ModelProto:
    return patch_models.channels_first(one_hot(kernel, int(shape[1])), shape, **attributes)


def _embedding(
    reader: str,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    padding: str,
    *,
    rates: tuple[int, ...] | None = None,
    shape: tuple[int | str, ...] = (),
) -> onnx.ModelProto:
    """Patches of three channels, and a product with seven columns behind them."""
    net, axes = Net(), len(kernel)
    given = {"ksizes": [1, *kernel, 1], "strides": [1, *strides, 1], "padding": padding}
    if axes == 2:
        given["rates"] = [1, *(rates or (1, 1)), 1]
    kind = "ExtractImagePatches" if axes == 2 else "ExtractVolumePatches"
    x = patches = net(kind, "x", domain=TF, **given)
    depth = 3 * int(np.prod(kernel))
    weight = chain_models.weights(depth, 7)
    if reader == "Gemm":
        x = net("Gemm", net("Reshape", x, [-1, depth]), weight, chain_models.weights(7))
    elif reader == "Conv":
        x = net("Transpose", x, perm=[0, 3, 1, 2])
        x = net("Conv", x, weight.T.reshape(7, depth, 1, 1), chain_models.weights(7))
    else:
        x = net("Relu", net("Add", net("MatMul", x, weight), chain_models.weights(7)))
    shape = shape or ("n", "d", "h", "w", 3)[:1] + ("d", "h", "w")[3 - axes :] + (3,)
    model = net.model(shape, x)
    if reader == "Gemm":
        del model.graph.output[0].type.tensor_type.shape.dim[2:]
    if reader == "another":
        model.graph.output.append(helper.make_tensor_value_info(patches, 1, [None] * 4))
    model.opset_import.append(helper.make_opsetid(TF, 1))
    return model


def feeds(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Small integers of the declared type, all sums of which are exact."""
    (x,) = model.graph.input
    shape = [d.dim_value or SIZES[d.dim_param] for d in x.type.tensor_type.shape.dim]
    numbers = np.random.default_rng(1).integers(-50, 50, shape)
    return {"x": numbers.astype(helper.tensor_dtype_to_np_dtype(x.type.tensor_type.elem_type))}


MOVEMENTS = movement_models.FORMS
